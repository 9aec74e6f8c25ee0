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

/// The same 16 bits in both halves of a word.
static int32_t twice(int64_t half) {
  return static_cast<int32_t>(static_cast<uint32_t>(half << 16 | half));
}
/// The same byte in all four of a word.
static int32_t fourTimes(int64_t byte) {
  return static_cast<int32_t>(static_cast<uint32_t>(0x01010101 * byte));
}

//===- Blocks -------------------------------------------------------------===//

int64_t PackedBlocks::words() const {
  return 4 + (numerics::highPlaneBits(bits) ? numerics::highPlaneWords(bits) : 0);
}

PackedBlocks::Values PackedBlocks::load(Value pointer, Value lane, bool constant, Value valid) {
  Values words;
  auto part = [&](int64_t offset, int64_t count) {
    Type type = count == 1 ? b.i32() : Type(b.vec(count, b.i32()));
    Value loaded = b.guarded(valid, b.zero(type), [&] {
      Value mine = b.advance(pointer, b.mul(lane, 4 * count), b.i8());
      return b.load(b.advance(mine, offset, b.i8()), type, constant);
    });
    llvm::append_range(words, b.elements(loaded));
  };
  part(0, 4);
  if (const int64_t more = this->words() - 4)
    part(numerics::kFragmentBytes, more);
  return words;
}

PackedBlocks::Values PackedBlocks::loadTable(Value codebook) {
  Values values;
  constexpr int64_t kWords = 4; // of a load; every table is a multiple
  for (int64_t i = 0; i < int64_t{1} << bits; i += kWords)
    llvm::append_range(values, b.elements(b.load(b.advance(codebook, i, b.f32()),
                                                 b.vec(kWords, b.f32()), /*constant=*/true)));
  return values;
}

PackedBlocks::Selectors PackedBlocks::selectorsOf(Value nibbles, bool hasUpperHalf) {
  Selectors selectors;
  Value indices = hasUpperHalf ? b.andi(nibbles, 0x77777777) : nibbles;
  selectors.indices = {indices, b.shr(indices, 16)};
  if (hasUpperHalf) {
    Value bits = b.andi(b.shr(nibbles, 1), 0x44444444), upper = b.ori(bits, 0x32103210);
    selectors.upper = {upper, b.shr(upper, 16)};
  }
  return selectors;
}

Value ByteTable::lookUp(KernelBuilder &b, Value indices, Value upper) const {
  Value found = b.permute(words[0], words[words.size() > 1 ? 1 : 0], indices);
  return hasUpperHalf() ? b.permute(found, b.permute(words[2], words[3], indices), upper) : found;
}

//===- Bytes --------------------------------------------------------------===//

void UnpackedBytes::prepare(const KernelArguments &arguments) {
  if (!codec.isTable())
    return;
  Values values = loadTable(arguments["codebook"]), words;
  for (size_t i = 0; i < values.size(); i += 4) {
    Values bytes;
    for (Value value : ArrayRef(values).slice(i, 4)) {
      Value units = b.mulf(value, b.constant(b.f32(), 1 / static_cast<double>(codec.unit)));
      bytes.push_back(
          arith::TruncIOp::create(b, b.i8(), arith::FPToSIOp::create(b, b.i32(), units)));
    }
    words.push_back(b.bitcast(b.join(bytes), b.i32()));
  }
  table = ByteTable(words);
}

/// The field of `count` bits from bit `bit` on of each byte, its last bit at bit `to`.
static Value fieldOfBytes(KernelBuilder &b, Value word, int64_t bit, int64_t count, int64_t to) {
  Value moved = bit == to ? word : bit < to ? b.shl(word, to - bit) : b.shr(word, bit - to);
  return b.andi(moved, fourTimes(((1 << count) - 1) << to));
}

std::array<Value, 2> UnpackedBytes::unpackField(ArrayRef<Value> words, int64_t tile) {
  const int low = numerics::lowPlaneBits(bits), upper = numerics::highPlaneBits(bits);
  std::array<Value, 2> registers;
  for (int64_t half = 0; half < 2; ++half) {
    const int64_t bit = low * (2 * (tile / 4) + half);
    Value field = fieldOfBytes(b, words[tile % 4], bit, low, 8 - bits);
    if (upper) {
      const int64_t tiles = numerics::highPlaneTiles(bits);
      Value above = fieldOfBytes(b, words[4 + tile / tiles], upper * (2 * (tile % tiles) + half),
                                 upper, 8 - upper);
      field = b.ori(field, above);
    }
    registers[half] = field;
  }
  return registers;
}

