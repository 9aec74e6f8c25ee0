//===- ConvertOps.cpp - Conversions between all number types --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "FloatLanes.h"
#include "Half.h"

#include <algorithm>
#include <functional>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

enum ConvertFlags : uint32_t { kFtz = 1, kSat = 2, kRelu = 4, kSatFinite = 8, kRoundInteger = 16 };

/// The operands of a cvt; in Instruction: type (to), count (from), flags with the rounding above.
Type sourceType(const Instruction &i) { return static_cast<Type>(i.count); }
Rounding rounding(const Instruction &i) { return static_cast<Rounding>(i.flags >> 8); }

FloatFormat formatOf(Type type) {
  switch (type) {
  case Type::F16:
  case Type::F16x2:
    return kHalf;
  case Type::BF16:
  case Type::BF16x2:
    return kBFloat;
  case Type::TF32:
    return kTF32;
  case Type::F32:
    return kSingle;
  case Type::E4M3x2:
    return kE4M3;
  case Type::E5M2x2:
    return kE5M2;
  default:
    return kDouble;
  }
}

/// Calls `visit` with a value of the C++ type of an integer type.
template <typename Visit> void visitInteger(Type type, Visit &&visit) {
  visitType<Type::U8, Type::S8, Type::U16, Type::S16, Type::U32, Type::S32, Type::U64, Type::S64>(
      type, visit);
}

/// The low bits of each lane of a register, which may be wider than the type.
void loadIntegers(Warp &w, const Instruction &i, int64_t (&out)[kLanes]) {
  const std::byte *base = w.reg<std::byte>(i.a);
  size_t width = i.extra & 0xff;
  visitInteger(sourceType(i), [&]<typename T>(T v) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      std::memcpy(&v, base + lane * width, sizeof(T));
      out[lane] = static_cast<int64_t>(v);
    }
  });
}
void loadFloats(Warp &w, const Instruction &i, double (&out)[kLanes]) {
  auto each = [&](auto &&load) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      out[lane] = load(lane);
  };
  const uint16_t *halves = w.reg<uint16_t>(i.a);
  const float *singles = w.reg<float>(i.a);
  if (sourceType(i) == Type::F16)
    each([&](unsigned lane) { return Half::widen(halves[lane]); });
  else if (sourceType(i) == Type::BF16)
    each([&](unsigned lane) { return BFloat::widen(halves[lane]); });
  else if (sourceType(i) == Type::F32)
    each([&](unsigned lane) { return i.flags & kFtz ? flush(singles[lane]) : singles[lane]; });
  else
    std::copy_n(w.reg<double>(i.a), kLanes, out);
}

/// Stores lanes into the destination register, which may be wider than the type: any register takes
/// a narrower integer, and 32 bits take the codes of f16 and bf16.
template <typename Value>
void storeWide(Warp &w, const Instruction &i, Mask m, const Value (&values)[kLanes]) {
  visitType<Type::B8, Type::B16, Type::B32, Type::B64>(bitsOf(i.extra >> 8), [&]<typename T>(T) {
    storeLanes(w.reg<T>(i.dst), m, [&](unsigned lane) { return static_cast<T>(values[lane]); });
  });
}

/// Integers are narrowed to the type first, so that a wider register gets its extension.
void storeIntegers(Warp &w, const Instruction &i, Mask m, const int64_t (&v)[kLanes]) {
  int64_t narrowed[kLanes];
  visitInteger(i.type, [&]<typename T>(T) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      narrowed[lane] = static_cast<int64_t>(static_cast<T>(v[lane]));
  });
  storeWide(w, i, m, narrowed);
}

struct Limits {
  int64_t low;
  uint64_t high;
};
Limits limitsOf(Type type) {
  unsigned bits = 8 * sizeOf(type);
  if (isSigned(type))
    return {static_cast<int64_t>(~0ull << (bits - 1)), (1ull << (bits - 1)) - 1};
  return {0, ~0ull >> (64 - bits)};
}

