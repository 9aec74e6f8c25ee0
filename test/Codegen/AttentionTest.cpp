//===- AttentionTest.cpp - Attention against double precision -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/Reference.h"

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
namespace numerics = easyquant::numerics;

namespace {

constexpr float kBetween = 55.0f;

/// Random rows, `padding` elements apart.
struct Rows {
  Rows(int64_t rows, int64_t columns, int64_t padding, float size, std::mt19937 &random)
      : rows(rows), columns(columns), stride(columns + padding),
        x((rows - 1) * stride + columns, kBetween) {
    std::normal_distribution<float> normal;
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t c = 0; c < columns; ++c)
        x[m * stride + c] = size * normal(random);
  }
  float *row(int64_t m) const { return x.data() + m * stride; }
  MemRef<float, 2> view(int64_t first, int64_t count) const {
    return MemRef<float, 2>::strided(row(first), {count, columns}, stride);
  }
  numerics::ConstMatrix matrix() const { return {x.data(), rows, columns, stride}; }
  int64_t rows, columns, stride;
  GuardedBuffer<float> x;
};

/// One layer's cache of T, filled with NaN. The layout is written down here a second time.
template <typename T> struct Cache {
  Cache(const AttentionSpec &spec, int64_t capacity)
      : spec(spec), capacity(capacity),
        keys(spec.kvHeads * capacity * spec.headDim, static_cast<T>(std::nanf(""))),
        values(keys.elementCount(), static_cast<T>(std::nanf(""))) {}
  T &key(int64_t head, int64_t token, int64_t dim) const {
    int64_t block = head * (capacity / 16) + token / 16;
    return keys[(block * spec.headDim + dim) * 16 + token % 16];
  }
  T &value(int64_t head, int64_t token, int64_t dim) const {
    return values[(head * capacity + token) * spec.headDim + dim];
  }
  const AttentionSpec &spec;
  int64_t capacity;
  GuardedBuffer<T> keys, values;
};

template <typename T> T toCache(float x) {
  if constexpr (!std::is_same_v<T, float>)
    x = std::clamp(x, -65504.0f, 65504.0f);
  return static_cast<T>(x);
}

struct Case {
  int64_t tokens, position;
  float querySize = 1.0f, keySize = 1.0f;
};

/// One call with `position` tokens in the cache; everything that it writes is compared.
template <typename T>
void check(const Target &target, const AttentionSpec &spec, const KernelRunner &run, Case test) {
  SCOPED_TRACE(target.name().str() + " " + symbolName(spec) + ", " + std::to_string(test.tokens) +
               " tokens at " + std::to_string(test.position));
  int64_t total = test.position + test.tokens, capacity = (total + 15) / 16 * 16;
  std::mt19937 random(static_cast<unsigned>(total));
  Rows q(test.tokens, spec.heads * spec.headDim, 3, test.querySize, random);
  Rows k(total, spec.kvHeads * spec.headDim, 1, test.keySize, random);
  Rows v(total, spec.kvHeads * spec.headDim, 2, 1.0f, random);
  if (!std::is_same_v<T, float> && total > 2)
    v.row(total - 2)[0] = 1e6f;
  auto kView = k.view(test.position, test.tokens), vView = v.view(test.position, test.tokens);
  auto qView = q.view(0, test.tokens);

  std::vector<float> kInput(k.x.data(), k.x.data() + k.x.elementCount());
  std::vector<float> first;
  for (int64_t threads : {1, 2, 3}) {
    Cache<T> cache(spec, capacity);
    for (int64_t h = 0; h < spec.kvHeads; ++h)
      for (int64_t t = 0; t < test.position; ++t)
        for (int64_t d = 0; d < spec.headDim; ++d) {
          cache.key(h, t, d) = toCache<T>(k.row(t)[h * spec.headDim + d]);
          cache.value(h, t, d) = toCache<T>(v.row(t)[h * spec.headDim + d]);
        }
    MemRef<T, 1> keys(cache.keys.data(), {static_cast<int64_t>(cache.keys.elementCount())});
    MemRef<T, 1> values(cache.values.data(), {static_cast<int64_t>(cache.values.elementCount())});
    int64_t bytes = threads * scratchBytes(spec, target);
    GuardedBuffer<int8_t> scratch(bytes, -1); // NaN to whoever reads it as float
    MemRef<int8_t, 1> scratchView(scratch.data(), {bytes});
    int64_t yStride = q.columns + 5;
    GuardedBuffer<float> y((test.tokens - 1) * yStride + q.columns, kBetween);
    auto yView = MemRef<float, 2>::strided(y.data(), {test.tokens, q.columns}, yStride);
    run(qView, kView, vView, keys, values, test.position, yView, scratchView, threads);

    if (threads > 1) {
      ASSERT_TRUE(std::equal(first.begin(), first.end(), y.data())) << threads << " threads";
      continue;
    }
    first.assign(y.data(), y.data() + y.elementCount());

    // The cache: old and new tokens, and nothing behind them.
    for (int64_t h = 0; h < spec.kvHeads; ++h)
      for (int64_t t = 0; t < capacity; ++t)
        for (int64_t d = 0; d < spec.headDim; ++d) {
          if (t >= total) {
            ASSERT_TRUE(std::isnan(static_cast<float>(cache.key(h, t, d))));
            ASSERT_TRUE(std::isnan(static_cast<float>(cache.value(h, t, d))));
            continue;
          }
          ASSERT_EQ(cache.key(h, t, d), toCache<T>(k.row(t)[h * spec.headDim + d]));
          ASSERT_EQ(cache.value(h, t, d), toCache<T>(v.row(t)[h * spec.headDim + d]));
        }

    // The result, from what the cache holds of k and v.
    for (Rows *x : {&k, &v})
      for (int64_t t = 0; t < total; ++t)
        for (int64_t c = 0; c < x->columns; ++c)
          x->row(t)[c] = static_cast<float>(toCache<T>(x->row(t)[c]));
    std::vector<double> expected(test.tokens * q.columns);
    numerics::reference::AttentionParams params{spec.heads, spec.kvHeads, spec.headDim, spec.scale,
                                                spec.window};
    numerics::reference::attention(q.matrix(), k.matrix(), v.matrix(), params, test.position,
                                   {expected.data(), test.tokens, q.columns});
    // Scores s carry an error of D 2^-24 |q| |k| scale at most, and e^s passes it on: with |q_i|,
    // |k_i| of about querySize and keySize, 2^-17 of the largest value of the column leaves room.
    std::vector<double> bounds(v.columns);
    for (int64_t t = 0; t < total; ++t)
      for (int64_t c = 0; c < v.columns; ++c)
        bounds[c] = std::max(bounds[c], 0x1p-17 * std::max(1.0f, test.querySize * test.keySize) *
                                            std::abs(v.row(t)[c]));
    int64_t groupColumns = q.columns / spec.kvHeads;
    auto bound = [&](int64_t c) {
      return bounds[c / groupColumns * spec.headDim + c % spec.headDim];
    };
    for (int64_t m = 0; m < test.tokens; ++m)
      for (int64_t c = 0; c < yStride && m * yStride + c < static_cast<int64_t>(y.elementCount());
           ++c) {
        if (c >= q.columns)
          ASSERT_EQ(y[m * yStride + c], kBetween) << "written between rows";
        else
          ASSERT_NEAR(y[m * yStride + c], expected[m * q.columns + c], bound(c))
              << "row " << m << ", column " << c;
      }
    std::copy(kInput.begin(), kInput.end(), k.x.data());
  }
}

