//===- WeightParams.cpp - Scales and zero points in registers -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightParams.h"

#include "easyquant/Numerics/WeightLayout.h"

using namespace mlir;

namespace easyquant::cpu {

Type elementOf(Builder &b, ScaleFormat format) {
  switch (format) {
  case ScaleFormat::F32:
    return b.getF32Type();
  case ScaleFormat::F16:
    return b.getF16Type();
  case ScaleFormat::BF16:
    return b.getI16Type();
  case ScaleFormat::F8E4M3FN:
  case ScaleFormat::F8E8M0FNU:
  case ScaleFormat::UI6:
    return b.getI8Type();
  }
  llvm_unreachable("every format is named");
}

/// Scales of two levels: bytes of a super-group's f16 and of a group's fields, in a panel.
static constexpr int kSubBits = 6;
static constexpr int64_t kSuperBytes = kPanelRows * 2,
                         kSubBytes = numerics::panelFieldBytes(kSubBits);

static void readScales(Describer &d, ScaleFormat format, int64_t n, int64_t groups,
                       const char *name = "wscales") {
  SmallVector<int64_t> shape = {panelCount(n), groups, kPanelRows};
  if (format == ScaleFormat::UI6)
    shape = {panelCount(n), 1, kPanelRows * numerics::rowScaleBits(format, groups) / 8};
  d.reads(name, d.memory(shape, elementOf(d, format)));
}

static void readOuterScales(Describer &d, const WeightNumbers &numbers, int64_t n) {
  d.reads("wouter", d.memory({panelCount(n), 1, kPanelRows}, d.getF32Type()), numbers.outer);
}

void readRowScales(Describer &d, const WeightNumbers &numbers, int64_t n) {
  readScales(d, numbers.scales, n, /*groups=*/1);
  readOuterScales(d, numbers, n);
}

void readWeight(Describer &d, const WeightOperand &weight) {
  auto [format, numbers, n, k, groupSize, zeroPoints, scales] = weight;
  if (format == WeightFormat::F32) {
    d.reads("w", d.memory({n, k}, d.getF32Type()));
    return;
  }
  const int64_t groups = groupCount(k, groupSize), bits = bitsOf(format);
  d.reads("w", d.memory(packedShape(format, n, k), d.getI8Type()));
  if (scales)
    readScales(d, numbers.scales, n, groups);
  d.reads("wzeros",
          d.memory({panelCount(n), groups, numerics::panelFieldBytes(static_cast<int>(bits))},
                   d.getI8Type()),
          zeroPoints);
  if (numbers.minima)
    readScales(d, numbers.scales, n, groups, "wminima");
  readOuterScales(d, numbers, n);
  d.reads("codebook", d.memory({int64_t(1) << bits}, d.getF32Type()),
          numbers.codes == CodeFormat::Table);
}

Value loadCodebook(KernelBuilder &b, WeightFormat format, Value codebook) {
  return b.loadVector(int64_t(1) << bitsOf(format), codebook, {0});
}

Int8Codebook loadInt8Codebook(KernelBuilder &b, WeightFormat format, Value codebook) {
  const int64_t size = int64_t(1) << bitsOf(format);
  Value values = loadCodebook(b, format, codebook);
  // The largest magnitude is at an end. The unit has its exponent, less 6.
  constexpr int64_t exponents = int64_t(255) << 23;
  auto magnitude = [&](int64_t lane) {
    Value bits = arith::BitcastOp::create(b, b.i32(), b.extract(values, lane));
    return b.andi(bits, 0x7fffffff);
  };
  Value largest = b.createOrFold<arith::MaxUIOp>(magnitude(0), magnitude(size - 1));
  Value bits = b.subi(b.andi(largest, exponents), b.constant(b.i32(), int64_t(6) << 23));
  // 2^-e has the exponent 254 - (e + 127).
  Value inverse = b.subi(b.constant(b.i32(), int64_t(254) << 23), bits);
  Value scale = arith::BitcastOp::create(b, b.f32(), inverse);
  Value steps = b.mulf(values, b.broadcast(scale, size));
  Value integers = arith::FPToSIOp::create(b, b.vec(size, b.i32()), steps);
  Value bytes = arith::TruncIOp::create(b, b.vec(size, b.i8()), integers);
  SmallVector<int64_t> repeated(16);
  for (int64_t i = 0; i < 16; ++i)
    repeated[i] = i % size;
  return {b.shuffle(bytes, bytes, repeated), arith::BitcastOp::create(b, b.f32(), bits)};
}

Value decodeF8E4M3FN(KernelBuilder &b, Value words) {
  auto type = cast<VectorType>(words.getType());
  VectorType floats = b.vec(type.getNumElements(), b.f32());
  // Exponent and mantissa where f32 has them, and the difference of the biases.
  Value magnitude = b.shl(b.andi(words, 0x7f), 20);
  Value shifted = b.addi(magnitude, b.constant(type, int64_t(120) << 23));
  Value normal = b.bitcast(shifted, floats);
  // With the exponent 0 this gives 2^-7 (1 + m/8) for 2^-6 m/8.
  Value small = b.fma(normal, b.constant(floats, 2.0), b.constant(floats, -0x1p-6));
  Value isSmall = b.createOrFold<arith::CmpIOp>(arith::CmpIPredicate::ult, magnitude,
                                                b.constant(type, int64_t(8) << 20));
  Value value = b.select(isSmall, small, normal);
  Value sign = b.shl(b.andi(words, 0x80), 24);
  return b.bitcast(b.ori(b.bitcast(value, type), sign), floats);
}

/// Fields of `field` bits of rows row .. row + lanes - 1, as bytes, of which `width` bytes from
/// index `first` of `at` on hold those of rows r, r + width, ... in byte r.
static Value loadFields(KernelBuilder &b, int64_t field, int64_t width, int64_t lanes, Value bytes,
                        ArrayRef<Index> at, Index first, Index row) {
  const int64_t count = std::min(lanes, width);
  SmallVector<Index> place(at);
  place.push_back(b.add(first, b.rem(b.index(row), width)));
  Value loaded = b.loadVector(count, bytes, place);
  if (field == 8)
    return loaded;
  // As words of up to eight rows, which have one shift: the first field, and the next one in the
  // words that come again.
  const int64_t rows = std::min<int64_t>(count, 8), words = lanes / rows, distinct = count / rows;
  Type word = b.getIntegerType(rows * 8);
  Value begin = b.mul(b.div(b.index(row), width), field);
  Value shift = b.broadcast(arith::IndexCastUIOp::create(b, word, begin), words);
  Value fields = b.bitcast(loaded, b.vec(distinct, word));
  if (words > distinct) {
    SmallVector<int64_t> again(words);
    SmallVector<APInt> more;
    for (int64_t i = 0; i < words; ++i) {
      again[i] = i % distinct;
      more.push_back(APInt(rows * 8, i / distinct * field));
    }
    fields = b.shuffle(fields, fields, again);
    shift = b.addi(shift, arith::ConstantOp::create(
                              b, DenseElementsAttr::get(b.vec(words, word), ArrayRef(more))));
  }
  fields = b.createOrFold<arith::ShRUIOp>(fields, shift);
  return b.andi(b.bitcast(fields, b.vec(lanes, b.i8())), (1 << field) - 1);
}

/// Numbers of `bits` bits of rows row .. row + lanes - 1, as i32 (Packing.h has their planes).
static Value loadPanelFields(KernelBuilder &b, int64_t bits, int64_t lanes, Value bytes,
                             ArrayRef<Index> at, Index first, Index row) {
  const int64_t upper = numerics::upperBits(static_cast<int>(bits)), lower = bits - upper;
  Value value = loadFields(b, upper, 4 * upper, lanes, bytes, at, first, row);
  if (lower) {
    Value rest = loadFields(b, lower, 4 * lower, lanes, bytes, at, b.add(first, 4 * upper), row);
    // No bit leaves its byte.
    VectorType words = lanes < 8 ? b.vec(lanes, b.i8()) : b.vec(lanes / 4, b.i32());
    value = b.ori(b.bitcast(b.shl(b.bitcast(value, words), lower), b.vec(lanes, b.i8())), rest);
  }
  return b.zeroExtend(value, b.i32());
}

/// n / 64 of each row times the f16 of its super-group, both exact.
static Value loadTwoLevelScales(KernelBuilder &b, int64_t lanes, Value scales, Index panel,
                                Index group, Index row) {
  const int64_t bytes = cast<MemRefType>(scales.getType()).getDimSize(2);
  const int64_t supers = llvm::divideCeil(bytes, kSuperBytes + numerics::kSuperGroups * kSubBytes);
  VectorType floats = b.vec(lanes, b.f32());
  Value super = b.div(b.index(group), numerics::kSuperGroups);
  Value at = b.add(b.mul(super, kSuperBytes), b.mul(row, 2));
  Value halves =
      b.bitcast(b.loadVector(2 * lanes, scales, {panel, 0, at}), b.vec(lanes, b.getF16Type()));
  Value unit = b.mulf(b.createOrFold<arith::ExtFOp>(floats, halves), b.constant(floats, 0x1p-6));
  Value sub = b.add(b.mul(group, kSubBytes), supers * kSuperBytes);
  Value fields = loadPanelFields(b, kSubBits, lanes, scales, {panel, 0}, sub, row);
  return b.mulf(b.toFloat(fields), unit);
}

Value loadScales(KernelBuilder &b, ScaleFormat format, int64_t lanes, Value scales, Index panel,
                 Index group, Index row) {
  if (format == ScaleFormat::UI6)
    return loadTwoLevelScales(b, lanes, scales, panel, group, row);
  return toF32(b, format, b.loadVector(lanes, scales, {panel, group, row}));
}

Value toF32(KernelBuilder &b, ScaleFormat format, Value loaded) {
  VectorType floats = b.vec(cast<VectorType>(loaded.getType()).getNumElements(), b.f32());
  auto fromBits = [&](int64_t shift) {
    return b.bitcast(b.shl(b.zeroExtend(loaded, b.i32()), shift), floats);
  };
  switch (format) {
  case ScaleFormat::F32:
    return loaded;
  case ScaleFormat::F16:
    return b.createOrFold<arith::ExtFOp>(floats, loaded);
  case ScaleFormat::BF16:
    return fromBits(16);
  case ScaleFormat::F8E4M3FN:
    return decodeF8E4M3FN(b, b.zeroExtend(loaded, b.i32()));
  case ScaleFormat::F8E8M0FNU:
    return fromBits(23);
  case ScaleFormat::UI6:
    break;
  }
  llvm_unreachable("every format is named");
}

Value loadZeroPoints(KernelBuilder &b, int64_t bits, int64_t lanes, Value zeros, Index panel,
                     Index group, Index row) {
  Value fields = loadPanelFields(b, bits, lanes, zeros, {panel, group}, 0, row);
  return b.subi(fields, b.constant(b.vec(lanes, b.i32()), int64_t(1) << (bits - 1)));
}

Value loadZeroPoint(KernelBuilder &b, int64_t bits, Value zeros, Index panel, Index group,
                    Index row) {
  const int64_t upper = numerics::upperBits(static_cast<int>(bits)), lower = bits - upper;
  auto load = [&](int64_t field, int64_t first) -> Value {
    const int64_t width = 4 * field;
    Value byte = b.load(zeros, {panel, group, b.add(first, b.rem(b.index(row), width))});
    Value shift =
        arith::IndexCastUIOp::create(b, b.i32(), b.mul(b.div(b.index(row), width), field));
    Value wide = arith::ExtUIOp::create(b, b.i32(), byte);
    return b.andi(b.createOrFold<arith::ShRUIOp>(wide, shift), (1 << field) - 1);
  };
  Value code = load(upper, 0);
  if (lower)
    code = b.ori(b.shl(code, lower), load(lower, 4 * upper));
  return b.subi(code, b.constant(b.i32(), int64_t(1) << (bits - 1)));
}

} // namespace easyquant::cpu