void integerToInteger(Warp &w, const Instruction &i, Mask m) {
  int64_t v[kLanes];
  loadIntegers(w, i, v);
  if (i.flags & kSat) {
    Limits limits = limitsOf(i.type);
    bool wide = sourceType(i) == Type::U64;
    for (int64_t &x : v) {
      if (!wide && x < limits.low)
        x = limits.low;
      else if ((wide || x > 0) && static_cast<uint64_t>(x) > limits.high)
        x = static_cast<int64_t>(limits.high);
    }
  }
  storeIntegers(w, i, m, v);
}

void integerToFloat(Warp &w, const Instruction &i, Mask m) {
  int64_t v[kLanes];
  loadIntegers(w, i, v);
  bool isUnsigned64 = sourceType(i) == Type::U64;
  uint64_t codes[kLanes];
  if (rounding(i) == Rounding::NearestEven && i.type == Type::F32 && !isUnsigned64 &&
      !(i.flags & kSat)) {
    for (unsigned lane = 0; lane < kLanes; ++lane)
      codes[lane] = std::bit_cast<uint32_t>(static_cast<float>(v[lane]));
  } else {
    FloatFormat format = formatOf(i.type);
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      Unpacked x;
      x.negative = !isUnsigned64 && v[lane] < 0;
      x.significand = x.negative ? -static_cast<uint64_t>(v[lane]) : v[lane];
      uint64_t code = pack(x, format, rounding(i));
      if (i.flags & kSat) {
        uint64_t one = static_cast<uint64_t>(format.bias()) << format.mantissaBits;
        code = x.negative ? 0 : std::min(code, one);
      }
      codes[lane] = code;
    }
  }
  storeWide(w, i, m, codes);
}

double roundToInteger(double x, Rounding rounding) {
  switch (rounding) {
  case Rounding::Zero:
    return std::trunc(x);
  case Rounding::Down:
    return std::floor(x);
  case Rounding::Up:
    return std::ceil(x);
  default:
    return std::nearbyint(x);
  }
}

/// Out of range goes to the nearest end. NaN is zero, but for f64 or 64-bit results the top bit
/// alone.
void floatToInteger(Warp &w, const Instruction &i, Mask m) {
  double x[kLanes];
  loadFloats(w, i, x);
  Limits limits = limitsOf(i.type);
  bool topBit = sourceType(i) == Type::F64 || sizeOf(i.type) == 8;
  double low = static_cast<double>(limits.low), high = static_cast<double>(limits.high);
  int64_t nan = topBit ? static_cast<int64_t>(1ull << (8 * sizeOf(i.type) - 1)) : 0;
  int64_t v[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    double r = roundToInteger(x[lane], rounding(i));
    if (r != r)
      v[lane] = nan;
    else if (r <= low)
      v[lane] = limits.low;
    else if (r >= high)
      v[lane] = static_cast<int64_t>(limits.high);
    else
      v[lane] =
          r >= 0x1p63 ? static_cast<int64_t>(static_cast<uint64_t>(r)) : static_cast<int64_t>(r);
  }
  storeIntegers(w, i, m, v);
}

uint64_t floatCode(double x, const Instruction &i, FloatFormat format) {
  uint64_t code =
      convert(std::bit_cast<uint64_t>(x), kDouble, format,
              i.flags & kRoundInteger ? Rounding::NearestEven : rounding(i), i.flags & kSatFinite);
  uint64_t sign = 1ull << (format.bits() - 1);
  bool nan = x != x;
  if (i.flags & kFtz && i.type == Type::F32 && !(code & 0x7f800000))
    code &= sign;
  if (i.flags & kRelu && !nan && code & sign)
    code = 0;
  if (i.flags & kSat) {
    uint64_t one = static_cast<uint64_t>(format.bias()) << format.mantissaBits;
    code = nan || code & sign ? 0 : std::min(code, one);
  }
  return code;
}