std::array<Value, 2> UnpackedBytes::unpackIndex(ArrayRef<Value> words, int64_t tile) {
  // Nibbles: byte i of a word has columns i and 16 + i.
  Value nibbles = words[tile % 4];
  if (bits < 4) {
    Value pair = b.andi(b.shr(nibbles, 4 * (tile / 4)), 0x0f0f0f0f);
    nibbles = b.andi(b.ori(pair, b.shl(pair, 2)), 0x33333333);
  }
  if (bits == 3) {
    const int64_t tiles = numerics::highPlaneTiles(bits);
    Value pair = b.andi(b.shr(words[4 + tile / tiles], 2 * (tile % tiles)), 0x03030303);
    Value third = b.andi(b.ori(pair, b.shl(pair, 3)), 0x11111111);
    nibbles = b.ori(nibbles, b.shl(third, 2));
  }
  Selectors selectors = selectorsOf(nibbles, table.hasUpperHalf());
  std::array<Value, 2> pairs; // of bytes: columns 0 and 1, and 2 and 3
  for (int64_t i = 0; i < 2; ++i)
    pairs[i] = table.lookUp(b, selectors.indices[i], selectors.upper[i]);
  return {b.permute(pairs[0], pairs[1], 0x6420), b.permute(pairs[0], pairs[1], 0x7531)};
}

std::array<Value, 2> UnpackedBytes::ones(Value first, Value lane, int64_t k) {
  const int32_t all = fourTimes(1);
  if (!codec.isTable() || k % numerics::kFragmentColumns == 0)
    return {b.i32(all), b.i32(all)};
  std::array<Value, 2> halves;
  for (int64_t half = 0; half < 2; ++half) {
    // The lane's four columns; there are left of them so many.
    Value column = b.add(b.add(first, 16 * half), b.mul(b.rem(lane, 4), 4));
    Value left = b.max(b.min(b.sub(k, column), 4), 0);
    // Two shifts, as one of 32 bits is none.
    Value half16 = b.mul(b.sub(4, left), 4);
    halves[half] = b.shr(b.shr(b.i32(all), half16), half16);
  }
  return halves;
}

SmallVector<std::array<Value, 2>> UnpackedBytes::unpack(ArrayRef<Value> words) {
  if (bits == 8)
    return {{words[0], words[1]}, {words[2], words[3]}};
  SmallVector<std::array<Value, 2>> tiles;
  for (int64_t tile = 0; tile < numerics::fragmentRows(bits) / 8; ++tile)
    tiles.push_back(codec.isTable() ? unpackIndex(words, tile) : unpackField(words, tile));
  return tiles;
}

//===- Floats -------------------------------------------------------------===//

void UnpackedWeights::prepare(const KernelArguments &arguments) {
  if (!codec.isTable())
    return;
  Values values = loadTable(arguments["codebook"]), lows, highs;
  auto pairOf = [&](size_t i) {
    return b.bitcast(b.fromF32(b.join({values[i], values[i + 1]}), type), b.i32());
  };
  for (size_t i = 0; i < values.size(); i += 4) {
    Value first = pairOf(i), second = pairOf(i + 2);
    lows.push_back(b.permute(first, second, 0x6420));
    highs.push_back(b.permute(first, second, 0x7531));
  }
  low = ByteTable(lows);
  high = ByteTable(highs);
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

UnpackedWeights::Tile UnpackedWeights::unpackTile(ValueRange words, int64_t tile,
                                                  ArrayRef<Value> zeros) {
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    int64_t bit = 8 * (tile / 4) + bits * r, shift = 0;
    if (bit + bits > mantissa())
      shift = bit % 8 + bits <= mantissa() ? bit / 8 * 8 : bit;
    int64_t at = bit - shift;
    Value word = words[tile % 4];
    Value moved = shift == 0 ? word : b.shr(word, shift);
    Value field = b.maskXor(moved, twice(((1 << bits) - 1) << at), magic(at));
    registers[r] = fromField(field, at, zeros[r / 2]);
  }
  return registers;
}

UnpackedWeights::Tile UnpackedWeights::unpackPlanes(ValueRange words, int64_t tile,
                                                    ArrayRef<Value> zeros) {
  const int64_t count = numerics::lowPlaneBits(bits), upper = numerics::highPlaneBits(bits);
  Value low = words[tile % 4], high = words[4 + tile / numerics::highPlaneTiles(bits)];
  const int64_t turn = numerics::fragmentTurn(bits, tile), rest = 8 * (tile / 4);
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    // With the upper bits right above the low ones, as far down as both have to be.
    int64_t at = count * r, shift = 0;
    if (at + bits > mantissa())
      shift = at % 8 + bits <= mantissa() ? at / 8 * 8 : at;
    at -= shift;
    const int64_t turned = (turn + shift) % 32;
    Value lowest = rest + shift == 0 ? low : b.shr(low, rest + shift);
    Value above = turned == 0 ? high : b.turnRight(high, turned);
    Value field = b.maskXor(above, twice(((1 << upper) - 1) << (at + count)), magic(at));
    registers[r] =
        fromField(b.maskXor(lowest, twice(((1 << count) - 1) << at), field), at, zeros[r / 2]);
  }
  return registers;
}

