//===- PackedBlock.cpp - Packed weights in registers ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Codes of two and three bits, and all that are no integers but f8E4M3FN, become floats by table: a
// permutation reads only the low bits of its index, so that neither a mask nor a conversion is left
// to do.
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

void PackedBlock::load(int64_t half) {
  if (format == WeightFormat::I8)
    packed = loadBytes(half * 128, vectors(), 4 * lanes);
  else if (half == 0 && format == WeightFormat::I4)
    packed = loadBytes(0, vectors(), 4 * lanes);
  else if (half == 0)
    packed = loadBytes(0, vectors() / 2, 4 * lanes);
  if (half == 0 && format == WeightFormat::I3)
    lowPlane = loadBytes(64, 1, 32)[0];
}

Value PackedBlock::shiftBytes(Value bytes, int64_t amount) {
  if (amount == 0)
    return bytes;
  auto type = cast<VectorType>(bytes.getType());
  return b.bitcast(b.shrLogical(words(bytes), amount), type);
}

Value PackedBlock::lowBits(int64_t half, int64_t v) {
  if (lanes == 8)
    return shiftBytes(lowPlane, 2 * v + half);
  // The rows of the two halves of a wide vector have their bits in different places.
  SmallVector<int64_t> twice(64);
  SmallVector<int32_t> amounts(16);
  for (int64_t i = 0; i < 64; ++i)
    twice[i] = i % 32;
  for (int64_t i = 0; i < 16; ++i)
    amounts[i] = static_cast<int32_t>(4 * v + 2 * (i / 8) + half);
  Value both = b.shuffle(lowPlane, lowPlane, twice);
  Value shifts =
      arith::ConstantOp::create(b, DenseElementsAttr::get(b.vec(16, b.i32()), ArrayRef(amounts)));
  return b.bitcast(b.createOrFold<arith::ShRUIOp>(words(both), shifts), b.vec(64, b.i8()));
}

Value PackedBlock::bytes(int64_t half, int64_t v) {
  switch (format) {
  case WeightFormat::I8:
    return packed[v];
  case WeightFormat::I4:
    return b.andi(shiftBytes(packed[v], 4 * half), 15);
  case WeightFormat::I2:
    return b.andi(shiftBytes(pairs(v), pairBit(half, v)), 3);
  case WeightFormat::I3: {
    int64_t bit = pairBit(half, v);
    Value upper = bit ? shiftBytes(pairs(v), bit - 1)
                      : b.bitcast(b.shl(words(pairs(v)), 1), b.vec(4 * lanes, b.i8()));
    return b.ori(b.andi(upper, 6), b.andi(lowBits(half, v), 1));
  }
  case WeightFormat::F32:
    break;
  }
  llvm_unreachable("floats are not packed");
}

void PackedBlock::loadCodes(int64_t half) {
  if (half == 0 || format == WeightFormat::I8)
    load(half);
  else if (format != WeightFormat::I3)
    return; // both steps are in the same words
  fields.clear();
  for (int64_t v = 0; v < vectors(); ++v)
    switch (format) {
    case WeightFormat::I8:
      fields.push_back(words(isInteger() ? b.xori(packed[v], 0x80) : packed[v]));
      break;
    case WeightFormat::I4:
      fields.push_back(words(isInteger() ? b.xori(packed[v], 0x88) : packed[v]));
      break;
    case WeightFormat::I3:
      fields.push_back(words(bytes(half, v)));
      break;
    default:
      fields.push_back(words(pairs(v)));
    }
}

/// The signed field of `bits` bits from bit `bit` on.
static Value signedField(KernelBuilder &b, Value words, int64_t bit, int64_t bits) {
  Value top = bit + bits == 32 ? words : b.shl(words, 32 - bits - bit);
  return b.shrArithmetic(top, 32 - bits);
}

SmallVector<float> valuesOfFields(const WeightNumbers &numbers, int64_t bits) {
  SmallVector<float> table;
  if (numbers.table)
    table.append(numbers.table->values().begin(), numbers.table->values().end());
  for (int64_t field = 0; !numbers.table && field < int64_t(1) << bits; ++field)
    table.push_back(numbers.codes == CodeFormat::F4E2M1FN
                        ? numerics::decodeF4E2M1FN(static_cast<uint8_t>(field))
                        : static_cast<float>(field - (int64_t(1) << (bits - 1))));
  return table;
}

Value PackedBlock::code(int64_t column, int64_t v, ArrayRef<Value> zeros) {
  int64_t half = column / 4, bit = column % 4 * 8;
  auto lookup = [&](int64_t shift, int64_t bits) {
    Value index = shift ? b.shrLogical(fields[v], shift) : fields[v];
    return b.lookup(valuesOfFields(numbers, bits), index);
  };
  Value code;
  switch (format) {
  case WeightFormat::I8:
    code = isInteger() ? b.toFloat(signedField(b, fields[v], bit, 8))
                       : decodeF8E4M3FN(b, bit ? b.shrLogical(fields[v], bit) : fields[v]);
    break;
  case WeightFormat::I4:
    code = isInteger() ? b.toFloat(signedField(b, fields[v], bit + 4 * half, 4))
                       : lookup(bit + 4 * half, 4);
    break;
  case WeightFormat::I3:
    code = lookup(bit, 3);
    break;
  case WeightFormat::I2:
    code = lookup(bit + pairBit(half, v), 2);
    break;
  case WeightFormat::F32:
    llvm_unreachable("floats are not packed");
  }
  return zeros.empty() ? code : b.subf(code, zeros[v]);
}

} // namespace easyquant::cpu