void floatToFloat(Warp &w, const Instruction &i, Mask m) {
  double x[kLanes];
  loadFloats(w, i, x);
  if (i.flags & kRoundInteger)
    for (double &v : x)
      v = roundToInteger(v, rounding(i));
  FloatFormat format = formatOf(i.type);
  uint64_t codes[kLanes];
  for (unsigned lane = 0; lane < kLanes; ++lane)
    codes[lane] = floatCode(x[lane], i, format);
  if (i.type == Type::TF32) // in the upper bits of a 32-bit register
    for (uint64_t &code : codes)
      code <<= 13;
  storeWide(w, i, m, codes);
}

/// d = {a, b} converted, a in the upper half.
void pairFromSingles(Warp &w, const Instruction &i, Mask m) {
  const float *a = w.reg<float>(i.a), *b = w.reg<float>(i.b);
  FloatFormat format = formatOf(i.type);
  auto code = [&](float x) { return static_cast<uint32_t>(floatCode(x, i, format)); };
  if (sizeOf(i.type) == 4)
    storeLanes(w.reg<uint32_t>(i.dst), m,
               [&](unsigned lane) { return code(b[lane]) | code(a[lane]) << 16; });
  else
    storeLanes(w.reg<uint16_t>(i.dst), m, [&](unsigned lane) {
      return static_cast<uint16_t>(code(b[lane]) | code(a[lane]) << 8);
    });
}
template <typename H> void pairFromSinglesFast(Warp &w, const Instruction &i, Mask m) {
  const float *a = w.reg<float>(i.a), *b = w.reg<float>(i.b);
  storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
    return uint32_t(H::narrow(b[lane])) | uint32_t(H::narrow(a[lane])) << 16;
  });
}
/// Two fp8 codes to two halves, or back.
void pairToPair(Warp &w, const Instruction &i, Mask m) {
  FloatFormat to = formatOf(i.type), from = formatOf(sourceType(i));
  uint64_t signTo = 1ull << (to.bits() - 1);
  auto code = [&](uint32_t x) {
    auto r = static_cast<uint32_t>(
        convert(x & from.mask(), from, to, Rounding::NearestEven, i.flags & kSatFinite));
    bool nan = unpack(x & from.mask(), from).kind == Unpacked::NaN;
    return i.flags & kRelu && !nan && r & signTo ? 0 : r;
  };
  if (sizeOf(i.type) == 4)
    storeLanes(w.reg<uint32_t>(i.dst), m, [&](unsigned lane) {
      uint32_t x = w.reg<uint16_t>(i.a)[lane];
      return code(x) | code(x >> 8) << 16;
    });
  else
    storeLanes(w.reg<uint16_t>(i.dst), m, [&](unsigned lane) {
      uint32_t x = w.reg<uint32_t>(i.a)[lane];
      return static_cast<uint16_t>(code(x) | code(x >> 16) << 8);
    });
}

bool isPair(Type type) {
  return type == Type::F16x2 || type == Type::BF16x2 || type == Type::E4M3x2 ||
         type == Type::E5M2x2;
}
bool isFp8(Type type) { return type == Type::E4M3x2 || type == Type::E5M2x2; }

/// The conversions that loops are full of.
Handler fastPath(Type to, Type from, const Instruction &i, unsigned toBytes, unsigned fromBytes) {
  if (i.flags || toBytes != sizeOf(to) || fromBytes != sizeOf(from))
    return nullptr;
  constexpr std::identity same;
  if (to == Type::F32 && from == Type::F16)
    return mapUnary<Half::widen, float, uint16_t>;
  if (to == Type::F32 && from == Type::BF16)
    return mapUnary<BFloat::widen, float, uint16_t>;
  if (to == Type::F16 && from == Type::F32)
    return mapUnary<Half::narrow, uint16_t, float>;
  if (to == Type::BF16 && from == Type::F32)
    return mapUnary<BFloat::narrow, uint16_t, float>;
  if (to == Type::F64 && from == Type::F32)
    return mapUnary<same, double, float>;
  if (to == Type::F32 && from == Type::S32)
    return mapUnary<same, float, int32_t>;
  if (sizeOf(to) == 8 && isInteger(to) && from == Type::S32)
    return mapUnary<same, int64_t, int32_t>;
  if (sizeOf(to) == 8 && isInteger(to) && from == Type::U32)
    return mapUnary<same, uint64_t, uint32_t>;
  if (sizeOf(to) == 4 && isInteger(to) && sizeOf(from) == 8 && isInteger(from))
    return mapUnary<same, uint32_t, uint64_t>;
  return nullptr;
}

