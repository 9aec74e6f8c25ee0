//===- AttentionTest.cpp - Attention against double precision -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"
#include "PagedMemory.h"
#include "SequenceTable.h"

#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Rope.h"

#include <cmath>
#include <limits>
#include <random>
#include <type_traits>
#include <utility>
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
  Cache(const AttentionSpec &spec, int64_t tokens, Pages order)
      : spec(spec), memory(cacheBytes(spec), (tokens + 63) / 64, order, -1) {}
  int64_t keyPlace(int64_t head, int64_t token, int64_t dim) const {
    int64_t block = head * 8 + token % 64 / 16;
    return at(token, (block * spec.headDim + dim) * 16 + token % 16);
  }
  int64_t valuePlace(int64_t head, int64_t token, int64_t dim) const {
    return at(token, ((head * 2 + 1) * 64 + token % 64) * spec.headDim + dim);
  }
  int64_t at(int64_t token, int64_t element) const {
    return memory.place(token / 64, element * static_cast<int64_t>(sizeof(T)));
  }
  const AttentionSpec &spec;
  PagedMemory memory;
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
  int64_t total = test.position + test.tokens;
  std::mt19937 random(static_cast<unsigned>(total));
  Rows q(test.tokens, spec.heads * spec.headDim, 3, test.querySize, random);
  Rows k(total, spec.kvHeads * spec.headDim, 1, test.keySize, random);
  Rows v(total, spec.kvHeads * spec.headDim, 2, 1.0f, random);
  if (!std::is_same_v<T, float> && total > 2)
    v.row(total - 2)[0] = 1e6f;
  auto kView = k.view(test.position, test.tokens), vView = v.view(test.position, test.tokens);
  auto qView = q.view(0, test.tokens);
  std::vector<float> sinks(spec.sinkLogits ? spec.heads : 0);
  for (size_t head = 0; head < sinks.size(); ++head) // one that takes nothing, one that takes all
    sinks[head] = head == 0 ? -200.0f : head == 1 ? 200.0f : static_cast<float>(head) / 2 - 1;

  std::vector<float> kInput(k.x.data(), k.x.data() + k.x.elementCount());
  std::vector<float> first;
  for (auto [threads, order] : {std::pair(1, Pages::InOrder), std::pair(1, Pages::Shuffled),
                                std::pair(2, Pages::InOrder), std::pair(3, Pages::Shuffled)}) {
    Cache<T> cache(spec, total, order);
    auto append = [&](int64_t begin, int64_t end) {
      for (int64_t h = 0; h < spec.kvHeads; ++h)
        for (int64_t t = begin; t < end; ++t)
          for (int64_t d = 0; d < spec.headDim; ++d) {
            cache.memory.write(cache.keyPlace(h, t, d), toCache<T>(k.row(t)[h * spec.headDim + d]));
            cache.memory.write(cache.valuePlace(h, t, d),
                               toCache<T>(v.row(t)[h * spec.headDim + d]));
          }
    };
    append(0, test.position);
    auto cacheView = cache.memory.view();
    auto pages = cache.memory.pages();
    int64_t bytes = threads * scratchBytes(spec, target);
    GuardedBuffer<int8_t> scratch(bytes, -1); // NaN where it is read as float
    MemRef<int8_t, 1> scratchView(scratch.data(), {bytes});
    int64_t yStride = q.columns + 5;
    GuardedBuffer<float> y((test.tokens - 1) * yStride + q.columns, kBetween);
    auto yView = MemRef<float, 2>::strided(y.data(), {test.tokens, q.columns}, yStride);
    SequenceTable table(test.tokens, test.position);
    auto sequences = table.view();
    if (spec.sinkLogits) {
      MemRef<float, 1> sinkView(sinks.data(), {spec.heads});
      run(qView, kView, vView, cacheView, pages, sequences, cache.memory.layer(), sinkView, yView,
          scratchView, static_cast<int64_t>(threads));
    } else {
      run(qView, kView, vView, cacheView, pages, sequences, cache.memory.layer(), yView,
          scratchView, static_cast<int64_t>(threads));
    }

    // The new tokens are there, and nothing else has changed.
    std::vector<int8_t> written = cache.memory.contents();
    append(test.position, total);
    ASSERT_TRUE(written == cache.memory.contents());
    if (!first.empty()) {
      ASSERT_EQ(std::memcmp(first.data(), y.data(), first.size() * sizeof(float)), 0)
          << threads << " threads, pages " << (order == Pages::Shuffled ? "shuffled" : "in order");
      continue;
    }
    first.assign(y.data(), y.data() + y.elementCount());

    // The result, from what the cache holds of k and v.
    for (Rows *x : {&k, &v})
      for (int64_t t = 0; t < total; ++t)
        for (int64_t c = 0; c < x->columns; ++c)
          x->row(t)[c] = static_cast<float>(toCache<T>(x->row(t)[c]));
    std::vector<double> expected(test.tokens * q.columns);
    numerics::reference::AttentionParams params{spec.heads,  spec.kvHeads, spec.headDim, spec.scale,
                                                spec.window, spec.bound,   sinks};
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
TEST(Attention, Bounded) {
  AttentionSpec spec{9, 3, 64, 0, 40, true}, wide{4, 1, 256, 0, 0, false};
  spec.bound = wide.bound = 0.75;
  checkAll(spec, kShapes);
  checkAll(wide, kShapes);
}
TEST(Attention, SinkLogits) {
  AttentionSpec spec{9, 3, 64, 0, 40, true}, wide{4, 1, 256, 0, 0, false},
      odd{14, 2, 50, 0, 0, false};
  for (AttentionSpec *each : {&spec, &wide, &odd})
    each->sinkLogits = true;
  wide.bound = 0.75;
  for (const AttentionSpec &each : {spec, wide, odd})
    checkAll(each, kShapes);
  checkAll(spec, {{1, 257}, {1, 1000}, {30, 700}});
}
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

// Two sequences begin alike. The second one has the first two pages of the other and one of its
// own, and both get the results of a sequence with pages of its own.
TEST(Attention, SharedPages) {
  for (const Target &target : testTargets())
    for (bool half : {false, true}) {
      AttentionSpec spec{9, 3, 64, 0.125, 0, half};
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
      std::mt19937 random(1);
      int64_t columns = spec.kvHeads * spec.headDim;
      Rows q(150, spec.heads * spec.headDim, 0, 1.0f, random), k(150, columns, 0, 1.0f, random),
          v(150, columns, 0, 1.0f, random), other(150, columns, 0, 1.0f, random);
      PagedMemory memory(cacheBytes(spec), 8, Pages::Shuffled, -1);
      GuardedBuffer<int8_t> scratch(scratchBytes(spec, target), -1);
      MemRef<int8_t, 1> scratchView(scratch.data(), {scratchBytes(spec, target)});
      auto call = [&](std::vector<int64_t> &table, const Rows &keys, int64_t position,
                      int64_t tokens) {
        std::vector<float> y(tokens * q.columns);
        MemRef<float, 2> qView = q.view(position, tokens), kView = keys.view(position, tokens),
                         vView = v.view(position, tokens), yView(y.data(), {tokens, q.columns});
        MemRef<int64_t, 1> pages(table.data(), {std::ssize(table)});
        auto bytes = memory.view();
        SequenceTable sequence(tokens, position);
        auto sequences = sequence.view();
        run(qView, kView, vView, bytes, pages, sequences, memory.layer(), yView, scratchView,
            int64_t(1));
        return y;
      };
      const std::vector<int64_t> &places = memory.table;
      std::vector<int64_t> one = {places[0], places[1], places[2]},
                           two = {places[0], places[1], places[3]},
                           alone = {places[4], places[5], places[6]};
      std::vector<float> first = call(one, k, 0, 128), shared = call(one, k, 128, 20);
      std::vector<float> ofTwo = call(two, other, 128, 20), later = call(one, k, 148, 1);
      EXPECT_EQ(first, call(alone, k, 0, 128));
      EXPECT_EQ(shared, call(alone, k, 128, 20));
      EXPECT_EQ(later, call(alone, k, 148, 1));
      EXPECT_EQ(ofTwo, call(alone, other, 128, 20));
    }
}

// Sequences of different lengths in one call, few and many for the threads: each gets the bits that
// it gets alone, and so does its cache.
TEST(Attention, ManySequences) {
  struct Part {
    int64_t rows, position;
  };
  const std::vector<std::vector<Part>> batches = {
      {{1, 5}, {1, 300}},
      {{1, 0}, {30, 0}, {1, 700}, {5, 62}, {1, 63}},
      {{1, 9}, {1, 64}, {1, 1}, {1, 2000}, {1, 255}, {1, 256}, {1, 3}, {1, 90}},
      {{20, 0}, {3, 100}, {64, 64}}};
  for (const Target &target : testTargets())
    for (AttentionSpec spec :
         {AttentionSpec{9, 3, 64, 0.125, 0, true}, AttentionSpec{4, 2, 12, 0.25, 40, false}}) {
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
      for (const std::vector<Part> &batch : batches) {
        std::mt19937 random(3);
        int64_t rows = 0, pageCount = 0;
        for (const Part &part : batch) {
          rows += part.rows;
          pageCount += (part.position + part.rows + 63) / 64;
        }
        Rows q(rows, spec.heads * spec.headDim, 3, 1.0f, random),
            k(rows, spec.kvHeads * spec.headDim, 1, 1.0f, random),
            v(rows, spec.kvHeads * spec.headDim, 2, 1.0f, random);
        auto call = [&](PagedMemory &memory, MemRef<int64_t, 1> pages, SequenceTable &table,
                        int64_t first, int64_t count, int64_t threads) {
          std::vector<float> y(count * q.columns);
          auto qView = q.view(first, count), kView = k.view(first, count),
               vView = v.view(first, count);
          MemRef<float, 2> yView(y.data(), {count, q.columns});
          int64_t bytes = threads * scratchBytes(spec, target);
          GuardedBuffer<int8_t> scratch(bytes, -1);
          MemRef<int8_t, 1> scratchView(scratch.data(), {bytes}), cache = memory.view();
          auto sequences = table.view();
          run(qView, kView, vView, cache, pages, sequences, memory.layer(), yView, scratchView,
              threads);
          return y;
        };
        // What is in the caches before.
        PagedMemory before(cacheBytes(spec), pageCount, Pages::Shuffled, 0);
        std::uniform_int_distribution<int> small(0, 20);
        for (int8_t &byte : std::span(before.view().aligned, before.contents().size()))
          byte = static_cast<int8_t>(small(random));

        std::vector<float> expected;
        std::vector<int8_t> cacheAfter;
        {
          PagedMemory memory = before;
          int64_t first = 0, page = 0;
          for (const Part &part : batch) {
            int64_t count = (part.position + part.rows + 63) / 64;
            SequenceTable table(part.rows, part.position);
            std::vector<float> y =
                call(memory, {memory.table.data() + page, {count}}, table, first, part.rows, 1);
            expected.insert(expected.end(), y.begin(), y.end());
            first += part.rows;
            page += count;
          }
          cacheAfter = memory.contents();
        }
        for (int64_t threads : {1, 2, 3, 16}) {
          PagedMemory memory = before;
          SequenceTable table;
          int32_t page = 0;
          for (const Part &part : batch) {
            table.add(part.rows, part.position).first_page = page;
            page += static_cast<int32_t>((part.position + part.rows + 63) / 64);
          }
          EXPECT_TRUE(call(memory, memory.pages(), table, 0, rows, threads) == expected)
              << target.name().str() << " " << symbolName(spec) << ", " << batch.size()
              << " sequences, " << threads << " threads";
          EXPECT_TRUE(memory.contents() == cacheAfter);
        }
      }
    }
}

// A prompt at once, in pieces and token by token: all of them are the same bits, with any number of
// threads.
TEST(Attention, PiecesAreTheSameBits) {
  constexpr int64_t kTokens = 600;
  for (const Target &target : testTargets())
    for (AttentionSpec spec :
         {AttentionSpec{9, 3, 64, 0.125, 0, true}, AttentionSpec{3, 3, 12, 0.25, 5, false},
          AttentionSpec{6, 2, 32, 0.25, 300, true}, AttentionSpec{40, 1, 8, 0.5, 0, false}}) {
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
      std::mt19937 random(6);
      Rows q(kTokens, spec.heads * spec.headDim, 3, 2.0f, random),
          k(kTokens, spec.kvHeads * spec.headDim, 1, 2.0f, random),
          v(kTokens, spec.kvHeads * spec.headDim, 2, 1.0f, random);
      auto inPieces = [&](int64_t piece, int64_t threads) {
        PagedMemory memory(cacheBytes(spec), (kTokens + 63) / 64, Pages::Shuffled, -1);
        int64_t bytes = threads * scratchBytes(spec, target);
        GuardedBuffer<int8_t> scratch(bytes, -1);
        MemRef<int8_t, 1> scratchView(scratch.data(), {bytes}), cache = memory.view();
        auto pages = memory.pages();
        std::vector<float> y(kTokens * q.columns);
        for (int64_t first = 0; first < kTokens; first += piece) {
          const int64_t count = std::min(piece, kTokens - first);
          SequenceTable table(count, first);
          auto sequences = table.view();
          auto qView = q.view(first, count), kView = k.view(first, count),
               vView = v.view(first, count);
          MemRef<float, 2> yView(y.data() + first * q.columns, {count, q.columns});
          run(qView, kView, vView, cache, pages, sequences, memory.layer(), yView, scratchView,
              threads);
        }
        return y;
      };
      const std::vector<float> atOnce = inPieces(kTokens, 1);
      for (auto [piece, threads] : {std::pair<int64_t, int64_t>(1, 2), {64, 2}, {3, 1}, {97, 3}})
        EXPECT_EQ(std::memcmp(inPieces(piece, threads).data(), atOnce.data(),
                              atOnce.size() * sizeof(float)),
                  0)
            << target.name().str() << " " << symbolName(spec) << ", pieces of " << piece << ", "
            << threads << " threads";
    }
}

// What is not yet rotated: the bits of the rotation of queries and of keys, then attention.
TEST(Attention, RotatesWhatItAppends) {
  constexpr int64_t kPositions = 800;
  for (const Target &target : testTargets())
    for (AttentionSpec spec :
         {AttentionSpec{9, 3, 64, 0.125, 0, true}, AttentionSpec{4, 2, 12, 0.25, 40, false},
          AttentionSpec{4, 1, 20, 0.25, 0, false, std::nullopt, 0, 14}}) {
      AttentionSpec rotating = spec;
      rotating.positions = kPositions;
      RopeSpec queries{spec.heads, spec.headDim, kPositions, false, spec.rotated()}, keys = queries;
      keys.heads = spec.kvHeads;
      KernelRunner rotateQueries(
          target, [&](ModuleOp module) { return getOrEmitRope(module, queries, target); });
      KernelRunner rotateKeys(target,
                              [&](ModuleOp module) { return getOrEmitRope(module, keys, target); });
      KernelRunner attend(
          target, [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
      KernelRunner together(
          target, [&](ModuleOp module) { return getOrEmitAttention(module, rotating, target); });
      std::vector<float> angles = *numerics::ropeTable({.dims = spec.rotated()}, kPositions);
      MemRef<float, 3> angleView(angles.data(), {kPositions, spec.rotated() / 2, 2});

      auto outcome = [&](bool isFused, int64_t threads) {
        std::mt19937 random(9);
        SequenceTable table(30, 0);
        table.add(1, 700).first_page = 1;
        table.add(19, 60).first_page = 12;
        constexpr int64_t kRows = 50, kPages = 14;
        PagedMemory memory(cacheBytes(spec), kPages, Pages::Shuffled, 0);
        Rows q(kRows, spec.heads * spec.headDim, 3, 1.0f, random),
            k(kRows, spec.kvHeads * spec.headDim, 1, 1.0f, random),
            v(kRows, spec.kvHeads * spec.headDim, 2, 1.0f, random);
        auto qView = q.view(0, kRows), kView = k.view(0, kRows), vView = v.view(0, kRows);
        std::vector<float> y(kRows * q.columns);
        MemRef<float, 2> yView(y.data(), {kRows, q.columns});
        int64_t bytes = threads * scratchBytes(spec, target);
        GuardedBuffer<int8_t> scratch(bytes, -1);
        MemRef<int8_t, 1> scratchView(scratch.data(), {bytes}), cache = memory.view();
        auto pages = memory.pages();
        auto sequences = table.view();
        if (isFused) {
          together(qView, kView, vView, cache, pages, sequences, memory.layer(), angleView, yView,
                   scratchView, threads);
        } else {
          rotateQueries(qView, angleView, sequences, threads);
          rotateKeys(kView, angleView, sequences, threads);
          attend(qView, kView, vView, cache, pages, sequences, memory.layer(), yView, scratchView,
                 threads);
        }
        return std::pair(y, memory.contents());
      };
      auto expected = outcome(false, 1);
      for (int64_t threads : {1, 2, 5})
        EXPECT_TRUE(outcome(true, threads) == expected)
            << target.name().str() << " " << symbolName(rotating) << ", " << threads << " threads";
    }
}
