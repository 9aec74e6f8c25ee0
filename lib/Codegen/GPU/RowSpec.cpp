//===- RowSpec.cpp - Row-wise operations: names, arguments, launches ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Kernels.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace easyquant::gpu {

const char *nameOf(Float type) {
  return type == Float::F32 ? "f32" : type == Float::F16 ? "f16" : "bf16";
}

std::string nameOf(int bits, ScaleFormat scales) {
  std::string name = fmt::format("i{}", bits);
  return scales == ScaleFormat::F32 ? name : name + fmt::format("_s{}", numerics::toString(scales));
}

static std::string symbolName(const RowSpec &spec) {
  std::string name = fmt::format("{}_{}", nameOf(spec.op), spec.columns);
  if (spec.op == RowOp::RmsNorm || spec.op == RowOp::LayerNorm)
    name += fmt::format("_eps{:x}", std::bit_cast<uint32_t>(static_cast<float>(spec.epsilon)));
  name += fmt::format("_{}", nameOf(spec.input));
  RowQuantization quantization = spec.effectiveQuantization();
  if (quantization == RowQuantization::None)
    return name + fmt::format("_to_{}", nameOf(spec.output));
  if (spec.op != RowOp::Quantize)
    name += "_quantize";
  if (quantization == RowQuantization::Static)
    name += spec.zeroPoints ? "_static_zp" : spec.fullRange ? "_static_full" : "_static";
  if (quantization == RowQuantization::Online)
    name += "_online";
  if (spec.sinks)
    name += "_sinks";
  if (spec.absMax == RowSpec::AbsMax::Result)
    return name + "_absmax";
  if (spec.absMax == RowSpec::AbsMax::Given)
    name += "_given_absmax";
  if (spec.sums)
    name += fmt::format("_sums{}", spec.groupSize);
  return name;
}

Description describe(const AdvanceSpec &spec, const Chip &) {
  constexpr int64_t kSites = 128; // of a block
  Description description;
  description.name = fmt::format("advance_{}_window{}_decay{:x}", spec.sites, spec.window,
                                 std::bit_cast<uint64_t>(spec.decay));
  description.threads = kSites;
  description.grid[0].factor = (spec.sites + kSites - 1) / kSites;
  description.parameters = {{"extrema"},
                            {"extrema_stride", Parameter::I32},
                            {"states", Parameter::Pointer, true},
                            {"slots"},
                            {"rows", Parameter::I32}};
  return description;
}

RowShape rowShape(const RowSpec &spec) {
  // Enough threads that each has about sixteen elements: several loads in flight, registers for
  // full occupancy.
  constexpr int64_t kElements = 16, kMostElements = 32, kMostThreads = 1024, kBlock = 128;
  RowShape shape{};
  shape.vector = std::gcd(spec.columns, 16 / bytesOf(spec.input));
  // Codes are written up to their padding.
  int64_t columns = spec.effectiveQuantization() == RowQuantization::None
                        ? spec.columns
                        : paddedColumns(spec.columns);
  int64_t vectors = columns / shape.vector;
  int64_t perThread = std::max<int64_t>(1, kElements / shape.vector);
  int64_t threads = (vectors + perThread - 1) / perThread;
  shape.threads = std::min((threads + 31) / 32 * 32, kMostThreads);
  shape.rows = shape.threads == 32 ? kBlock / 32 : 1;
  shape.vectors = (vectors + shape.threads - 1) / shape.threads;
  shape.inRegisters = shape.vectors * shape.vector <= kMostElements;
  return shape;
}

Description describe(const RowSpec &spec, const Chip &) {
  Description description;
  description.name = symbolName(spec);
  RowShape shape = rowShape(spec);
  description.threads = static_cast<uint32_t>(shape.threads * shape.rows);
  description.grid[0].rowsPerBlock = shape.rows;
  // Half of a multiprocessor's threads, with registers for all that each of them loads at once.
  constexpr int64_t kThreads = 1024;
  description.blocksPerSM = std::max<int64_t>(1, kThreads / description.threads);

  std::vector<Parameter> &parameters = description.parameters;
  auto input = [&](const char *name, bool stride) {
    parameters.push_back({name});
    if (stride)
      parameters.push_back({std::string(name) + "_stride", Parameter::I32});
  };
  auto output = [&](const char *name) { parameters.push_back({name, Parameter::Pointer, true}); };
  if (spec.op == RowOp::SiluMul) {
    input("gate", true);
    input("up", true);
  } else if (spec.op == RowOp::Add) {
    input("a", true);
    input("b", true);
  } else {
    input("x", true);
  }
  if (spec.op == RowOp::RmsNorm || spec.op == RowOp::LayerNorm)
    input("weight", false);
  if (spec.op == RowOp::LayerNorm)
    input("bias", false);
  RowQuantization quantization = spec.effectiveQuantization();
  if (quantization == RowQuantization::None) {
    output("y");
    parameters.push_back({"y_stride", Parameter::I32});
  } else if (spec.absMax == RowSpec::AbsMax::Result) {
    output("absmax");
  } else {
    bool isStatic = quantization == RowQuantization::Static;
    bool isOnline = quantization == RowQuantization::Online;
    if (isStatic)
      input("scale", false);
    if (isStatic && spec.zeroPoints)
      input("zero", false);
    if (isOnline) {
      input("states", false);
      input("row_states", false);
      parameters.push_back({"first", Parameter::I32});
    }
    if (spec.absMax == RowSpec::AbsMax::Given)
      input("absmax", false);
    output("codes");
    output("scales");
    if (spec.sums)
      output("sums");
    if (isStatic && spec.zeroPoints)
      output("zeros");
    if (isOnline) {
      output("extrema");
      parameters.push_back({"extrema_stride", Parameter::I32});
    }
  }
  parameters.push_back({"rows", Parameter::I32});
  return description;
}

} // namespace easyquant::gpu
