//===- QuantizeFile.cpp - Numerics for tests in other languages -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   QuantizeFile IN OUT BITS symmetric|full|asymmetric tensor|channel|GROUP RULE [PERCENTILE|NORM]
//
// Quantizes the tensor `x` (F32, N x K) of a safetensors file; OUT gets `codes` (I8, N x K),
// `scales` (F32, rows x groups) and `zero_points` (I32, the same; zeros for symmetric schemes).
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <cstdlib>
#include <cstring>

using namespace easyquant;
using namespace easyquant::numerics;

static Result<void> run(std::span<char *> arguments) {
  if (arguments.size() < 6)
    return makeError(ErrorCode::InvalidArgument, "too few arguments");
  auto file = formats::SafetensorsFile::open(arguments[0]);
  if (!file)
    return Unexpected(file.error());
  const auto *tensor = file->find("x");
  if (!tensor || tensor->dtype != formats::DType::F32 || tensor->shape.size() != 2)
    return makeError(ErrorCode::InvalidArgument, "expected a matrix x of F32");
  std::vector<float> x(tensor->shape[0] * tensor->shape[1]);
  if (!x.empty())
    std::memcpy(x.data(), file->data(*tensor).data(), x.size() * sizeof(float));

  std::string_view kind = arguments[3], granularity = arguments[4];
  Scheme scheme;
  scheme.bits = std::atoi(arguments[2]);
  scheme.symmetric = kind != "asymmetric";
  scheme.fullRange = kind == "full";
  if (granularity == "tensor") {
    scheme.granularity = Granularity::Tensor;
  } else if (granularity != "channel") {
    scheme.granularity = Granularity::Group;
    scheme.groupSize = std::atoi(arguments[4]);
  }
  auto rule = scaleRuleKind(arguments[5]);
  if (!rule)
    return Unexpected(rule.error());
  ScaleRule parameters{*rule};
  if (arguments.size() > 6)
    parameters.percentile = parameters.norm = std::atof(arguments[6]);

  auto q = quantize(ConstMatrix(x.data(), tensor->shape[0], tensor->shape[1]), scheme, parameters);
  if (!q)
    return Unexpected(q.error());
  if (q->params.zeroPoints.empty())
    q->params.zeroPoints.resize(q->params.scales.size());
  std::vector<int64_t> shape = {q->params.rows, q->params.groups};
  auto writer = formats::SafetensorsWriter::create(
      arguments[1],
      {{"codes", "I8", tensor->shape}, {"scales", "F32", shape}, {"zero_points", "I32", shape}});
  if (!writer)
    return Unexpected(writer.error());
  auto write = [&](const char *name, const auto &values) {
    return writer->write(name, std::as_bytes(std::span(values)));
  };
  if (auto ok = write("codes", q->codes); !ok)
    return ok;
  if (auto ok = write("scales", q->params.scales); !ok)
    return ok;
  if (auto ok = write("zero_points", q->params.zeroPoints); !ok)
    return ok;
  return writer->finish();
}

int main(int argc, char **argv) {
  if (auto done = run(std::span(argv + 1, argc - 1)); !done) {
    fmt::print(stderr, "error: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