void checkAll(AttentionSpec spec, std::initializer_list<Case> cases) {
  spec.scale = 1.0 / std::sqrt(static_cast<double>(spec.headDim));
  for (const Target &target : testTargets()) {
    KernelRunner run(target,
                     [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
    for (Case test : cases) {
      if (spec.halfCache)
        check<_Float16>(target, spec, run, test);
      else
        check<float>(target, spec, run, test);
      if (::testing::Test::HasFatalFailure())
        return;
    }
  }
}

constexpr std::initializer_list<Case> kShapes = {
    {1, 0},  {1, 1},  {1, 15}, {1, 16}, {1, 17},  {1, 100}, {2, 0},   {2, 15},   {3, 0},
    {3, 14}, {3, 16}, {17, 0}, {17, 1}, {17, 15}, {17, 16}, {17, 17}, {17, 100}, {80, 0}};

} // namespace

TEST(Attention, GroupedQueries) { checkAll({9, 3, 64, 0, 0, false}, kShapes); }
TEST(Attention, HalfCache) { checkAll({9, 3, 64, 0, 0, true}, kShapes); }
TEST(Attention, Window) { checkAll({9, 3, 64, 0, 5, false}, kShapes); }
TEST(Attention, WindowAndHalfCache) { checkAll({4, 2, 96, 0, 40, true}, kShapes); }
TEST(Attention, EveryHeadItsOwn) { checkAll({3, 3, 64, 0, 0, false}, kShapes); }
TEST(Attention, SmallHeads) { checkAll({8, 4, 8, 0, 0, false}, kShapes); }
TEST(Attention, HeadsThatNoVectorDivides) { checkAll({4, 2, 12, 0, 7, false}, kShapes); }
TEST(Attention, SmallestHeads) { checkAll({2, 1, 2, 0, 0, true}, kShapes); }
TEST(Attention, SevenHeadsShare) { checkAll({14, 2, 50, 0, 0, false}, kShapes); }
TEST(Attention, ManyHeadsShare) { checkAll({34, 1, 16, 0, 0, true}, kShapes); }
TEST(Attention, WideHeads) { checkAll({4, 1, 128, 0, 0, false}, kShapes); }

// Several stretches of tokens, combined.
TEST(Attention, LongContext) {
  checkAll({9, 3, 64, 0, 0, false},
           {{1, 255}, {1, 256}, {1, 257}, {1, 1000}, {1, 5000}, {30, 700}});
  checkAll({9, 3, 64, 0, 300, true}, {{1, 299}, {1, 300}, {1, 1000}, {30, 700}});
}

// Scores of some hundreds: one token takes all the weight.
TEST(Attention, LargeScores) {
  checkAll({9, 3, 64, 0, 0, false}, {{1, 100, 30.0f, 4.0f}, {17, 40, 30.0f, 4.0f}});
}
