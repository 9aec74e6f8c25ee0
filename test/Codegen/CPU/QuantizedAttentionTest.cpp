//===- QuantizedAttentionTest.cpp - A cache of codes against Numerics -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Sessions of several calls. After each, every code and slice that the cache must hold is compared
// with easyquant/Numerics/KVCache.h, to the bit, and the result with attention in double precision
// over what the call was to see.
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"
#include "PagedMemory.h"
#include "SequenceTable.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/KVCache.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Rope.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
namespace numerics = easyquant::numerics;

namespace {

/// One layer's cache. Kernels.h lays it out; that is written down here a second time.
template <typename T> struct Cache {
  Cache(const AttentionSpec &spec, int64_t tokens, Pages order)
      : spec(spec), kv(*spec.kv), page(std::max<int64_t>(64, kv.group)),
        memory(cacheBytes(spec), (tokens + page - 1) / page, order, int8_t(0)) {
    auto aligned = [](int64_t size) { return (size + 63) / 64 * 64; };
    int64_t tokenSlices = 2 * slices() * page * int64_t(sizeof(T));
    int64_t channelSlices = page / kv.group * 2 * spec.headDim * int64_t(sizeof(T));
    valueCodes = page * words() * 4;
    valueSlices = valueCodes + page * spec.headDim * kv.bits / 8;
    keySlices = valueSlices + tokenSlices;
    headBytes = aligned(keySlices + (kv.keysPerToken ? tokenSlices : channelSlices));
  }
  int64_t fields() const { return 32 / kv.bits; }
  int64_t words() const { return (spec.headDim + fields() - 1) / fields(); }
  int64_t width() const { return std::min(kv.group, spec.headDim); }
  int64_t slices() const { return spec.headDim / width(); }

  /// Element `index` of a part of the head's page that holds number i of the codes.
  template <typename U> U read(int64_t h, int64_t i, int64_t part, int64_t index) const {
    int64_t at = h * headBytes + part + index * int64_t(sizeof(U));
    return memory.read<U>(memory.place(i / page, at));
  }
  uint8_t keyCode(int64_t h, int64_t i, int64_t d) const {
    int64_t block = i % page / 16;
    auto word = read<uint32_t>(h, i, 0, (block * words() + d / fields()) * 16 + i % 16);
    return (word >> (d % fields() * kv.bits)) & ((1u << kv.bits) - 1);
  }
  uint8_t valueCode(int64_t h, int64_t i, int64_t d) const {
    int64_t block = i % page / 16, row = block * 16 / fields() + i % 16 / fields();
    auto word = read<uint32_t>(h, i, valueCodes, row * spec.headDim + d);
    return (word >> (i % fields() * kv.bits)) & ((1u << kv.bits) - 1);
  }
  numerics::KVSlice tokenSlice(int64_t part, int64_t h, int64_t i, int64_t d) const {
    int64_t index = d / width() * page + i % page;
    return {float(read<T>(h, i, part, index)), float(read<T>(h, i, part, index + slices() * page))};
  }
  numerics::KVSlice keySlice(int64_t h, int64_t i, int64_t d) const {
    if (kv.keysPerToken)
      return tokenSlice(keySlices, h, i, d);
    int64_t index = i % page / kv.group * 2 * spec.headDim + d;
    return {float(read<T>(h, i, keySlices, index)),
            float(read<T>(h, i, keySlices, index + spec.headDim))};
  }
  numerics::KVSlice valueSlice(int64_t h, int64_t i, int64_t d) const {
    return tokenSlice(valueSlices, h, i, d);
  }

  const AttentionSpec &spec;
  KVQuantization kv;
  int64_t page;
  int64_t held = 0; ///< tokens that the cache has seen
  PagedMemory memory;
  int64_t valueCodes, valueSlices, keySlices, headBytes;
};

std::vector<float> random(int64_t count, float size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(count);
  for (float &v : x)
    v = size * normal(engine);
  return x;
}

struct Session {
  std::vector<int64_t> calls; ///< tokens of each
  int64_t truncateTo = -1;    ///< after all but the last call
};

template <typename T> class SessionTest {
public:
  SessionTest(const Target &target, const AttentionSpec &spec, const KernelRunner &run,
              const Session &session)
      : target(target), spec(spec), run(run), session(session) {
    const KVQuantization &kv = *spec.kv;
    scheme = {kv.bits, kv.group, kv.residual, kv.sinks,
              kv.keysPerToken ? numerics::KeySlices::Token : numerics::KeySlices::Channel};
    int64_t total = 0;
    for (int64_t tokens : session.calls)
      total += tokens;
    columns = spec.kvHeads * spec.headDim;
    k = random(total * columns, 1.0f, 1), v = random(total * columns, 1.0f, 2);
    q = random(total * spec.heads * spec.headDim, 1.0f, 3);
    for (int64_t t = 0; t < total; ++t) {
      k[t * columns] = 20.0f + k[t * columns]; // an outlier channel
      k[t * columns + 1] = 0.25f;              // a constant one
      v[t * columns + 2] *= 1e-6f;
    }
    std::fill_n(v.begin() + total / 2 * columns, columns, 0.0f);
    if (sizeof(T) == 2)
      k[total / 3 * columns + 2] = 1e6f; // saturates
    if (kv.ropePositions > 0) {
      auto made = numerics::ropeTable({.dims = spec.rotated(), .theta = 10000.0}, kv.ropePositions);
      table = std::move(*made);
    }
    given = k;
    if (kv.hadamard > 0) // what the kernel is to make of its keys
      numerics::rotateActivation(k, kv.hadamard);
    all = total;
  }

  /// All outputs of a session, checked on the way.
  std::vector<float> play(int64_t threads, Pages order) {
    Cache<T> cache(spec, all, order);
    std::vector<float> outputs;
    int64_t position = 0;
    for (size_t call = 0; call < session.calls.size(); ++call) {
      if (call + 1 == session.calls.size() && session.truncateTo >= 0)
        position = truncate(cache, position);
      int64_t tokens = session.calls[call];
      SCOPED_TRACE(std::to_string(tokens) + " tokens at " + std::to_string(position));
      std::vector<float> y = step(cache, position, tokens, threads);
      position += tokens;
      checkCodes(cache, position);
      if (testing::Test::HasFatalFailure())
        break;
      outputs.insert(outputs.end(), y.begin(), y.end());
    }
    return outputs;
  }

private:
  numerics::CacheFloat type() const {
    return sizeof(T) == 2 ? numerics::CacheFloat::F16 : numerics::CacheFloat::F32;
  }

  /// What comes next follows `truncateTo` tokens. Rows of the window that later tokens have taken
  /// come back as their codes say; from there on the session is that of these tokens.
  int64_t truncate(const Cache<T> &cache, int64_t held) {
    int64_t to = session.truncateTo;
    for (int64_t t = std::max(scheme.sinks, to - scheme.residual); t < to; ++t)
      if (t + scheme.residual < held)
        for (int64_t c = 0; c < columns; ++c) {
          int64_t h = c / spec.headDim, d = c % spec.headDim, i = t - scheme.sinks;
          k[t * columns + c] =
              numerics::dequantizeKV(cache.keyCode(h, i, d), cache.keySlice(h, i, d));
          v[t * columns + c] =
              numerics::dequantizeKV(cache.valueCode(h, i, d), cache.valueSlice(h, i, d));
        }
    // The last call brings other tokens.
    for (std::vector<float> *x : {&k, &given, &v})
      for (size_t at = to * columns; at < x->size(); ++at)
        (*x)[at] = -0.5f * (*x)[at];
    truncated = true;
    return to;
  }

  std::vector<float> step(Cache<T> &cache, int64_t position, int64_t tokens, int64_t threads) {
    int64_t qColumns = spec.heads * spec.headDim;
    GuardedBuffer<float> kRows(tokens * columns), vRows(tokens * columns),
        y(tokens * qColumns, 55.0f);
    std::copy_n(given.data() + position * columns, tokens * columns, kRows.data());
    std::copy_n(v.data() + position * columns, tokens * columns, vRows.data());
    sinks.clear();
    for (int64_t head = 0; spec.sinkLogits && head < spec.heads; ++head)
      sinks.push_back(static_cast<float>(head) / 2 - 1);
    std::vector<float> rotated(q);
    if (spec.kv->ropePositions > 0)
      rotate(q, spec.heads, rotated);
    MemRef<float, 2> qView(rotated.data() + position * qColumns, {tokens, qColumns});
    MemRef<float, 2> kView(kRows.data(), {tokens, columns}), vView(vRows.data(), {tokens, columns});
    MemRef<float, 2> yView(y.data(), {tokens, qColumns});
    MemRef<int8_t, 1> bytes = cache.memory.view();
    MemRef<int64_t, 1> pages = cache.memory.pages();
    int64_t layer = cache.memory.layer(), window = cache.memory.window();
    int64_t windows = cache.memory.windows();
    SequenceTable sequenceTable;
    sequenceTable.add(tokens, position).held = static_cast<int32_t>(std::max(cache.held, position));
    auto sequences = sequenceTable.view();
    int64_t scratchSize = threads * scratchBytes(spec, target);
    GuardedBuffer<int8_t> scratch(scratchSize, -1); // NaN where it is read as float
    MemRef<int8_t, 1> scratchView(scratch.data(), {scratchSize});
    if (spec.sinkLogits) {
      MemRef<float, 1> sinkView(sinks.data(), {spec.heads});
      run(qView, kView, vView, bytes, pages, sequences, layer, window, windows, sinkView, yView,
          scratchView, threads);
    } else if (spec.kv->ropePositions > 0) {
      MemRef<float, 3> tableView(table.data(), {spec.kv->ropePositions, spec.rotated() / 2, 2});
      run(qView, kView, vView, bytes, pages, sequences, layer, window, windows, tableView, yView,
          scratchView, threads);
    } else {
      run(qView, kView, vView, bytes, pages, sequences, layer, window, windows, yView, scratchView,
          threads);
    }
    cache.held = position + tokens;
    std::vector<float> result(y.data(), y.data() + tokens * qColumns);
    if (spec.kv->hadamard > 0)
      numerics::rotateActivation(rotated, spec.kv->hadamard);
    checkResult(rotated, position, tokens, result);
    return result;
  }

  void rotate(const std::vector<float> &x, int64_t heads, std::vector<float> &out) const {
    int64_t width = heads * spec.headDim, rows = int64_t(x.size()) / width;
    std::vector<double> exact(x.size());
    numerics::reference::rope({x.data(), rows, width}, table, spec.headDim, 0,
                              {exact.data(), rows, width}, spec.rotated());
    out.assign(exact.begin(), exact.end());
  }

  void checkResult(const std::vector<float> &queries, int64_t position, int64_t tokens,
                   const std::vector<float> &y) {
    int64_t total = position + tokens, qColumns = spec.heads * spec.headDim;
    std::vector<float> seenK(total * columns), seenV(total * columns);
    ASSERT_TRUE(numerics::seenKeysAndValues(
        {k.data(), total, columns}, {v.data(), total, columns}, scheme, spec.headDim, type(),
        position, {seenK.data(), total, columns}, {seenV.data(), total, columns}));
    if (spec.kv->ropePositions > 0)
      rotate(std::vector<float>(seenK), spec.kvHeads, seenK);
    std::vector<double> expected(tokens * qColumns);
    numerics::reference::AttentionParams params{spec.heads,  spec.kvHeads, spec.headDim, spec.scale,
                                                spec.window, spec.bound,   sinks};
    numerics::reference::attention({queries.data() + position * qColumns, tokens, qColumns},
                                   {seenK.data(), total, columns}, {seenV.data(), total, columns},
                                   params, position, {expected.data(), tokens, qColumns});
    // As in AttentionTest: a score s carries an error of D 2^-24 |q| |k| scale, and e^s passes it
    // on times the largest value. Slices add their minima to codes, each as large as the outlier.
    double keySize = 1, valueSize = 1;
    for (int64_t at = 0; at < total * columns; ++at) {
      keySize = std::max(keySize, std::abs(double{seenK[at]}));
      valueSize = std::max(valueSize, std::abs(double{seenV[at]}));
    }
    double bound = 0x1p-17 * keySize * valueSize;
    for (int64_t at = 0; at < tokens * qColumns; ++at)
      ASSERT_NEAR(y[at], expected[at], bound)
          << "row " << at / qColumns << ", column " << at % qColumns;
  }

  void checkCodes(const Cache<T> &cache, int64_t position) {
    // What the newest token has made room for: a call at position - 1 sees no less.
    auto keys = numerics::quantizeKeys({k.data(), position, columns}, scheme, spec.headDim, type());
    auto values =
        numerics::quantizeValues({v.data(), position, columns}, scheme, spec.headDim, type());
    ASSERT_TRUE(keys && values);
    int64_t keyEnd = numerics::quantizedKeys(scheme, position - 1);
    int64_t valueEnd = numerics::quantizedValues(scheme, position - 1);
    // Where a truncated session goes on, codes from before are those of what was there.
    int64_t begin = truncated ? std::max(scheme.sinks, session.truncateTo) : scheme.sinks;
    auto same = [&](uint8_t code, numerics::KVSlice slice, const numerics::QuantizedKV &q,
                    int64_t at) {
      ASSERT_EQ(code, q.codes[at]);
      ASSERT_EQ(slice.minimum, q.slices[at].minimum);
      ASSERT_EQ(slice.scale, q.slices[at].scale);
    };
    for (int64_t t = begin; t < std::max(keyEnd, valueEnd); ++t)
      for (int64_t c = 0; c < columns; ++c) {
        SCOPED_TRACE("token " + std::to_string(t) + ", column " + std::to_string(c));
        int64_t h = c / spec.headDim, d = c % spec.headDim, i = t - scheme.sinks,
                at = t * columns + c;
        if (t < keyEnd)
          same(cache.keyCode(h, i, d), cache.keySlice(h, i, d), *keys, at);
        if (t < valueEnd)
          same(cache.valueCode(h, i, d), cache.valueSlice(h, i, d), *values, at);
        if (testing::Test::HasFatalFailure())
          return;
      }
  }

  const Target &target;
  const AttentionSpec &spec;
  const KernelRunner &run;
  const Session &session;
  numerics::KVScheme scheme;
  std::vector<float> q, k, v, table, sinks;
  std::vector<float> given; ///< the keys as the kernel gets them; `k` are those that it keeps
  int64_t columns, all;
  bool truncated = false;
};

void checkAll(AttentionSpec spec, const std::vector<Session> &sessions) {
  spec.scale = 1.0 / std::sqrt(static_cast<double>(spec.headDim));
  for (const Target &target : testTargets()) {
    KernelRunner run(target,
                     [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
    for (const Session &session : sessions) {
      SCOPED_TRACE(target.name().str() + " " + symbolName(spec));
      std::vector<float> first;
      for (auto [threads, order] : {std::pair(1, Pages::InOrder), std::pair(2, Pages::Shuffled),
                                    std::pair(3, Pages::InOrder)}) {
        std::vector<float> y =
            spec.halfCache ? SessionTest<_Float16>(target, spec, run, session).play(threads, order)
                           : SessionTest<float>(target, spec, run, session).play(threads, order);
        if (testing::Test::HasFatalFailure())
          return;
        if (!first.empty())
          ASSERT_EQ(first, y) << threads << " threads";
        first = y;
      }
    }
  }
}

/// Decoding across two flushes, and chunks that begin and end at, before and behind one.
std::vector<int64_t> ones(int64_t count) { return std::vector<int64_t>(count, 1); }
const std::vector<Session> kSessions = {
    {ones(90)}, {{17, 2, 1, 1, 17, 40, 1, 3, 1}}, {{36, 1, 32, 1, 100, 1}}, {{35, 1, 1}}};

constexpr KVQuantization kv(int bits, int64_t group, int64_t residual, int64_t sinks,
                            bool keysPerToken = false, int64_t positions = 0) {
  return {bits, group, residual, sinks, keysPerToken, positions};
}
constexpr KVQuantization rotated(int bits, int64_t group, int64_t residual, int64_t sinks,
                                 int64_t hadamard) {
  return {bits, group, residual, sinks, /*keysPerToken=*/true, /*ropePositions=*/0, hadamard};
}

} // namespace

TEST(QuantizedAttention, Int8) { checkAll({9, 3, 64, 0, 0, false, kv(8, 32, 32, 4)}, kSessions); }
TEST(QuantizedAttention, Int4) { checkAll({9, 3, 64, 0, 0, true, kv(4, 32, 32, 4)}, kSessions); }
TEST(QuantizedAttention, Int2) { checkAll({9, 3, 64, 0, 0, true, kv(2, 16, 32, 3)}, kSessions); }
TEST(QuantizedAttention, SmallHeads) {
  checkAll({8, 4, 8, 0, 0, true, kv(2, 16, 16, 0)}, kSessions);
  checkAll({2, 2, 24, 0, 0, false, kv(4, 32, 32, 1)}, {{{70, 1, 1, 30, 1}}});
}
TEST(QuantizedAttention, ManyHeadsShare) {
  checkAll({7, 1, 40, 0, 0, true, kv(8, 64, 64, 2)}, {{{140, 1, 1, 17, 1}}});
}
TEST(QuantizedAttention, WideHeads) {
  checkAll({4, 1, 128, 0, 0, true, kv(4, 64, 128, 4)}, {{{300, 1, 17, 1}}});
}
TEST(QuantizedAttention, Window) {
  checkAll({4, 2, 16, 0, 40, false, kv(4, 16, 16, 4)}, {{{1, 1, 17, 60, 1, 1, 90, 1}}});
}
TEST(QuantizedAttention, SinkLogits) {
  AttentionSpec spec{9, 3, 64, 0, 0, true, kv(4, 32, 32, 4)};
  AttentionSpec window{4, 2, 16, 0, 40, false, rotated(2, 16, 16, 0, 16)};
  spec.sinkLogits = window.sinkLogits = true;
  checkAll(spec, kSessions);
  checkAll(window, {{{1, 1, 17, 60, 1, 1, 90, 1}}});
}
TEST(QuantizedAttention, KeysPerToken) {
  checkAll({4, 2, 64, 0, 0, true, kv(4, 32, 32, 4, true)}, {{{17, 2, 1, 90, 1, 1}}});
  checkAll({4, 2, 8, 0, 0, false, kv(2, 16, 16, 4, true)}, {{{17, 2, 1, 90, 1, 1}}});
}
TEST(QuantizedAttention, KeysBeforeTheirRotation) {
  checkAll({9, 3, 64, 0, 0, true, kv(4, 32, 32, 4, false, 200)}, {{{17, 2, 1, 90, 1, 1}}});
  checkAll({2, 1, 8, 0, 0, false, kv(8, 16, 16, 0, true, 50)}, {{{40, 1, 1, 8}}});
  AttentionSpec part{4, 2, 64, 0, 0, true, kv(4, 32, 32, 4, false, 200)};
  part.rotatedDims = 24;
  checkAll(part, {{{17, 2, 1, 90, 1, 1}}});
}
TEST(QuantizedAttention, RotatedKeys) {
  checkAll({9, 3, 64, 0, 0, true, rotated(4, 64, 64, 4, 64)},
           {{{17, 2, 1, 150, 1, 1}}, {ones(70)}});
  checkAll({2, 1, 96, 0, 0, false, rotated(8, 32, 32, 4, 32)}, {{{40, 1, 1, 33, 1}}});
  checkAll({4, 2, 16, 0, 40, false, rotated(2, 16, 16, 0, 16)}, {{{1, 1, 17, 60, 1, 1, 90, 1}}});
  checkAll({2, 1, 512, 0, 0, true, rotated(4, 64, 64, 1, 512)}, {{{70, 1}}});
}
TEST(QuantizedAttention, TruncatedRotatedKeys) {
  checkAll({4, 2, 32, 0, 0, false, rotated(4, 16, 32, 4, 32)},
           {{{70, 1, 29, 1}, 84}, {{70, 30, 40}, 60}});
}
TEST(QuantizedAttention, SinksAreMoreThanTokens) {
  checkAll({3, 3, 16, 0, 0, false, kv(4, 16, 32, 100)}, {{ones(20)}, {{17, 1, 90, 50, 1}}});
}
TEST(QuantizedAttention, LongContext) {
  checkAll({3, 1, 64, 0, 0, true, kv(4, 64, 128, 4)}, {{{1500, 1, 1, 30, 1}}});
}
TEST(QuantizedAttention, TruncatedSessions) {
  std::vector<Session> sessions;
  for (int64_t to : {0, 3, 20, 60, 84, 99})
    for (std::vector<int64_t> calls : {std::vector<int64_t>{70, 1, 29, 1}, {70, 30, 40}})
      sessions.push_back({calls, to});
  checkAll({4, 2, 16, 0, 0, false, kv(4, 16, 32, 4)}, sessions);
}

TEST(QuantizedAttention, GroupsAreLongerThanAttentionsStep) {
  checkAll({2, 1, 16, 0, 0, true, kv(4, 128, 128, 3)}, {{{300, 1, 90, 1}}});
}

TEST(QuantizedAttention, SaysHowManyBytesItsCacheHas) {
  AttentionSpec spec{9, 3, 64, 0, 0, true, std::nullopt};
  EXPECT_EQ(cacheBytes(spec).pageTokens, 64);
  EXPECT_EQ(cacheBytes(spec).page, 64 * 2 * 3 * 64 * 2);
  EXPECT_EQ(cacheBytes(spec).window, 0);
  for (int bits : {8, 4, 2})
    for (int64_t group : {16, 64, 256}) {
      spec.kv = kv(bits, group, 256, 4);
      int64_t tokens = std::max<int64_t>(64, group), slices = 64 / std::min<int64_t>(64, group);
      EXPECT_EQ(cacheBytes(spec).pageTokens, tokens);
      // Codes; slices of four bytes for the keys of a group and the dimensions of a value.
      EXPECT_EQ(cacheBytes(spec).page,
                tokens * (2 * 3 * 64 * bits / 8 + 3 * slices * 4) + tokens / group * 3 * 64 * 4);
      EXPECT_EQ(cacheBytes(spec).window, 2 * 3 * 260 * 64 * 2);
    }
}

// Two sequences begin alike, over codes: the second one is a fork of the first, with a window of
// its own and the pages that hold whole blocks of codes in common.
TEST(QuantizedAttention, SharedPages) {
  AttentionSpec spec{4, 2, 16, 0.25, 0, true, kv(4, 16, 32, 4)};
  int64_t columns = spec.kvHeads * spec.headDim, width = spec.heads * spec.headDim;
  std::vector<float> q = random(200 * width, 1.0f, 1), k = random(200 * columns, 1.0f, 2),
                     v = random(200 * columns, 1.0f, 3), other = random(200 * columns, 1.0f, 4);
  for (const Target &target : testTargets()) {
    KernelRunner run(target,
                     [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
    CacheBytes bytes = cacheBytes(spec);
    PagedMemory memory(bytes, 10, Pages::Shuffled, 0);
    GuardedBuffer<int8_t> scratch(scratchBytes(spec, target), -1);
    MemRef<int8_t, 1> scratchView(scratch.data(), {scratchBytes(spec, target)});
    auto call = [&](std::vector<int64_t> &places, int64_t window, std::vector<float> &keys,
                    int64_t position, int64_t tokens) {
      std::vector<float> y(tokens * width);
      MemRef<float, 2> qView(q.data() + position * width, {tokens, width}),
          kView(keys.data() + position * columns, {tokens, columns}),
          vView(v.data() + position * columns, {tokens, columns}), yView(y.data(), {tokens, width});
      MemRef<int64_t, 1> pages(places.data(), {std::ssize(places)});
      MemRef<int8_t, 1> cache = memory.view();
      SequenceTable table(tokens, position);
      auto sequences = table.view();
      run(qView, kView, vView, cache, pages, sequences, memory.layer(), window, int64_t(0), yView,
          scratchView, int64_t(1));
      return y;
    };
    const std::vector<int64_t> &places = memory.table;
    std::vector<int64_t> one = {places[0], places[1], places[2]},
                         two = {places[0], places[3], places[4]},
                         alone = {places[5], places[6], places[7]};
    const int64_t ofOne = 0, ofTwo = bytes.window, ofAlone = 2 * bytes.window;
    // Numbers up to 95 are codes then; those of page 0 remain what they are.
    call(one, ofOne, k, 0, 132);
    std::vector<int8_t> all = memory.contents();
    std::memcpy(memory.view().aligned + ofTwo, all.data() + ofOne, bytes.window);
    std::memcpy(memory.view().aligned + places[3], all.data() + places[1], 3 * bytes.page);
    std::vector<float> first = call(one, ofOne, k, 132, 50),
                       second = call(two, ofTwo, other, 132, 50);
    std::vector<float> later = call(one, ofOne, k, 182, 1), last = call(two, ofTwo, other, 182, 1);
    call(alone, ofAlone, k, 0, 132);
    EXPECT_EQ(first, call(alone, ofAlone, k, 132, 50));
    EXPECT_EQ(later, call(alone, ofAlone, k, 182, 1));
    call(alone, ofAlone, k, 0, 132);
    EXPECT_EQ(second, call(alone, ofAlone, other, 132, 50));
    EXPECT_EQ(last, call(alone, ofAlone, other, 182, 1));
  }
}

// Sequences of different lengths in one call, few and many for the threads, one of which has gone
// back: each gets the bits that it gets alone, and so do its pages and its window.
TEST(QuantizedAttention, ManySequences) {
  struct Part {
    int64_t rows, position, held;
  };
  const std::vector<std::vector<Part>> batches = {
      {{1, 150, 150}, {1, 80, 80}},
      {{1, 0, 0}, {30, 0, 0}, {1, 700, 700}, {5, 190, 260}, {1, 132, 140}},
      {{1, 9, 9}, {1, 64, 64}, {1, 1, 1}, {1, 400, 400}, {1, 3, 3}, {1, 90, 91}, {1, 36, 36}},
      {{20, 0, 0}, {3, 100, 100}, {64, 64, 64}}};
  for (const Target &target : testTargets())
    for (AttentionSpec spec : {AttentionSpec{4, 2, 16, 0.25, 0, true, kv(4, 16, 32, 4)},
                               AttentionSpec{4, 4, 8, 0.25, 50, false, kv(8, 8, 16, 2)},
                               AttentionSpec{4, 2, 32, 0.25, 0, true, rotated(4, 16, 32, 4, 32)}}) {
      KernelRunner run(target,
                       [&](ModuleOp module) { return getOrEmitAttention(module, spec, target); });
      const int64_t width = spec.heads * spec.headDim, columns = spec.kvHeads * spec.headDim;
      const CacheBytes bytes = cacheBytes(spec);
      for (const std::vector<Part> &batch : batches) {
        int64_t rows = 0, pageCount = 0;
        auto pagesOf = [](const Part &part) {
          return (std::max(part.position + part.rows, part.held) + 63) / 64;
        };
        for (const Part &part : batch) {
          rows += part.rows;
          pageCount += pagesOf(part);
        }
        std::vector<float> q = random(rows * width, 1.0f, 1), k = random(rows * columns, 1.0f, 2),
                           v = random(rows * columns, 1.0f, 3);
        // A window for each sequence, one layer, then pages; small numbers as floats and codes.
        const int64_t windows = std::ssize(batch) * bytes.window;
        GuardedBuffer<int8_t> memory(windows + pageCount * bytes.page, 0);
        std::vector<int8_t> before(memory.elementCount());
        std::mt19937 generator(5);
        for (int8_t &byte : before)
          byte = static_cast<int8_t>(generator() % 20);
        std::vector<int64_t> places(pageCount);
        for (int64_t i = 0; i < pageCount; ++i)
          places[i] = windows + i * bytes.page;
        std::shuffle(places.begin(), places.end(), generator);

        auto call = [&](SequenceTable &table, int64_t first, int64_t count, int64_t threads) {
          std::vector<float> y(count * width);
          MemRef<float, 2> qView(q.data() + first * width, {count, width}),
              kView(k.data() + first * columns, {count, columns}),
              vView(v.data() + first * columns, {count, columns}), yView(y.data(), {count, width});
          int64_t scratchSize = threads * scratchBytes(spec, target);
          GuardedBuffer<int8_t> scratch(scratchSize, -1);
          MemRef<int8_t, 1> scratchView(scratch.data(), {scratchSize}),
              cache(memory.data(), {static_cast<int64_t>(memory.elementCount())});
          MemRef<int64_t, 1> pages(places.data(), {pageCount});
          auto sequences = table.view();
          run(qView, kView, vView, cache, pages, sequences, int64_t(0), int64_t(0), bytes.window,
              yView, scratchView, threads);
          return y;
        };
        auto add = [&](SequenceTable &table, size_t n, int64_t firstPage) {
          eq_sequence &sequence = table.add(batch[n].rows, batch[n].position);
          sequence.held = static_cast<int32_t>(batch[n].held);
          sequence.first_page = static_cast<int32_t>(firstPage);
          sequence.window = static_cast<int32_t>(n);
        };

        std::copy(before.begin(), before.end(), memory.data());
        std::vector<float> expected;
        for (size_t n = 0, first = 0, page = 0; n < batch.size(); ++n) {
          SequenceTable table;
          add(table, n, static_cast<int64_t>(page));
          std::vector<float> y = call(table, static_cast<int64_t>(first), batch[n].rows, 1);
          expected.insert(expected.end(), y.begin(), y.end());
          first += batch[n].rows;
          page += pagesOf(batch[n]);
        }
        std::vector<int8_t> after(memory.data(), memory.data() + memory.elementCount());
        SequenceTable table;
        for (size_t n = 0, page = 0; n < batch.size(); page += pagesOf(batch[n++]))
          add(table, n, static_cast<int64_t>(page));
        for (int64_t threads : {1, 2, 3, 16}) {
          std::copy(before.begin(), before.end(), memory.data());
          std::vector<float> y = call(table, 0, rows, threads);
          EXPECT_EQ(std::memcmp(y.data(), expected.data(), y.size() * sizeof(float)), 0)
              << target.name().str() << " " << symbolName(spec) << ", " << batch.size()
              << " sequences, " << threads << " threads";
          EXPECT_EQ(std::memcmp(memory.data(), after.data(), after.size()), 0);
        }
      }
    }
}
