//===- WeightParams.cpp - Scales and zero points of weights ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightParams.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {

WeightParams::Values WeightParams::loadScales(Value pointer, int64_t count) {
  Type type = count == 1 ? scaleType() : Type(b.vec(count, scaleType()));
  return b.elements(b.toF32(b.load(pointer, type, /*constant=*/true)));
}

int64_t WeightParams::fieldsOfByte() const { return 8 / numerics::zeroPointBits(bits); }

Value WeightParams::zeroOf(Value word) {
  int64_t mask = (int64_t{1} << numerics::zeroPointBits(bits)) - 1;
  return b.sub(b.andi(word, mask), int64_t{1} << (bits - 1));
}

WeightParams::Values WeightParams::loadZeros(Value zeros, Value index, int64_t count) {
  const int64_t fields = fieldsOfByte();
  const int64_t bytes = divideCeil(count, fields), perByte = count / bytes;
  Value pointer = b.advance(zeros, b.div(index, fields), b.i8());
  Type type = bytes == 1 ? b.i8() : Type(b.vec(bytes, b.i8()));
  Value loaded = b.load(pointer, type, /*constant=*/true);
  Value first = perByte == fields ? b.i32(0) : b.rem(index, fields);
  Values found;
  for (int64_t i = 0; i < count; ++i) {
    Value byte = arith::ExtUIOp::create(b, b.i32(), b.extract(loaded, i / perByte));
    Value bit = b.mul(b.add(first, i % perByte), numerics::zeroPointBits(bits));
    found.push_back(zeroOf(b.shr(byte, bit)));
  }
  return found;
}

WeightParams::Values WeightParams::loadZeroWords(Value zeros, Value index, Value row,
                                                 int64_t count) {
  Values words;
  if (fieldsOfByte() == 1) {
    Value pointer = b.advance(zeros, b.add(index, row), b.i8());
    for (int64_t i = 0; i < count; ++i) {
      Value byte = b.load(b.advance(pointer, 8 * i, b.i8()), b.i8(), /*constant=*/true);
      words.push_back(arith::ExtUIOp::create(b, b.i32(), byte));
    }
    return words;
  }
  constexpr int64_t kWidest = 4; // words of a load
  Value pointer = b.advance(zeros, b.div(index, fieldsOfByte()), b.i8());
  const int64_t whole = 8 * count / (4 * fieldsOfByte());
  for (int64_t first = 0; first < whole; first += kWidest) {
    VectorType type = b.vec(std::min(kWidest, whole - first), b.i32());
    Value loaded = b.load(b.advance(pointer, first, b.i32()), type, /*constant=*/true);
    llvm::append_range(words, b.elements(loaded));
  }
  return words;
}

WeightParams::Values WeightParams::zerosOf(ValueRange words, Value row, int64_t count) {
  const int64_t perWord = count / std::ssize(words), width = numerics::zeroPointBits(bits);
  Values found;
  for (Value word : words) {
    Value mine = fieldsOfByte() == 1 ? word : b.shr(word, b.mul(row, width));
    for (int64_t i = 0; i < perWord; ++i)
      found.push_back(zeroOf(i == 0 ? mine : b.shr(mine, 8 * width * i)));
  }
  return found;
}

} // namespace easyquant::gpu
