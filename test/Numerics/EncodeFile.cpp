//===- EncodeFile.cpp - Number formats for tests in other languages -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   EncodeFile IN OUT
//
// For the floats `x` (F32, N) of a safetensors file OUT gets the bits of each format, as U8 or U32:
// `f8E4M3FN`, `f4E2M1FN`, and for |x| those of scales: `scale_f16`, ...; and what all bits stand
// for, as F32: `decoded_f8E4M3FN` (256), `decoded_scale_f16` (65536), ...
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Formats/SafetensorsWriter.h"
#include "easyquant/Numerics/NumberFormats.h"

#include <cmath>
#include <cstring>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

struct Output {
  std::string name, type;
  std::vector<std::byte> bytes;
  int64_t count;
};

template <typename T>
Output output(std::string name, std::string type, const std::vector<T> &data) {
  auto bytes = std::as_bytes(std::span(data));
  return {std::move(name), std::move(type), {bytes.begin(), bytes.end()}, std::ssize(data)};
}

void addCodes(std::vector<Output> &outputs, const std::vector<float> &x, CodeFormat codes) {
  const FloatFormat &format = *floatFormat(codes);
  const std::string name = format.name;
  std::vector<uint8_t> bits;
  for (float v : x)
    bits.push_back(format.encode(v));
  std::vector<float> decoded;
  for (int i = 0; i < 1 << format.bits; ++i)
    decoded.push_back(format.decode(static_cast<uint8_t>(i)));
  outputs.push_back(output(name, "U8", bits));
  outputs.push_back(output("decoded_" + name, "F32", decoded));
}

Result<void> run(const char *in, const char *out) {
  auto file = formats::SafetensorsFile::open(in);
  if (!file)
    return Unexpected(file.error());
  const auto *tensor = file->find("x");
  if (!tensor || tensor->dtype != formats::DType::F32 || tensor->shape.size() != 1)
    return makeError(ErrorCode::InvalidArgument, "expected a vector x of F32");
  std::vector<float> x(tensor->shape[0]);
  std::memcpy(x.data(), file->data(*tensor).data(), x.size() * sizeof(float));

  std::vector<Output> outputs;
  addCodes(outputs, x, CodeFormat::F8E4M3FN);
  addCodes(outputs, x, CodeFormat::F4E2M1FN);
  for (ScaleFormat format :
       {ScaleFormat::F16, ScaleFormat::BF16, ScaleFormat::F8E4M3FN, ScaleFormat::F8E8M0FNU}) {
    std::vector<uint32_t> bits;
    for (float v : x)
      bits.push_back(std::isnormal(v) ? encodeScale(roundScale(std::fabs(v), format), format) : 0);
    std::vector<float> decoded;
    for (uint32_t i = 0; i < 1u << (8 * scaleBytes(format)); ++i)
      decoded.push_back(decodeScale(i, format));
    outputs.push_back(output(std::string("scale_") + toString(format), "U32", bits));
    outputs.push_back(output(std::string("decoded_scale_") + toString(format), "F32", decoded));
  }
  std::vector<formats::SafetensorsWriter::Tensor> declared;
  for (const Output &o : outputs)
    declared.push_back({o.name, o.type, {o.count}});
  auto writer = formats::SafetensorsWriter::create(out, declared);
  if (!writer)
    return Unexpected(writer.error());
  for (const Output &o : outputs)
    if (auto ok = writer->write(o.name, o.bytes); !ok)
      return ok;
  return writer->finish();
}

} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    fmt::print(stderr, "error: expected EncodeFile IN OUT\n");
    return 1;
  }
  if (auto done = run(argv[1], argv[2]); !done) {
    fmt::print(stderr, "error: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
