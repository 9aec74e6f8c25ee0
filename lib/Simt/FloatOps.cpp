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

using namespace easyquant;
using namespace easyquant::simt;

namespace {

struct Plus {
  template <typename T> T operator()(T a, T b) const { return a + b; }
};
struct Minus {
  template <typename T> T operator()(T a, T b) const { return a - b; }
};
struct Times {
  template <typename T> T operator()(T a, T b) const { return a * b; }
};
struct Over {
  template <typename T> T operator()(T a, T b) const { return a / b; }
};
struct MultiplyAdd {
  float operator()(float a, float b, float c) const { return __builtin_fmaf(a, b, c); }
  double operator()(double a, double b, double c) const { return __builtin_fma(a, b, c); }
};
struct SquareRoot {
  float operator()(float a) const { return __builtin_sqrtf(a); }
  double operator()(double a) const { return __builtin_sqrt(a); }
};
struct Reciprocal {
  template <typename T> T operator()(T a) const { return T(1) / a; }
};
struct ReciprocalRoot {
  float operator()(float a) const { return static_cast<float>(1.0 / __builtin_sqrt(double(a))); }
  double operator()(double a) const { return 1.0 / __builtin_sqrt(a); }
};
template <double (*function)(double)> struct Elementary {
  float operator()(float a) const { return static_cast<float>(function(a)); }
};
double base2Exponential(double x) { return std::exp2(x); }
double base2Logarithm(double x) { return std::log2(x); }
double sine(double x) { return std::sin(x); }
double cosine(double x) { return std::cos(x); }
double hyperbolicTangent(double x) { return std::tanh(x); }

/// A number beats a NaN, unless .NaN asks otherwise; -0 is less than +0.
template <bool maximum, bool nan> struct Extremum {
  template <typename T> T operator()(T a, T b) const {
    if (a != a || b != b)
      return nan || (a != a && b != b) ? T(NAN) : a != a ? b : a;
    if (a == b)
      return std::signbit(a) == maximum ? b : a;
    return (a < b) == maximum ? b : a;
  }
};

template <typename F, bool ftz, bool sat> struct Single {
  float operator()(float a) const { return finish<ftz, sat>(F()(in(a))); }
  float operator()(float a, float b) const { return finish<ftz, sat>(F()(in(a), in(b))); }
  float operator()(float a, float b, float c) const {
    return finish<ftz, sat>(F()(in(a), in(b), in(c)));
  }
  static float in(float x) { return ftz ? flush(x) : x; }
};

template <typename T, typename F> struct Unary {
  static constexpr Handler handler = mapUnary<T, T, F>;
};
template <typename T, typename F> struct Binary {
  static constexpr Handler handler = mapBinary<T, T, T, F>;
};
template <typename T, typename F> struct Ternary {
  static constexpr Handler handler = mapTernary<T, T, T, T, F>;
};

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

/// What `Shape` makes of the functor for the type and the modifiers.
template <template <typename, typename> typename Shape, typename F>
Handler select(const Modifiers &m) {
  if (m.type == Type::F64)
    return withRounding<Shape<double, F>::handler>(m.rounding);
  if (m.ftz)
    return m.sat ? withRounding<Shape<float, Single<F, true, true>>::handler>(m.rounding)
                 : withRounding<Shape<float, Single<F, true, false>>::handler>(m.rounding);
  return m.sat ? withRounding<Shape<float, Single<F, false, true>>::handler>(m.rounding)
               : withRounding<Shape<float, Single<F, false, false>>::handler>(m.rounding);
}

template <typename F> void decodeBinary(Decoder &d) {
  Modifiers m = arithmetic(d, 2);
  d.i.run = select<Binary, F>(m);
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

void decodeMultiplyAdd(Decoder &d) {
  Modifiers m = arithmetic(d, 3);
  d.i.run = select<Ternary, MultiplyAdd>(m);
}

/// Functions that have .approx and rounded forms: the exact result serves both.
template <typename F> void decodeUnary(Decoder &d) {
  d.accept("approx");
  Modifiers m = arithmetic(d, 1, false);
  d.i.run = select<Unary, F>(m);
}

/// The double-precision approximations keep the upper word of the result only.
template <typename F> struct UpperWord {
  double operator()(double a) const {
    double flushed = std::fpclassify(a) == FP_SUBNORMAL ? std::copysign(0.0, a) : a;
    double r = F()(flushed);
    if (std::fpclassify(r) == FP_SUBNORMAL)
      r = std::copysign(0.0, r);
    return std::bit_cast<double>(std::bit_cast<uint64_t>(r) & 0xffffffff00000000u);
  }
};
template <typename F> void decodeReciprocal(Decoder &d) {
  if (d.lastType() == Type::F64 && d.peekModifier() == "approx") {
    d.accept("approx");
    bool flushes = d.accept("ftz");
    d.type();
    d.arithmetic(Type::F64, OpClass::Double, 1);
    d.i.run = flushes ? Unary<double, UpperWord<F>>::handler : Unary<double, F>::handler;
    return;
  }
  decodeUnary<F>(d);
}

template <double (*function)(double)> void decodeElementary(Decoder &d) {
  if (isHalf(d.lastType()))
    return decodeHalfUnary(d);
  if (!d.accept("approx"))
    d.unknown();
  bool flushes = d.accept("ftz");
  if (d.type() != Type::F32)
    d.unknown();
  d.arithmetic(Type::F32, OpClass::Float, 1);
  using F = Elementary<function>;
  d.i.run = flushes ? Unary<float, Single<F, true, false>>::handler
                    : Unary<float, Single<F, false, false>>::handler;
}

void decodeDiv(Decoder &d) {
  if (d.acceptAny({"approx", "full"}) < 0 && d.peekModifier().size() != 2)
    d.unknown();
  decodeBinary<Over>(d);
}

template <bool maximum> void decodeMinMax(Decoder &d) {
  bool flushes = d.accept("ftz"), nan = d.accept("NaN");
  Type type = d.type();
  d.arithmetic(type, classOf(type), 2);
  if (type == Type::F64)
    d.i.run = Binary<double, Extremum<maximum, false>>::handler;
  else if (nan)
    d.i.run = flushes ? Binary<float, Single<Extremum<maximum, true>, true, false>>::handler
                      : Binary<float, Single<Extremum<maximum, true>, false, false>>::handler;
  else
    d.i.run = flushes ? Binary<float, Single<Extremum<maximum, false>, true, false>>::handler
                      : Binary<float, Single<Extremum<maximum, false>, false, false>>::handler;
}

template <typename U, U sign, bool negate, bool ftz> struct ChangeSign {
  U operator()(U a) const {
    if (ftz && !(a & 0x7f800000u))
      a &= sign;
    return negate ? a ^ sign : a & ~sign;
  }
};
template <bool negate> void decodeSign(Decoder &d) {
  bool flushes = d.accept("ftz");
  Type type = d.type();
  d.arithmetic(type, classOf(type), 1);
  if (type == Type::F64)
    d.i.run = mapUnary<uint64_t, uint64_t, ChangeSign<uint64_t, 1ull << 63, negate, false>>;
  else
    d.i.run = flushes ? mapUnary<uint32_t, uint32_t, ChangeSign<uint32_t, 1u << 31, negate, true>>
                      : mapUnary<uint32_t, uint32_t, ChangeSign<uint32_t, 1u << 31, negate, false>>;
}

template <typename U, U sign> struct CopySign {
  U operator()(U a, U b) const { return (a & sign) | (b & ~sign); }
};

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
  table["add"] = decodeByType<decodeHalfBinary, decodeBinary<Plus>, decodeIntegerAdd>;
  table["sub"] = decodeByType<decodeHalfBinary, decodeBinary<Minus>, decodeIntegerAdd>;
  table["mul"] = decodeByType<decodeHalfBinary, decodeBinary<Times>, decodeIntegerMul>;
  table["fma"] = decodeByType<decodeHalfFma, decodeMultiplyAdd, decodeMultiplyAdd>;
  table["mad"] = decodeByType<decodeIntegerMad, decodeMultiplyAdd, decodeIntegerMad>;
  table["div"] = decodeByType<decodeIntegerDiv, decodeDiv, decodeIntegerDiv>;
  table["min"] = decodeByType<decodeHalfBinary, decodeMinMax<false>, decodeIntegerMinMax>;
  table["max"] = decodeByType<decodeHalfBinary, decodeMinMax<true>, decodeIntegerMinMax>;
  table["abs"] = decodeByType<decodeHalfUnary, decodeSign<false>, decodeIntegerUnary>;
  table["neg"] = decodeByType<decodeHalfUnary, decodeSign<true>, decodeIntegerUnary>;
  table["sqrt"] = decodeUnary<SquareRoot>;
  table["rcp"] = decodeReciprocal<Reciprocal>;
  table["rsqrt"] = decodeReciprocal<ReciprocalRoot>;
  table["ex2"] = decodeElementary<base2Exponential>;
  table["lg2"] = decodeElementary<base2Logarithm>;
  table["sin"] = decodeElementary<sine>;
  table["cos"] = decodeElementary<cosine>;
  table["tanh"] = decodeElementary<hyperbolicTangent>;
  table["copysign"] = [](Decoder &d) {
    Type type = d.type();
    if (!isSingleOrDouble(type))
      d.unknown();
    d.arithmetic(type, OpClass::Float, 2);
    d.i.run = type == Type::F64
                  ? mapBinary<uint64_t, uint64_t, uint64_t, CopySign<uint64_t, 1ull << 63>>
                  : mapBinary<uint32_t, uint32_t, uint32_t, CopySign<uint32_t, 1u << 31>>;
  };
  table["testp"] = [](Decoder &d) {
    int property =
        d.acceptAny({"finite", "infinite", "number", "notanumber", "normal", "subnormal"});
    Type type = d.type();
    if (property < 0 || !isSingleOrDouble(type))
      d.unknown();
    d.i.opClass = OpClass::Compare;
    d.i.dst = d.write(Type::Pred);
    d.i.a = d.read(type);
    d.i.flags = property;
    d.i.run = type == Type::F64 ? testProperty<double> : testProperty<float>;
  };
}
