//===- MatrixCore.cpp - Products of small matrices in registers -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "MatrixCore.h"

#include "Execution.h"
#include "Half.h"

#include <algorithm>
#include <charconv>
#include <limits>

using namespace easyquant;
using namespace easyquant::simt;

std::optional<MatrixShape> simt::parseMatrixShape(std::string_view text) {
  MatrixShape shape{};
  unsigned *parts[] = {&shape.m, &shape.n, &shape.k};
  const char names[] = {'m', 'n', 'k'};
  const char *at = text.data(), *end = at + text.size();
  for (int part = 0; part < 3; ++part) {
    if (at == end || *at != names[part])
      return std::nullopt;
    ++at;
    auto [stop, error] = std::from_chars(at, end, *parts[part]);
    if (error != std::errc())
      return std::nullopt;
    at = stop;
  }
  return at == end ? std::optional(shape) : std::nullopt;
}

unsigned simt::elementBits(Type type) {
  switch (type) {
  case Type::B1:
    return 1;
  case Type::U4:
  case Type::S4:
  case Type::E2M1:
    return 4;
  case Type::TF32:
    return 32;
  default:
    return 8 * sizeOf(type);
  }
}

namespace {

// The largest: A of m16n8k64 in s4, A of m16n8k16 in f64, C of m32n8.
constexpr unsigned kMostElements = 1024, kMostWords = 256, kMostSums = 256;
/// Every shape has a multiple of so many lines, so that loops over a group are vector code.
constexpr unsigned kGroup = 8;

// ---- elements ----------------------------------------------------------------------------------

template <typename Word>
void gatherWords(const Warp &w, const Slot *slots, const MatrixLayout &l, Word *out) {
  Word registers[kMostWords]; // side by side, so that one index is enough
  for (unsigned r = 0; r < l.words.size() / kLanes; ++r)
    std::memcpy(registers + r * kLanes, w.reg<Word>(slots[r]), kLanes * sizeof(Word));
  for (size_t k = 0; k < l.words.size(); ++k)
    out[k] = registers[l.words[k]];
}

template <typename Word>
void scatterWords(const Warp &w, const Slot *slots, const MatrixLayout &l, const Word *in) {
  Word registers[kMostWords];
  for (size_t k = 0; k < l.words.size(); ++k)
    registers[l.words[k]] = in[k];
  for (unsigned r = 0; r < l.words.size() / kLanes; ++r)
    std::memcpy(w.reg<Word>(slots[r]), registers + r * kLanes, kLanes * sizeof(Word));
}

/// visit(word, element, part): for each part of the words, where groups of words side by side
/// begin, and where the elements in that part of them go.
template <unsigned perWord, typename Visit> void eachGroup(const MatrixLayout &l, Visit &&visit) {
  for (size_t first = 0; first < l.words.size(); first += l.lines)
    for (size_t line = 0; line < l.lines; line += kGroup)
      for (size_t part = 0; part < perWord; ++part)
        visit(first + line, first * perWord + part * l.lines + line, part);
}

/// The elements of a matrix: `value` of their bits, above which other elements may be.
template <typename Word, unsigned bits, auto value, typename Value>
void gatherEach(const Warp &w, const Slot *slots, const MatrixLayout &l, Value *out) {
  Word words[kMostWords];
  gatherWords(w, slots, l, words);
  eachGroup<8 * sizeof(Word) / bits>(l, [&](size_t word, size_t element, size_t part) {
    for (unsigned k = 0; k < kGroup; ++k)
      // NOLINTNEXTLINE(clang-analyzer-core.*): gatherWords fills all that a layout has.
      out[element + k] = value(words[word + k] >> part * bits);
  });
}

/// The way back; `code` gives bits with zeros above them.
template <typename Word, unsigned bits, auto code, typename Value>
void scatterEach(const Warp &w, const Slot *slots, const MatrixLayout &l, const Value *in) {
  Word words[kMostWords] = {};
  eachGroup<8 * sizeof(Word) / bits>(l, [&](size_t word, size_t element, size_t part) {
    for (unsigned k = 0; k < kGroup; ++k)
      // NOLINTNEXTLINE(clang-analyzer-core.*): a layout's elements are all there.
      words[word + k] |= Word(code(in[element + k])) << part * bits;
  });
  scatterWords(w, slots, l, words);
}

template <FloatFormat format> double valueOf(uint32_t code) {
  static constexpr auto values = [] {
    std::array<double, 256> all;
    for (unsigned k = 0; k < all.size(); ++k)
      all[k] = std::bit_cast<double>(convert(k, format, kDouble, Rounding::NearestEven));
    return all;
  }();
  return values[code & 0xff];
}
/// 0, 0.5, 1, 1.5, 2, 3, 4, 6, and the same with a sign.
double tinyValue(uint32_t bits) {
  static constexpr double values[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  return bits & 8 ? -values[bits & 7] : values[bits & 7];
}
float single(uint32_t bits) { return std::bit_cast<float>(bits); }
/// The tensor core looks at the upper 19 bits only.
float tensorFloat(uint32_t bits) { return std::bit_cast<float>(bits & 0xffffe000u); }
double twice(uint64_t bits) { return std::bit_cast<double>(bits); }

void gather(const Warp &w, const Slot *slots, const MatrixLayout &l, double *out) {
  switch (l.type) {
  case Type::F16:
    return gatherEach<uint32_t, 16, Half::widen>(w, slots, l, out);
  case Type::BF16:
    return gatherEach<uint32_t, 16, BFloat::widen>(w, slots, l, out);
  case Type::TF32:
    return gatherEach<uint32_t, 32, tensorFloat>(w, slots, l, out);
  case Type::F32:
    return gatherEach<uint32_t, 32, single>(w, slots, l, out);
  case Type::E4M3:
    return gatherEach<uint32_t, 8, valueOf<kE4M3>>(w, slots, l, out);
  case Type::E5M2:
    return gatherEach<uint32_t, 8, valueOf<kE5M2>>(w, slots, l, out);
  case Type::E2M1:
    return gatherEach<uint32_t, 4, tinyValue>(w, slots, l, out);
  default:
    return gatherEach<uint64_t, 64, twice>(w, slots, l, out);
  }
}

template <unsigned bits> int32_t signedValue(uint32_t x) {
  return static_cast<int32_t>(x << (32 - bits)) >> (32 - bits);
}
template <unsigned bits> int32_t unsignedValue(uint32_t x) { return x & ((1u << bits) - 1); }

/// Single bits stay together, 32 of a line.
void gather(const Warp &w, const Slot *slots, const MatrixLayout &l, int32_t *out) {
  switch (l.type) {
  case Type::S8:
    return gatherEach<uint32_t, 8, signedValue<8>>(w, slots, l, out);
  case Type::U8:
    return gatherEach<uint32_t, 8, unsignedValue<8>>(w, slots, l, out);
  case Type::S4:
    return gatherEach<uint32_t, 4, signedValue<4>>(w, slots, l, out);
  case Type::U4:
    return gatherEach<uint32_t, 4, unsignedValue<4>>(w, slots, l, out);
  default:
    return gatherEach<uint32_t, 32, signedValue<32>>(w, slots, l, out);
  }
}

/// To nearest even; NaN becomes the canonical one.
uint32_t singleCode(double x) {
  return x == x ? std::bit_cast<uint32_t>(static_cast<float>(x)) : 0x7fffffffu;
}
uint64_t doubleCode(double x) { return std::bit_cast<uint64_t>(x); }
uint32_t integerCode(int32_t x) { return static_cast<uint32_t>(x); }

void scatter(const Warp &w, const Slot *slots, const MatrixLayout &l, const double *in) {
  switch (l.type) {
  case Type::F16:
    return scatterEach<uint32_t, 16, narrowOnce<Half>>(w, slots, l, in);
  case Type::F32:
    return scatterEach<uint32_t, 32, singleCode>(w, slots, l, in);
  default:
    return scatterEach<uint64_t, 64, doubleCode>(w, slots, l, in);
  }
}

void scatter(const Warp &w, const Slot *slots, const MatrixLayout &l, const int32_t *in) {
  scatterEach<uint32_t, 32, integerCode>(w, slots, l, in);
}

// ---- products ----------------------------------------------------------------------------------

/// sums += a · b, each sum in the order of k. A column of sums is one vector.
template <unsigned m, typename Value>
void accumulateColumns(MatrixShape s, const Value *a, const Value *b, Value *sums) {
  using Column [[gnu::vector_size(m * sizeof(Value))]] = Value;
  for (unsigned j = 0; j < s.n; ++j) {
    Column sum, factor;
    std::memcpy(&sum, sums + j * m, sizeof(sum));
    for (unsigned k = 0; k < s.k; ++k) {
      std::memcpy(&factor, a + k * m, sizeof(factor));
      sum += factor * b[k * s.n + j];
    }
    std::memcpy(sums + j * m, &sum, sizeof(sum));
  }
}

template <typename Value>
void accumulate(MatrixShape s, const Value *a, const Value *b, Value *sums) {
  switch (s.m) {
  case 8:
    return accumulateColumns<8>(s, a, b, sums);
  case 16:
    return accumulateColumns<16>(s, a, b, sums);
  default:
    return accumulateColumns<32>(s, a, b, sums);
  }
}

/// The same of single bits, 32 of them a word.
void accumulateBits(MatrixShape s, const int32_t *a, const int32_t *b, bool isXor, int32_t *sums) {
  for (unsigned j = 0; j < s.n; ++j)
    for (unsigned k = 0; k < s.k / 32; ++k)
      for (unsigned i = 0; i < s.m; ++i) {
        // NOLINTNEXTLINE(clang-analyzer-core.*): gather has filled both.
        int32_t x = a[k * s.m + i], y = b[k * s.n + j];
        sums[j * s.m + i] += std::popcount(static_cast<uint32_t>(isXor ? x ^ y : x & y));
      }
}

/// c += products
void addIntegers(const int32_t *products, size_t count, bool saturate, int32_t *c) {
  for (size_t k = 0; k < count; ++k) {
    // NOLINTNEXTLINE(clang-analyzer-core.*): gather has filled it.
    int64_t sum = int64_t(c[k]) + products[k];
    if (saturate)
      sum = std::clamp<int64_t>(sum, std::numeric_limits<int32_t>::min(),
                                std::numeric_limits<int32_t>::max());
    c[k] = static_cast<int32_t>(sum);
  }
}

constexpr unsigned kScaled = 16; ///< elements of a line that share a scale

/// Multiplies the lines of a matrix with the scales of their blocks: slots data, byte-id,
/// thread-id. The selectors are the same in all lanes.
void applyScales(const Warp &w, const Slot *slots, Fragment fragment, const MatrixLayout &l,
                 unsigned k, double *elements) {
  const auto *data = w.reg<uint32_t>(slots[0]);
  const unsigned thread = *w.reg<uint16_t>(slots[2]);
  for (unsigned line = 0; line < l.lines; ++line) {
    const unsigned lane = fragment == Fragment::A ? 4 * (line % 8) + line / 8 + 2 * (thread & 1)
                                                  : 4 * line + (thread & 3);
    for (unsigned i = 0; i < k; ++i)
      // A scale has no sign: the bit is not looked at.
      elements[i * l.lines + line] *= valueOf<kE4M3>(data[lane] >> 8 * (i / kScaled) & 0x7f);
  }
}

/// Slots: d, a, b, c, and those of scales.
void multiply(Warp &w, const Instruction &i, Mask m) {
  if (!w.convergeWhole(i, m))
    return;
  const MatrixProduct &p = *w.launch.decoded.products[i.offset];
  const Slot *d = w.launch.decoded.slots.data() + i.extra;
  const Slot *a = d + p.d.registers, *b = a + p.a.registers, *c = b + p.b.registers;
  if (p.d.type != Type::S32) {
    double av[kMostElements], bv[kMostElements], sums[kMostSums];
    gather(w, a, p.a, av);
    gather(w, b, p.b, bv);
    gather(w, c, p.c, sums);
    if (p.isScaled) {
      const Slot *scales = c + p.c.registers;
      applyScales(w, scales, Fragment::A, p.a, p.shape.k, av);
      applyScales(w, scales + 3, Fragment::B, p.b, p.shape.k, bv);
    }
    accumulate(p.shape, av, bv, sums);
    return scatter(w, d, p.d, sums);
  }
  int32_t av[kMostElements], bv[kMostElements], sums[kMostSums];
  int32_t products[kMostSums] = {}; // at most 64 · 255 · 255
  gather(w, a, p.a, av);
  gather(w, b, p.b, bv);
  gather(w, c, p.c, sums);
  if (p.a.type == Type::B1)
    accumulateBits(p.shape, av, bv, p.isXor, products);
  else
    accumulate(p.shape, av, bv, products);
  addIntegers(products, size_t(p.shape.m) * p.shape.n, p.saturate, sums);
  scatter(w, d, p.d, sums);
}

} // namespace

void simt::decodeProduct(Decoder &d, MatrixProduct product) {
  auto &known = d.decoded.products;
  auto same =
      std::find_if(known.begin(), known.end(), [&](const auto &p) { return *p == product; });
  if (same == known.end())
    same = known.insert(known.end(), std::make_shared<MatrixProduct>(std::move(product)));
  const MatrixProduct &p = **same;
  d.i.opClass = OpClass::Matrix;
  d.i.offset = same - known.begin();
  d.i.extra = d.writeVector(d.operand(), registerType(p.d.type), p.d.registers);
  for (const MatrixLayout *source : {&p.a, &p.b, &p.c})
    d.readVector(d.operand(), registerType(source->type), source->registers);
  for (int matrix = 0; p.isScaled && matrix < 2; ++matrix) {
    d.readVector(d.operand(), Type::B32, 1);
    d.readVector(d.operand(), Type::U16, 2);
  }
  d.i.run = multiply;
}