void decodeCvt(Decoder &d) {
  uint32_t flags = 0;
  auto mode = Rounding::NearestEven;
  bool rounds = false;
  static constexpr Rounding modes[] = {Rounding::NearestEven, Rounding::Zero, Rounding::Down,
                                       Rounding::Up};
  if (int k = d.acceptAny({"rn", "rz", "rm", "rp"}); k >= 0)
    mode = modes[k], rounds = true;
  else if (k = d.acceptAny({"rni", "rzi", "rmi", "rpi"}); k >= 0)
    mode = modes[k], rounds = true, flags |= kRoundInteger;
  else if (d.accept("rna"))
    mode = Rounding::NearestAway, rounds = true;
  for (int k; (k = d.acceptAny({"ftz", "sat", "relu", "satfinite"})) >= 0;)
    flags |= 1u << k;
  Type to = d.type(), from = d.type();
  Instruction &i = d.i;
  i.opClass = OpClass::Convert;
  i.type = to;
  i.count = static_cast<uint8_t>(from);
  i.flags = flags | static_cast<uint32_t>(mode) << 8;
  if (isPair(to) && from == Type::F32) {
    if (!rounds || (isFp8(to) && !(flags & kSatFinite)))
      d.unknown();
    i.dst = d.write(to);
    i.a = d.read(from);
    i.b = d.read(from);
    bool plain = !flags && mode == Rounding::NearestEven;
    i.run = plain && to == Type::F16x2    ? pairFromSinglesFast<Half>
            : plain && to == Type::BF16x2 ? pairFromSinglesFast<BFloat>
                                          : pairFromSingles;
    return;
  }
  if (isPair(to) || isPair(from)) {
    if (!rounds || isFp8(to) == isFp8(from) || !isPair(to) || !isPair(from))
      d.unknown();
    i.dst = d.write(to);
    i.a = d.read(from);
    i.run = pairToPair;
    return;
  }
  bool fromFloat = isFloat(from), toFloat = isFloat(to) || to == Type::TF32;
  if ((!fromFloat && !isInteger(from)) || (!toFloat && !isInteger(to)))
    d.unknown();
  if (to == Type::TF32 && from != Type::F32)
    d.unknown();
  if (fromFloat && !toFloat && !(flags & kRoundInteger) && !rounds)
    d.fail("a conversion from float to integer needs .rni, .rzi, .rmi or .rpi");
  unsigned toBytes = 0, fromBytes = 0;
  i.dst = d.writeWide(d.operand(), to, toBytes);
  i.a = d.readWide(d.operand(), from, fromBytes);
  if ((fromFloat && fromBytes != sizeOf(from)) || (toFloat && toBytes != sizeOf(to)))
    d.fail("registers of floats have the size of their type");
  i.extra = fromBytes | toBytes << 8;
  // A float keeps its type with an integer rounding: cvt.rni.f32.f32.
  if (fromFloat && toFloat && to == from && rounds && !(flags & kRoundInteger))
    d.unknown();
  if (mode == Rounding::NearestEven)
    if (Handler fast = fastPath(to, from, i, toBytes, fromBytes)) {
      i.run = fast;
      return;
    }
  i.run = fromFloat ? (toFloat ? floatToFloat : floatToInteger)
                    : (toFloat ? integerToFloat : integerToInteger);
}

} // namespace

void simt::addConvertOps(OpcodeTable &table) { table["cvt"] = decodeCvt; }