UnpackedWeights::Tile UnpackedWeights::unpackBytes(Value first, Value second,
                                                   ArrayRef<Value> zeros) {
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    Value word = r < 2 ? first : second, zero = zeros[r / 2];
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

Value UnpackedWeights::fromFloat(Value top) {
  // The sign, and below the exponent's first bits, which are 0, its others and the mantissa.
  const bool isFP8 = codec.codes == CodeFormat::F8E4M3FN;
  const int64_t mantissaBits = isFP8 ? 3 : 1;
  const int64_t moved = 15 - (bits - 1) + mantissaBits; // where the exponent begins, in `top`
  const int64_t down = moved - mantissa();
  const int64_t field = ((int64_t{1} << (bits - 1)) - 1) << (15 - (bits - 1) - down);
  Value magnitude = b.andi(b.shr(top, down), twice(field));
  Value signs = b.andi(top, twice(0x8000));
  const int bias = type == Float::F16 ? 15 : 127, own = isFP8 ? 7 : 1;
  return b.pairFma(type, b.ori(signs, magnitude), b.pair(type, std::ldexp(1.0, bias - own)),
                   b.pair(type, 0.0));
}

Value UnpackedWeights::pairOfBytes(Value word, int64_t half) {
  return fromFloat(b.permute(word, b.i32(0), half == 0 ? 0x1404 : 0x3424));
}

UnpackedWeights::Tile UnpackedWeights::unpackFloats(ValueRange words, int64_t tile) {
  Tile registers;
  for (int64_t r = 0; r < 4; ++r) {
    if (bits == 8)
      registers[r] = pairOfBytes(words[2 * tile + r / 2], r % 2);
    else
      registers[r] = fromFloat(r == 3 ? words[tile] : b.shl(words[tile], 12 - 4 * r));
  }
  return registers;
}

UnpackedWeights::Tile UnpackedWeights::unpackIndices(ValueRange words, int64_t tile) {
  // Nibbles: those of half i of a word are registers r = 0 .. 3.
  Value nibbles = words[tile % 4];
  auto spread = [&](Value bytes) { // four fields of two bits to nibbles
    Value pairs = b.andi(b.ori(bytes, b.shl(bytes, 4)), 0x0f0f0f0f);
    return b.andi(b.ori(pairs, b.shl(pairs, 2)), 0x33333333);
  };
  if (bits < 4)
    nibbles = spread(b.andi(b.shr(nibbles, 8 * (tile / 4)), 0x00ff00ff));
  if (bits == 3) {
    Value high = words[4 + tile / numerics::highPlaneTiles(bits)];
    // Turned so far that the bits are where the low ones begin.
    const int64_t turn = (numerics::fragmentTurn(bits, tile) + numerics::lowPlaneBits(bits)) % 32;
    Value third = spread(b.andi(b.turnRight(high, turn), 0x00550055));
    nibbles = b.ori(nibbles, b.shl(third, 2));
  }
  Selectors selectors = selectorsOf(nibbles, low.hasUpperHalf());
  // Each half has the pairs of bytes that are the values of two registers.
  std::array<Values, 2> values;
  for (int64_t i = 0; i < 2; ++i) {
    Value lows = low.lookUp(b, selectors.indices[i], selectors.upper[i]);
    Value highs = high.lookUp(b, selectors.indices[i], selectors.upper[i]);
    values[i] = {b.permute(lows, highs, 0x5140), b.permute(lows, highs, 0x7362)};
  }
  Tile registers;
  for (int64_t r = 0; r < 4; ++r)
    registers[r] = b.permute(values[0][r / 2], values[1][r / 2], r % 2 == 0 ? 0x5410 : 0x7632);
  return registers;
}

SmallVector<UnpackedWeights::Tile> UnpackedWeights::unpack(ValueRange words,
                                                           std::array<ValueRange, 2> zeros) {
  SmallVector<Tile> tiles;
  Value lowest = codec.minima ? b.pair(type, -std::ldexp(1.0, bits - 1)) : Value();
  for (int64_t tile = 0; tile < numerics::fragmentRows(bits) / 8; ++tile) {
    std::array<Value, 2> zero = {lowest, lowest};
    for (int64_t step = 0; step < 2; ++step)
      if (!zeros[step].empty())
        zero[step] = zeros[step][tile];
    if (bits == 16)
      tiles.push_back({words[0], words[1], words[2], words[3]});
    else if (codec.isTable())
      tiles.push_back(unpackIndices(words, tile));
    else if (codec.codes != CodeFormat::Integer)
      tiles.push_back(unpackFloats(words, tile));
    else if (bits == 8)
      tiles.push_back(unpackBytes(words[2 * tile], words[2 * tile + 1], zero));
    else if (numerics::highPlaneBits(bits))
      tiles.push_back(unpackPlanes(words, tile, zero));
    else
      tiles.push_back(unpackTile(words, tile, zero));
  }
  return tiles;
}

} // namespace easyquant::gpu
