//===- UnpackedWeights.cpp - Packed weights in registers ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "UnpackedWeights.h"

#include "easyquant/Numerics/FragmentPacking.h"

using namespace mlir;

namespace easyquant::gpu {

SmallVector<std::array<Value, 2>> unpackBytes(KernelBuilder &b, int bits, ArrayRef<Value> words) {
  SmallVector<std::array<Value, 2>> tiles;
  if (bits == 8)
    return {{words[0], words[1]}, {words[2], words[3]}};
  // The field from bit `bit` on of each byte, at the top of the byte.
  int64_t top = 0x01010101 * int64_t((0xff << (8 - bits)) & 0xff);
  auto field = [&](Value word, int64_t bit) {
    Value moved = bit + bits == 8 ? word : b.shl(word, 8 - bits - bit);
    return b.andi(moved, static_cast<int32_t>(top));
  };
  for (int64_t bit = 0; bit < 8; bit += 2 * bits)
    for (Value word : words)
      tiles.push_back({field(word, bit), field(word, bit + bits)});
  return tiles;
}

/// The same 16 bits in both halves of a word.
static int32_t twice(int64_t half) {
  return static_cast<int32_t>(static_cast<uint32_t>(half << 16 | half));
}

UnpackedWeights::Values UnpackedWeights::load(Value pointer, Value lane, bool constant,
                                              Value valid) {
  Values words;
  auto part = [&](int64_t offset, int64_t count) {
    VectorType type = b.vec(count, b.i32());
    Value loaded = b.guarded(valid, b.zero(type), [&] {
      Value mine = b.advance(pointer, b.mul(lane, 4 * count), b.i8());
      return b.load(b.advance(mine, offset, b.i8()), type, constant);
    });
    llvm::append_range(words, b.elements(loaded));
  };
  part(0, 4);
  if (bits == 3)
    part(numerics::kFragmentBytes, 2);
  return words;
}

Value UnpackedWeights::zeroPair(Value zero) { return b.pair(b.fromF32(b.toFloat(zero), type)); }

Value UnpackedWeights::subtract(Value x, Value y) {
  return b.pairFma(type, y, b.pair(type, -1.0), x);
}

int64_t UnpackedWeights::magic(int64_t at) const {
  // 2^m has the exponent m + bias, whose bits begin at bit m.
  int64_t exponentBias = type == Float::F16 ? 15 : 127;
  return twice((mantissa() + exponentBias) << mantissa() | int64_t{1} << (bits - 1 + at));
}

Value UnpackedWeights::fromField(Value field, int64_t at, Value zero) {
  double unit = std::ldexp(1.0, static_cast<int>(at));
  double offset = std::ldexp(1.0, static_cast<int>(mantissa())) / unit + std::ldexp(1.0, bits - 1);
  Value minus = b.pair(type, -offset);
  // The difference is the same all through a group. With fewer bits there are many different ones,
  // which take too many registers.
  bool folds = zero && bits == 4;
  if (folds)
    minus = subtract(minus, zero);
  Value code = b.pairFma(type, field, b.pair(type, 1.0 / unit), minus);
  return zero && !folds ? subtract(code, zero) : code;
}

UnpackedWeights::Tile UnpackedWeights::unpackTile(ValueRange words, int64_t tile, Value zero) {
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    int64_t bit = 8 * (tile / 4) + bits * r, shift = 0;
    if (bit + bits > mantissa())
      shift = bit % 8 + bits <= mantissa() ? bit / 8 * 8 : bit;
    int64_t at = bit - shift;
    Value word = words[tile % 4];
    Value moved = shift == 0 ? word : b.shr(word, shift);
    Value field = b.maskXor(moved, twice(((1 << bits) - 1) << at), magic(at));
    registers[r] = fromField(field, at, zero);
  }
  return registers;
}

UnpackedWeights::Tile UnpackedWeights::unpackThree(ValueRange words, int64_t tile, Value zero) {
  constexpr int64_t kTurns[] = {0, 1, 8, 9};
  Value low = words[tile % 4], high = words[4 + tile / 4];
  if (tile >= 4)
    low = b.shr(low, 8);
  if (int64_t turn = kTurns[tile % 4])
    high = b.turnRight(high, turn);
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    int64_t at = 2 * r;
    Value lowest = low, third = high;
    if (at + bits > mantissa()) {
      lowest = b.shr(low, at);
      third = b.shr(high, at);
      at = 0;
    }
    Value upper = b.maskXor(third, twice(4 << at), magic(at));
    registers[r] = fromField(b.maskXor(lowest, twice(3 << at), upper), at, zero);
  }
  return registers;
}

UnpackedWeights::Tile UnpackedWeights::unpackBytes(Value first, Value second, Value zero) {
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    Value word = r < 2 ? first : second;
    // Bytes 2(r mod 2) and the next as the low bytes of two floats.
    int64_t selector = r % 2 == 0 ? 0x4140 : 0x4342;
    if (type == Float::F16) {
      Value raw = b.permute(b.xori(word, twice(0x8080)), b.i32(twice(0x6464)), selector);
      Value minus = b.pair(type, -(1024.0 + 128.0));
      if (zero)
        minus = subtract(minus, zero);
      registers[r] = b.pairFma(type, raw, b.pair(type, 1.0), minus);
      continue;
    }
    Value raw = b.permute(word, b.i32(twice(0x4343)), selector);
    Value code = subtract(b.andi(raw, twice(0x437f)), b.andi(raw, twice(0x4380)));
    registers[r] = zero ? subtract(code, zero) : code;
  }
  return registers;
}

SmallVector<UnpackedWeights::Tile> UnpackedWeights::unpack(ValueRange words, ValueRange zeros) {
  SmallVector<Tile> tiles;
  for (int64_t tile = 0; tile < numerics::fragmentRows(bits) / 8; ++tile) {
    Value zero = zeros.empty() ? Value() : zeros[tile];
    if (bits == 16)
      tiles.push_back({words[0], words[1], words[2], words[3]});
    else if (bits == 8)
      tiles.push_back(unpackBytes(words[2 * tile], words[2 * tile + 1], zero));
    else if (bits == 3)
      tiles.push_back(unpackThree(words, tile, zero));
    else
      tiles.push_back(unpackTile(words, tile, zero));
  }
  return tiles;
}

} // namespace easyquant::gpu
