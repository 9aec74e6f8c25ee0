//===- PackedBlock.cpp - Packed weights in registers ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Codes of two and three bits, and all that are no integers but f8E4M3FN, become floats by table: a
// permutation reads only the low bits of its index, so that neither a mask nor a conversion is left
// to do. Other integers become mantissas: in a word with the right exponent a field is a float,
// 2^e + code, wherever it lies, so that it need not be shifted down, and the subtraction that takes
// 2^e away takes the zero point with it. All of that is exact.
//
//===----------------------------------------------------------------------===//

#include "PackedBlock.h"

#include "WeightParams.h"

using namespace mlir;

namespace easyquant::cpu {

SmallVector<Value> PackedBlock::loadBytes(int64_t first, int64_t count, int64_t width) {
  SmallVector<Value> vectors;
  for (int64_t i = 0; i < count; ++i)
    vectors.push_back(b.loadVector(width, panels, {panel, b.add(offset, first + i * width)}));
  return vectors;
}

int64_t PackedBlock::lowWidth() const {
  switch (format) {
  case WeightFormat::I3:
  case WeightFormat::I5:
    return 1;
  case WeightFormat::I6:
    return 2;
  default:
    return 0;
  }
}

void PackedBlock::load(int64_t half) {
  const int64_t width = 4 * lanes;
  if (format == WeightFormat::I8)
    packed = loadBytes(half * 128, vectors(), width);
  if (half != 0 || format == WeightFormat::I8)
    return;
  const int64_t upper = bitsOf(format) - lowWidth(), next = kPanelRows * upper;
  packed = loadBytes(0, upper == 4 ? vectors() : vectors() / 2, width);
  if (lowWidth() == 2)
    lowPairs = loadBytes(next, vectors() / 2, width);
  if (lowWidth() == 1)
    lowPlane = loadBytes(next, 1, 32)[0];
}

Value PackedBlock::shiftBytes(Value bytes, int64_t amount) {
  if (amount == 0)
    return bytes;
  Value moved = amount > 0 ? b.shl(words(bytes), amount) : b.shrLogical(words(bytes), -amount);
  return b.bitcast(moved, cast<VectorType>(bytes.getType()));
}

Value PackedBlock::upperBits(int64_t half, int64_t v, int64_t to) {
  bool isWide = bitsOf(format) - lowWidth() == 4;
  return shiftBytes(isWide ? packed[v] : pairs(packed, v),
                    to - (isWide ? 4 * half : pairBit(half, v)));
}

Value PackedBlock::lowBits(int64_t half, int64_t v, int64_t to) {
  if (lowWidth() == 2)
    return shiftBytes(pairs(lowPairs, v), to - pairBit(half, v));
  if (lanes == 8)
    return shiftBytes(lowPlane, to - (2 * v + half));
  // The rows of the two halves of a wide vector have their bits in different places, all of them at
  // or above `to`, or all at or below.
  SmallVector<int64_t> twice(64);
  SmallVector<int32_t> amounts(16);
  for (int64_t i = 0; i < 64; ++i)
    twice[i] = i % 32;
  for (int64_t i = 0; i < 16; ++i)
    amounts[i] = std::abs(static_cast<int32_t>(4 * v + 2 * (i / 8) + half - to));
  Value both = words(b.shuffle(lowPlane, lowPlane, twice));
  Value shifts =
      arith::ConstantOp::create(b, DenseElementsAttr::get(b.vec(16, b.i32()), ArrayRef(amounts)));
  const bool isAbove = 4 * v + half >= to;
  return b.bitcast(isAbove ? b.createOrFold<arith::ShRUIOp>(both, shifts)
                           : b.createOrFold<arith::ShLIOp>(both, shifts),
                   b.vec(64, b.i8()));
}

Value PackedBlock::bytes(int64_t half, int64_t v) {
  Value fields = fieldBytes(half, v);
  return codebook ? b.lookupBytes(codebook, fields) : fields;
}

Value PackedBlock::fieldBytes(int64_t half, int64_t v) {
  if (format == WeightFormat::I8)
    return packed[v];
  const int64_t low = lowWidth(), all = (int64_t(1) << bitsOf(format)) - 1;
  const int64_t lowMask = (int64_t(1) << low) - 1;
  Value upper = b.andi(upperBits(half, v, low), all & ~lowMask);
  return low ? b.ori(upper, b.andi(lowBits(half, v, 0), lowMask)) : upper;
}

void PackedBlock::joinFields(int64_t half) {
  // In the first half the upper bits move up, in the second the lower ones, which saves a shift.
  const int64_t low = lowWidth();
  fieldBit = half ? 4 - low : 0;
  const int64_t place = ((int64_t(1) << low) - 1) << fieldBit;
  for (int64_t v = 0; v < vectors(); ++v) {
    Value upper = b.andi(upperBits(half, v, fieldBit + low), 0xff & ~place);
    fields.push_back(words(b.ori(upper, b.andi(lowBits(half, v, fieldBit), place))));
  }
}

void PackedBlock::loadCodes(int64_t half) {
  if (half == 0 || format == WeightFormat::I8)
    load(half);
  fields.clear();
  fieldBit = format == WeightFormat::I4 ? 4 * half : 0;
  switch (format) {
  case WeightFormat::I8:
  case WeightFormat::I4:
    for (Value vector : packed)
      fields.push_back(words(vector));
    break;
  case WeightFormat::I6:
  case WeightFormat::I5:
    joinFields(half);
    break;
  case WeightFormat::I3:
    for (int64_t v = 0; v < vectors(); ++v)
      fields.push_back(words(fieldBytes(half, v)));
    break;
  case WeightFormat::I2:
    for (int64_t v = 0; v < vectors(); ++v)
      fields.push_back(words(pairs(packed, v)));
    break;
  case WeightFormat::F32:
    llvm_unreachable("floats are not packed");
  }
}

/// Bits of an f32 behind its exponent.
static constexpr int64_t kMantissaBits = 23;

Value PackedBlock::integer(int64_t column, int64_t v, ArrayRef<Value> zeros) {
  // Few positions, for each has constants: those of the lower two columns.
  const int64_t bits = bitsOf(format), bit = column % 2 * 8 + fieldBit;
  Value field = column % 4 < 2 ? fields[v] : b.shrLogical(fields[v], 16);
  // As a mantissa of this exponent the lowest bit of the field stands for 1.
  const int64_t exponent = kMantissaBits - bit;
  VectorType type = b.vec(lanes, b.i32()), floats = b.vec(lanes, b.f32());
  Value mantissa = b.andi(field, ((int64_t(1) << bits) - 1) << bit);
  Value sum = b.ori(mantissa, b.constant(type, (exponent + 127) << kMantissaBits));
  // Stored codes are above their values.
  const int64_t above = (int64_t(1) << exponent) + (int64_t(1) << (bits - 1));
  Value excess = b.constant(floats, static_cast<double>(above));
  return b.subf(b.bitcast(sum, floats), zeros.empty() ? excess : b.addf(zeros[v], excess));
}

static Value valuesOfFields(KernelBuilder &b, CodeFormat codes, int64_t bits) {
  const numerics::FloatFormat *floats = numerics::floatFormat(codes);
  SmallVector<float> values;
  for (int64_t field = 0; field < int64_t(1) << bits; ++field)
    values.push_back(floats ? floats->decode(static_cast<uint8_t>(field))
                            : static_cast<float>(field - (int64_t(1) << (bits - 1))));
  return b.floats(values);
}

Value valueOf(KernelBuilder &b, CodeFormat codes, int64_t bits, Value codebook, Value fields) {
  if (codes == CodeFormat::F8E4M3FN)
    return decodeF8E4M3FN(b, fields);
  return b.lookup(codebook ? codebook : valuesOfFields(b, codes, bits), fields);
}

Value PackedBlock::code(int64_t column, int64_t v, ArrayRef<Value> zeros) {
  const int64_t half = column / 4, bit = column % 4 * 8;
  if (isInteger() && bitsOf(format) >= 4)
    return integer(column, v, zeros);
  auto fieldAt = [&](int64_t shift) { return shift ? b.shrLogical(fields[v], shift) : fields[v]; };
  const int64_t bits = bitsOf(format);
  Value field = fieldAt(bit + (bits == 2 ? pairBit(half, v) : fieldBit));
  Value code = valueOf(b, codes, bits, codebook, field);
  return zeros.empty() ? code : b.subf(code, zeros[v]);
}

} // namespace easyquant::cpu
