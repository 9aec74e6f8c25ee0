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
  auto type = cast<VectorType>(bytes.getType());
  return b.bitcast(b.shrLogical(words(bytes), amount), type);
}

Value PackedBlock::upperBits(int64_t half, int64_t v, int64_t low) {
  bool isWide = bitsOf(format) - lowWidth() == 4;
  Value plane = isWide ? packed[v] : pairs(packed, v);
  int64_t bit = isWide ? 4 * half : pairBit(half, v);
  if (bit >= low)
    return shiftBytes(plane, bit - low);
  return b.bitcast(b.shl(words(plane), low - bit), b.vec(4 * lanes, b.i8()));
}

Value PackedBlock::lowBits(int64_t half, int64_t v) {
  if (lowWidth() == 2)
    return shiftBytes(pairs(lowPairs, v), pairBit(half, v));
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
  if (format == WeightFormat::I8)
    return packed[v];
  const int64_t low = lowWidth(), all = (int64_t(1) << bitsOf(format)) - 1;
  const int64_t lowMask = (int64_t(1) << low) - 1;
  Value upper = b.andi(upperBits(half, v, low), all & ~lowMask);
  return low ? b.ori(upper, b.andi(lowBits(half, v), lowMask)) : upper;
}

void PackedBlock::loadCodes(int64_t half) {
  if (half == 0 || format == WeightFormat::I8)
    load(half);
  else if (lowWidth() == 0)
    return; // both steps are in the same words
  // Flipping the sign bits of stored codes gives two's complement.
  if (isInteger() && !looksUp() &&
      (format == WeightFormat::I8 || (half == 0 && bitsOf(format) >= 4)))
    for (Value &plane : packed)
      plane = b.xori(plane, format == WeightFormat::I8 ? 0x80 : 0x88);
  fields.clear();
  for (int64_t v = 0; v < vectors(); ++v)
    switch (format) {
    case WeightFormat::I8:
    case WeightFormat::I4:
      fields.push_back(words(packed[v]));
      break;
    case WeightFormat::I6:
    case WeightFormat::I5: {
      // What is above the code is shifted out when it is taken.
      const int64_t lowMask = (int64_t(1) << lowWidth()) - 1;
      Value upper = b.andi(upperBits(half, v, lowWidth()), 0xff & ~lowMask);
      fields.push_back(words(b.ori(upper, b.andi(lowBits(half, v), lowMask))));
      break;
    }
    case WeightFormat::I3:
      fields.push_back(words(bytes(half, v)));
      break;
    default:
      fields.push_back(words(pairs(packed, v)));
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
    code = looksUp() ? lookup(bit + 4 * half, 4)
                     : b.toFloat(signedField(b, fields[v], bit + 4 * half, 4));
    break;
  case WeightFormat::I6:
  case WeightFormat::I5:
    code = b.toFloat(signedField(b, fields[v], bit, bitsOf(format)));
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
