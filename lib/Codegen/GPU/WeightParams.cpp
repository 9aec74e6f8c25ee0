//===- WeightParams.cpp - Scales and zero points of weights ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "WeightParams.h"

#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Numerics/Packing.h"

#include <algorithm>

using namespace mlir;

namespace easyquant::gpu {

static constexpr int64_t kRows = numerics::kFragmentScaleRows;
static constexpr int kNumberBits = 6; // of scales of two levels

WeightParams::WeightParams(KernelBuilder &b, const WeightCodec &codec, int64_t rows,
                           int64_t columns, const KernelArguments &arguments)
    : b(b), codec(codec), padded(numerics::fragmentScaleRows(rows)),
      groups(groupCount(columns, codec.groupSize)), arguments(arguments),
      first(arguments.find(kFirstWeightRow)) {}

//===- Numbers of few bits ------------------------------------------------===//

SmallVector<WeightParams::Plane> WeightParams::planesOf(int bits) {
  const int upper = numerics::upperBits(bits), lower = bits - upper;
  const int64_t bytes = kRows * bits / 8;
  SmallVector<Plane> planes = {{upper, 0, bytes}};
  if (lower)
    planes.push_back({lower, kRows * upper / 8, bytes});
  return planes;
}

Value WeightParams::group(StringRef name, int bits, Int group, int64_t offset) const {
  Value first = b.advance(arguments[name], offset, b.i8());
  return b.advance(first, b.mul(group, padded * bits / 8), b.i8());
}

Value WeightParams::fieldsAt(Value group, const Plane &plane, Value n) const {
  if (plane.rowsBytes == kRows * plane.bits / 8) // the only one
    return b.advance(group, b.div(n, plane.fields()), b.i8());
  Value block = b.mul(b.div(n, kRows), plane.rowsBytes);
  Value byte = b.add(b.div(b.rem(n, kRows), plane.fields()), plane.offset);
  return b.advance(group, b.add(block, byte), b.i8());
}

WeightParams::Values WeightParams::numbers(Value group, int bits, Value n, int64_t count) const {
  Values found(count);
  for (const Plane &plane : planesOf(bits)) {
    const int64_t fields = plane.fields();
    const int64_t bytes = divideCeil(count, fields), perByte = count / bytes;
    Type type = bytes == 1 ? b.i8() : Type(b.vec(bytes, b.i8()));
    Value loaded = b.load(fieldsAt(group, plane, n), type, /*constant=*/true);
    Value first = perByte == fields ? b.i32(0) : b.rem(n, fields);
    for (int64_t i = 0; i < count; ++i) {
      Value byte = arith::ExtUIOp::create(b, b.i32(), b.extract(loaded, i / perByte));
      Value bit = b.mul(b.add(first, i % perByte), plane.bits);
      Value field = b.andi(b.shr(byte, bit), (int64_t{1} << plane.bits) - 1);
      found[i] = found[i] ? b.ori(b.shl(found[i], plane.bits), field) : field;
    }
  }
  return found;
}

//===- Scales -------------------------------------------------------------===//

Value WeightParams::widen(Value bits, ScaleFormat format) const {
  Value word = arith::ExtUIOp::create(b, b.i32(), bits);
  switch (format) {
  case ScaleFormat::BF16:
    return b.bitcast(b.shl(word, 16), b.f32());
  case ScaleFormat::F8E4M3FN: // positive; subnormals are those of f32 on the way
    return b.mulf(b.bitcast(b.shl(word, 20), b.f32()), b.constant(b.f32(), 0x1p120));
  case ScaleFormat::F8E8M0FNU: // 2^-127 is a subnormal
    return b.bitcast(b.max(b.shl(word, 23), 1 << 22), b.f32());
  case ScaleFormat::F32:
  case ScaleFormat::F16:
  case ScaleFormat::UI6:
    break;
  }
  llvm_unreachable("formats that are loaded as they are");
}

WeightParams::Values WeightParams::load(StringRef name, Value index, int64_t count,
                                        ScaleFormat format) const {
  const bool isFloat = format == ScaleFormat::F32 || format == ScaleFormat::F16;
  Type element = format == ScaleFormat::F32   ? b.f32()
                 : format == ScaleFormat::F16 ? Type(b.getF16Type())
                                              : b.getIntegerType(8 * scaleBytes(format));
  Type type = count == 1 ? element : Type(b.vec(count, element));
  Value loaded = b.load(b.advance(arguments[name], index, element), type, /*constant=*/true);
  if (isFloat)
    return b.elements(b.toF32(loaded));
  Values found;
  for (int64_t i = 0; i < count; ++i)
    found.push_back(widen(b.extract(loaded, i), format));
  return found;
}

WeightParams::Values WeightParams::scales(Int group, Value n, int64_t count) const {
  n = rowOf(n);
  if (codec.scales != ScaleFormat::UI6)
    return load("wscales", b.add(b.mul(group, padded), n), count, codec.scales);
  Value super = b.add(b.mul(b.div(group, numerics::kSuperGroups), padded), n);
  Values supers = load("wscales", super, count, ScaleFormat::F16);
  const int64_t before = numerics::superGroupCount(groups) * padded * 2;
  Values found = numbers(this->group("wscales", kNumberBits, group, before), kNumberBits, n, count);
  Value unit = b.constant(b.f32(), 0x1p-6);
  for (auto [number, super] : llvm::zip_equal(found, supers))
    number = b.mulf(super, b.mulf(b.toFloat(number), unit));
  return found;
}

WeightParams::Values WeightParams::minima(Int group, Value n, int64_t count) const {
  return load("wminima", b.add(b.mul(group, padded), rowOf(n)), count, codec.scales);
}

WeightParams::Values WeightParams::outer(Value n, int64_t count) const {
  return load("wouter", rowOf(n), count, ScaleFormat::F32);
}

//===- Zero points --------------------------------------------------------===//

WeightParams::Values WeightParams::zeros(Int group, Value n, int64_t count) const {
  return llvm::map_to_vector(
      numbers(this->group("wzeros", codec.bits, group), codec.bits, rowOf(n), count),
      [&](Value zero) { return centred(zero); });
}

WeightParams::Values WeightParams::zeroWords(Int group, Value n, Value row, int64_t count) const {
  Value base = this->group("wzeros", codec.bits, group);
  Values words;
  for (const Plane &plane : planesOf(codec.bits)) {
    Value pointer = fieldsAt(base, plane, rowOf(n));
    if (plane.fields() == 1) {
      pointer = b.advance(pointer, row, b.i8());
      for (int64_t i = 0; i < count; ++i) {
        Value byte = b.load(b.advance(pointer, 8 * i, b.i8()), b.i8(), /*constant=*/true);
        words.push_back(arith::ExtUIOp::create(b, b.i32(), byte));
      }
      continue;
    }
    // As wide loads as the bytes of 64 rows are multiples of.
    const int64_t widest = plane.rowsBytes % 16 == 0 ? 4 : 2;
    const int64_t whole = 8 * count / (4 * plane.fields());
    for (int64_t first = 0; first < whole;) {
      const int64_t width = std::min(widest, whole - first);
      Type type = width == 1 ? b.i32() : Type(b.vec(width, b.i32()));
      Value loaded = b.load(b.advance(pointer, first, b.i32()), type, /*constant=*/true);
      llvm::append_range(words, b.elements(loaded));
      first += width;
    }
  }
  return words;
}

WeightParams::Values WeightParams::zerosOf(ValueRange words, Value row, int64_t count) const {
  Values found(count);
  for (const Plane &plane : planesOf(codec.bits)) {
    const int64_t mask = (int64_t{1} << plane.bits) - 1;
    const int64_t whole = plane.fields() == 1 ? count : 8 * count / (4 * plane.fields());
    const int64_t perWord = count / whole;
    for (int64_t i = 0; i < count; ++i) {
      Value word = words[i / perWord];
      Value mine = plane.fields() == 1 ? word : b.shr(word, b.mul(row, plane.bits));
      Value field = b.andi(b.shr(mine, 8 * plane.bits * (i % perWord)), mask);
      found[i] = found[i] ? b.ori(b.shl(found[i], plane.bits), field) : field;
    }
    words = words.drop_front(whole);
  }
  return llvm::map_to_vector(found, [&](Value zero) { return centred(zero); });
}

} // namespace easyquant::gpu
