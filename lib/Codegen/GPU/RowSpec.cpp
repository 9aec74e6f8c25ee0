//===- RowSpec.cpp - Row-wise operations: names, arguments, launches ------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowEmitter.h"

#include <algorithm>
#include <bit>
#include <numeric>

namespace easyquant::gpu {

const char *nameOf(Float type) {
  return type == Float::F32 ? "f32" : type == Float::F16 ? "f16" : "bf16";
}

WeightCodec WeightCodec::of(const numerics::Scheme &scheme) {
  WeightCodec codec;
  codec.bits = scheme.bits;
  codec.groupSize = scheme.groupSize;
  codec.zeroPoints = scheme.hasZeroPoints();
  codec.scales = scheme.scales;
  codec.codes = scheme.codes;
  codec.outer = scheme.outer;
  codec.minima = scheme.minima;
  if (scheme.table)
    codec.unit = scheme.table->int8Unit().value_or(1);
  return codec;
}

std::string nameOf(const WeightCodec &codec) {
  const numerics::FloatFormat *floats = numerics::floatFormat(codec.codes);
  std::string name =
      floats ? floats->name : fmt::format("{}{}", codec.isTable() ? "t" : "i", codec.bits);
  if (codec.scales != ScaleFormat::F32)
    name += fmt::format("_s{}", numerics::toString(codec.scales));
  name += codec.outer ? "_outer" : "";
  if (codec.groupSize != 0)
    name += fmt::format("_g{}", codec.groupSize);
  name += codec.zeroPoints ? "_zp" : "";
  name += codec.minima ? "_minima" : "";
  if (codec.unit != 1)
    name += fmt::format("_u{:x}", std::bit_cast<uint32_t>(codec.unit));
  return name;
}

static std::string symbolName(const RowSpec &spec) {
  std::string name = fmt::format("{}_{}", nameOf(spec.op), spec.columns);
  if (spec.op == RowOp::RmsNorm || spec.op == RowOp::LayerNorm)
    name += fmt::format("_eps{:x}", std::bit_cast<uint32_t>(static_cast<float>(spec.constant)));
  if (spec.op == RowOp::Multiply || spec.op == RowOp::SoftCap)
    name += fmt::format("_by{:x}", std::bit_cast<uint32_t>(static_cast<float>(spec.constant)));
  if (spec.hadamard)
    name += fmt::format("_h{}", spec.hadamard);
  name += fmt::format("_{}", nameOf(spec.input));
  if (spec.squares == RowSpec::OfRow::Result)
    return name + "_squares";
  if (spec.squares == RowSpec::OfRow::Given)
    name += fmt::format("_part_of{}", spec.wholeColumns);
  RowQuantization quantization = spec.effectiveQuantization();
  if (quantization == RowQuantization::None)
    return name + fmt::format("_to_{}", nameOf(spec.output));
  if (spec.op != RowOp::Quantize)
    name += "_quantize";
  if (quantization == RowQuantization::Static)
    name += spec.zeroPoints ? "_static_zp" : spec.fullRange ? "_static_full" : "_static";
  if (quantization == RowQuantization::Online)
    name += "_online";
  if (const numerics::FloatFormat *format = numerics::floatFormat(spec.codes))
    name += fmt::format("_{}", format->name);
  if (spec.sinks)
    name += "_sinks";
  if (spec.absMax == RowSpec::OfRow::Result)
    return name + "_absmax";
  if (spec.absMax == RowSpec::OfRow::Given)
    name += "_given_absmax";
  if (spec.scaleGroup)
    name += fmt::format("_own{}{}", spec.scaleGroup, spec.zeroPoints ? "_zp" : "");
  if (spec.sums)
    name += fmt::format("_sums{}", spec.groupSize);
  return name;
}

RowShape rowShape(const RowSpec &spec, int64_t givenThreads) {
  // Enough threads that each has about sixteen elements: several loads in flight, registers for
  // full occupancy.
  constexpr int64_t kElements = 16, kMostElements = 32, kMostThreads = 1024, kBlock = 128;
  constexpr int64_t kWarp = 32;
  RowShape shape{};
  shape.vector = std::gcd(spec.columns, 16 / bytesOf(spec.input));
  // Codes are written up to their padding.
  int64_t columns = spec.effectiveQuantization() == RowQuantization::None
                        ? spec.columns
                        : paddedColumns(spec.columns);
  int64_t vectors = columns / shape.vector;
  int64_t perThread = std::max<int64_t>(1, kElements / shape.vector);
  int64_t threads = divideCeil(vectors, perThread);
  shape.threads =
      givenThreads > 0 ? givenThreads : std::min(divideCeil(threads, kWarp) * kWarp, kMostThreads);
  shape.vectors = divideCeil(vectors, shape.threads);
  // A block of columns is that of one warp, and so is a group.
  shape.run =
      std::max<int64_t>(1, std::max(spec.hadamard, spec.scaleGroup) / (kWarp * shape.vector));
  if (shape.run > 1) {
    shape.vectors = divideCeil(shape.vectors, shape.run) * shape.run;
    if (givenThreads == 0)
      shape.threads = divideCeil(divideCeil(vectors, shape.vectors), kWarp) * kWarp;
  }
  shape.rows = shape.threads == kWarp && givenThreads == 0 ? kBlock / kWarp : 1;
  shape.inRegisters = shape.vectors * shape.vector <= kMostElements;
  return shape;
}

Parameters &addCodes(Parameters &parameters, const RowSpec &spec) {
  const RowQuantization quantization = spec.effectiveQuantization();
  const bool isStatic = quantization == RowQuantization::Static;
  const bool isOnline = quantization == RowQuantization::Online;
  parameters.constants("scale", isStatic).constants("zero", isStatic && spec.zeroPoints);
  parameters.reads("states", isOnline).constants("row_states", isOnline).number("first", isOnline);
  parameters.reads("absmax", spec.absMax == RowSpec::OfRow::Given);
  parameters.writes("codes").writes("scales").writes("sums", spec.sums);
  const bool hasZeros = spec.zeroPoints && (isStatic || spec.scaleGroup);
  // Extrema are those of one site among those of all.
  return parameters.writes("zeros", hasZeros).writesRows("extrema", isOnline, 2 * sizeof(float));
}

Description describe(const RowSpec &spec) {
  Description description;
  description.name = symbolName(spec);
  RowShape shape = rowShape(spec);
  description.threads = static_cast<uint32_t>(shape.threads * shape.rows);
  description.grid[0].rowsPerBlock = shape.rows;
  // At least half of a multiprocessor's threads, with registers for what each of them loads at
  // once.
  constexpr int64_t kThreads = 1024;
  description.blocksPerSM = divideCeil(kThreads, int64_t{description.threads});

  const bool hasGate = isGated(spec.op), isAdd = spec.op == RowOp::Add;
  const bool isLayerNorm = spec.op == RowOp::LayerNorm;
  Parameters parameters;
  parameters.readsRows("gate", hasGate).readsRows("up", hasGate);
  parameters.readsRows("a", isAdd).readsRows("b", isAdd);
  parameters.readsRows("x", !hasGate && !isAdd);
  if (spec.squares == RowSpec::OfRow::Result) {
    description.parameters = parameters.writes("squares").rows();
    return description;
  }
  parameters.constants("weight", isLayerNorm || spec.op == RowOp::RmsNorm)
      .reads("squares", spec.squares == RowSpec::OfRow::Given)
      .constants("bias", isLayerNorm || spec.op == RowOp::AddBias)
      .constants("order", spec.op == RowOp::Gather);
  if (spec.effectiveQuantization() == RowQuantization::None) {
    parameters.writesRows("y");
  } else if (spec.absMax == RowSpec::OfRow::Result) {
    parameters.writes("absmax");
  } else {
    addCodes(parameters, spec);
  }
  description.parameters = parameters.rows();
  return description;
}

} // namespace easyquant::gpu
