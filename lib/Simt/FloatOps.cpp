//===- FloatOps.cpp - Arithmetic in single and double precision -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where PTX asks for an approximation (div.approx, ex2.approx, sin.approx, ...), the result here is
// the exact one rounded to nearest, or within one unit in the last place for the elementary
// functions, which is inside the bound that the PTX manual gives. Hardware may differ in the last
// places.
//
//===----------------------------------------------------------------------===//

#include "Decoder.h"
#include "FloatLanes.h"

#include <functional>

using namespace easyquant;
using namespace easyquant::simt;

namespace {

constexpr auto multiplyAdd = []<typename T>(T a, T b, T c) { return std::fma(a, b, c); };
constexpr auto reciprocalRoot = []<typename T>(T a) {
  return static_cast<T>(1.0 / std::sqrt(double(a)));
};

/// A number beats a NaN, unless .NaN asks otherwise; -0 is less than +0.
template <bool maximum, bool nan>
constexpr auto extremum = []<typename T>(T a, T b) -> T {
  if (a != a || b != b)
    return nan || (a != a && b != b) ? T(NAN) : a != a ? b : a;
  if (a == b)
    return std::signbit(a) == maximum ? b : a;
  return (a < b) == maximum ? b : a;
};

/// f of single precision with its modifiers.
template <auto f, bool ftz, bool sat>
constexpr auto single = [](auto... a) { return finish<ftz, sat>(f(ftz ? flush(a) : a...)); };

/// f of single precision, with .ftz or without.
template <auto f, unsigned sources> Handler mapSingle(bool flushes) {
  return flushes ? mapAll<single<f, true, false>, float, sources>
                 : mapAll<single<f, false, false>, float, sources>;
}

struct Modifiers {
  Rounding rounding = Rounding::NearestEven;
  bool ftz = false, sat = false;
  Type type;
};

Rounding roundingOf(int index) {
  static constexpr Rounding modes[] = {Rounding::NearestEven, Rounding::Zero, Rounding::Down,
                                       Rounding::Up};
  return index < 0 ? Rounding::NearestEven : modes[index];
}

OpClass classOf(Type type) { return type == Type::F64 ? OpClass::Double : OpClass::Float; }

/// [.rounding][.ftz][.sat].type and the operands.
Modifiers arithmetic(Decoder &d, unsigned sources, bool takesSat = true) {
  Modifiers result;
  result.rounding = roundingOf(d.acceptAny({"rn", "rz", "rm", "rp"}));
  result.ftz = d.accept("ftz");
  result.sat = takesSat && d.accept("sat");
  result.type = d.type();
  if (result.type != Type::F32 && (result.type != Type::F64 || result.ftz || result.sat))
    d.unknown();
  d.arithmetic(result.type, classOf(result.type), sources);
  return result;
}

/// f for the type and the modifiers of the instruction.
template <auto f, unsigned sources> Handler select(const Modifiers &m) {
  if (m.type == Type::F64)
    return withRounding<mapAll<f, double, sources>>(m.rounding);
  if (m.ftz)
    return m.sat ? withRounding<mapAll<single<f, true, true>, float, sources>>(m.rounding)
                 : withRounding<mapAll<single<f, true, false>, float, sources>>(m.rounding);
  return m.sat ? withRounding<mapAll<single<f, false, true>, float, sources>>(m.rounding)
               : withRounding<mapAll<single<f, false, false>, float, sources>>(m.rounding);
}

template <auto f, unsigned sources> void decodeArithmetic(Decoder &d) {
  d.i.run = select<f, sources>(arithmetic(d, sources));
}

bool isHalf(Type type) {
  return type == Type::F16 || type == Type::F16x2 || type == Type::BF16 || type == Type::BF16x2;
}
bool isSingleOrDouble(Type type) { return type == Type::F32 || type == Type::F64; }

/// An opcode that these families of types share.
template <DecodeFunction half, DecodeFunction singleOrDouble, DecodeFunction integer>
void decodeByType(Decoder &d) {
  Type type = d.lastType();
  isHalf(type) ? half(d) : isSingleOrDouble(type) ? singleOrDouble(d) : integer(d);
}

/// Functions that have .approx and rounded forms: the exact result serves both.
template <auto f> void decodeUnary(Decoder &d) {
  d.accept("approx");
  d.i.run = select<f, 1>(arithmetic(d, 1, false));
}

/// The double-precision approximations keep the upper word of the result only.
template <auto f> double upperWord(double a) {
  double flushed = std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0, a) : a;
  double r = f(flushed);
  if (std::fpclassify(r) == FP_SUBNORMAL)
    r = std::copysign(0.0, r);
  return std::bit_cast<double>(std::bit_cast<uint64_t>(r) & 0xffffffff00000000u);
}
template <auto f> void decodeReciprocal(Decoder &d) {
  if (d.lastType() != Type::F64 || !d.accept("approx"))
    return decodeUnary<f>(d);
  bool flushes = d.accept("ftz");
  d.type();
  d.arithmetic(Type::F64, OpClass::Double, 1);
  d.i.run = flushes ? mapUnary<upperWord<f>, double> : mapUnary<f, double>;
}

template <auto f> void decodeElementary(Decoder &d) {
  if (isHalf(d.lastType()))
    return decodeHalfUnary(d);
  d.expect("approx");
  bool flushes = d.accept("ftz");
  d.expect("f32");
  d.arithmetic(Type::F32, OpClass::Float, 1);
  d.i.run = mapSingle<[](float a) { return static_cast<float>(f(double(a))); }, 1>(flushes);
}

void decodeDiv(Decoder &d) {
  if (d.acceptAny({"approx", "full"}) < 0 && d.peekModifier().size() != 2)
    d.unknown();
  decodeArithmetic<std::divides<>{}, 2>(d);
}

template <bool maximum> void decodeMinMax(Decoder &d) {
  bool flushes = d.accept("ftz"), nan = d.accept("NaN");
  Type type = d.type();
  d.arithmetic(type, classOf(type), 2);
  if (type == Type::F64)
    d.i.run = mapBinary<extremum<maximum, false>, double>;
  else
    d.i.run = nan ? mapSingle<extremum<maximum, true>, 2>(flushes)
                  : mapSingle<extremum<maximum, false>, 2>(flushes);
}

template <typename U> constexpr U kSign = U(1) << (8 * sizeof(U) - 1);

template <typename U, bool negate, bool ftz> U changeSign(U a) {
  if (ftz && !(a & 0x7f800000u))
    a &= kSign<U>;
  return negate ? a ^ kSign<U> : a & ~kSign<U>;
}
template <bool negate> void decodeSign(Decoder &d) {
  bool flushes = d.accept("ftz");
  Type type = d.type();
  d.arithmetic(type, classOf(type), 1);
  if (type == Type::F64)
    d.i.run = mapUnary<changeSign<uint64_t, negate, false>, uint64_t>;
  else
    d.i.run = flushes ? mapUnary<changeSign<uint32_t, negate, true>, uint32_t>
                      : mapUnary<changeSign<uint32_t, negate, false>, uint32_t>;
}

constexpr auto copySign = []<typename U>(U a, U b) { return (a & kSign<U>) | (b & ~kSign<U>); };

template <typename T> void testProperty(Warp &w, const Instruction &i, Mask m) {
  const T *a = w.reg<T>(i.a);
  Mask result = 0;
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    int c = std::fpclassify(a[lane]);
    bool is[] = {c != FP_INFINITE && c != FP_NAN,
                 c == FP_INFINITE,
                 c != FP_NAN,
                 c == FP_NAN,
                 c == FP_NORMAL,
                 c == FP_SUBNORMAL};
    result |= Mask(is[i.flags]) << lane;
  }
  w.setPredicate(i.dst, m, result);
}

} // namespace

void simt::addFloatOps(OpcodeTable &table) {
  constexpr auto fma = decodeArithmetic<multiplyAdd, 3>;
  table["add"] =
      decodeByType<decodeHalfBinary, decodeArithmetic<std::plus<>{}, 2>, decodeIntegerAdd>;
  table["sub"] =
      decodeByType<decodeHalfBinary, decodeArithmetic<std::minus<>{}, 2>, decodeIntegerAdd>;
  table["mul"] =
      decodeByType<decodeHalfBinary, decodeArithmetic<std::multiplies<>{}, 2>, decodeIntegerMul>;
  table["fma"] = decodeByType<decodeHalfFma, fma, fma>;
  table["mad"] = decodeByType<decodeIntegerMad, fma, decodeIntegerMad>;
  table["div"] = decodeByType<decodeIntegerDiv, decodeDiv, decodeIntegerDiv>;
  table["min"] = decodeByType<decodeHalfBinary, decodeMinMax<false>, decodeIntegerMinMax>;
  table["max"] = decodeByType<decodeHalfBinary, decodeMinMax<true>, decodeIntegerMinMax>;
  table["abs"] = decodeByType<decodeHalfUnary, decodeSign<false>, decodeIntegerUnary>;
  table["neg"] = decodeByType<decodeHalfUnary, decodeSign<true>, decodeIntegerUnary>;
  table["sqrt"] = decodeUnary<[](auto a) { return std::sqrt(a); }>;
  table["rcp"] = decodeReciprocal<[](auto a) { return 1 / a; }>;
  table["rsqrt"] = decodeReciprocal<reciprocalRoot>;
  table["ex2"] = decodeElementary<[](double x) { return std::exp2(x); }>;
  table["lg2"] = decodeElementary<[](double x) { return std::log2(x); }>;
  table["sin"] = decodeElementary<[](double x) { return std::sin(x); }>;
  table["cos"] = decodeElementary<[](double x) { return std::cos(x); }>;
  table["tanh"] = decodeElementary<[](double x) { return std::tanh(x); }>;
  table["copysign"] = [](Decoder &d) {
    Type type = d.type();
    if (!isSingleOrDouble(type))
      d.unknown();
    d.arithmetic(type, OpClass::Float, 2);
    d.i.run = type == Type::F64 ? mapBinary<copySign, uint64_t> : mapBinary<copySign, uint32_t>;
  };
  table["testp"] = [](Decoder &d) {
    int property =
        d.expectAny({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    Type type = d.type();
    if (!isSingleOrDouble(type))
      d.unknown();
    d.operate(OpClass::Compare, Type::Pred, {type});
    d.i.flags = property;
    d.i.run = type == Type::F64 ? testProperty<double> : testProperty<float>;
  };
}
