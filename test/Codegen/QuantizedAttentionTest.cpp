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
  Cache(const AttentionSpec &spec, int64_t capacity)
      : spec(spec), kv(*spec.kv), capacity(capacity),
        bytes(cacheBytes(spec).fixed + capacity * cacheBytes(spec).perToken, int8_t(0)) {
    auto aligned = [](int64_t size) { return (size + 63) / 64 * 64; };
    int64_t rows = spec.kvHeads * (kv.sinks + kv.residual) * spec.headDim * int64_t(sizeof(T));
    floatKeys = 64, floatValues = floatKeys + aligned(rows);
    keyCodes = floatValues + aligned(rows);
    valueCodes = keyCodes + spec.kvHeads * capacity * words() * 4;
    valueSlices = valueCodes + spec.kvHeads * capacity * spec.headDim * kv.bits / 8;
    keySlices = valueSlices + spec.kvHeads * 2 * slices() * capacity * int64_t(sizeof(T));
  }
  int64_t fields() const { return 32 / kv.bits; }
  int64_t words() const { return (spec.headDim + fields() - 1) / fields(); }
  int64_t width() const { return std::min(kv.group, spec.headDim); }
  int64_t slices() const { return spec.headDim / width(); }

  template <typename U> U read(int64_t at, int64_t index) const {
    U x;
    std::memcpy(&x, bytes.data() + at + index * int64_t(sizeof(U)), sizeof(U));
    return x;
  }
  uint8_t keyCode(int64_t h, int64_t i, int64_t d) const {
    int64_t block = h * (capacity / 16) + i / 16;
    auto word = read<uint32_t>(keyCodes, (block * words() + d / fields()) * 16 + i % 16);
    return (word >> (d % fields() * kv.bits)) & ((1u << kv.bits) - 1);
  }
  uint8_t valueCode(int64_t h, int64_t i, int64_t d) const {
    int64_t block = h * (capacity / 16) + i / 16, row = block * 16 / fields() + i % 16 / fields();
    auto word = read<uint32_t>(valueCodes, row * spec.headDim + d);
    return (word >> (i % fields() * kv.bits)) & ((1u << kv.bits) - 1);
  }
  numerics::KVSlice tokenSlice(int64_t at, int64_t h, int64_t i, int64_t d) const {
    int64_t index = (h * 2 * slices() + d / width()) * capacity + i;
    return {float(read<T>(at, index)), float(read<T>(at, index + slices() * capacity))};
  }
  numerics::KVSlice keySlice(int64_t h, int64_t i, int64_t d) const {
    if (kv.keysPerToken)
      return tokenSlice(keySlices, h, i, d);
    int64_t groups = (capacity + kv.group - 1) / kv.group;
    int64_t index = (h * groups + i / kv.group) * 2 * spec.headDim + d;
    return {float(read<T>(keySlices, index)), float(read<T>(keySlices, index + spec.headDim))};
  }
  numerics::KVSlice valueSlice(int64_t h, int64_t i, int64_t d) const {
    return tokenSlice(valueSlices, h, i, d);
  }

  const AttentionSpec &spec;
  KVQuantization kv;
  int64_t capacity;
  GuardedBuffer<int8_t> bytes;
  int64_t floatKeys, floatValues, keyCodes, valueCodes, valueSlices, keySlices;
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
      auto made =
          numerics::ropeTable({.headDim = spec.headDim, .theta = 10000.0}, kv.ropePositions);
      table = std::move(*made);
    }
    capacity = (total + 15) / 16 * 16;
  }

  /// All outputs of a session, checked on the way.
  std::vector<float> play(int64_t threads) {
    Cache<T> cache(spec, capacity);
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
    for (std::vector<float> *x : {&k, &v})
      for (size_t at = to * columns; at < x->size(); ++at)
        (*x)[at] = -0.5f * (*x)[at];
    truncated = true;
    return to;
  }

  std::vector<float> step(Cache<T> &cache, int64_t position, int64_t tokens, int64_t threads) {
    int64_t qColumns = spec.heads * spec.headDim;
    GuardedBuffer<float> kRows(tokens * columns), vRows(tokens * columns),
        y(tokens * qColumns, 55.0f);
    std::copy_n(k.data() + position * columns, tokens * columns, kRows.data());
    std::copy_n(v.data() + position * columns, tokens * columns, vRows.data());
    std::vector<float> rotated(q);
    if (spec.kv->ropePositions > 0)
      rotate(q, spec.heads, rotated);
    MemRef<float, 2> qView(rotated.data() + position * qColumns, {tokens, qColumns});
    MemRef<float, 2> kView(kRows.data(), {tokens, columns}), vView(vRows.data(), {tokens, columns});
    MemRef<float, 2> yView(y.data(), {tokens, qColumns});
    MemRef<int8_t, 1> bytes(cache.bytes.data(), {int64_t(cache.bytes.elementCount())});
    int64_t scratchSize = threads * scratchBytes(spec, target);
    GuardedBuffer<int8_t> scratch(scratchSize, -1); // NaN to whoever reads it as float
    MemRef<int8_t, 1> scratchView(scratch.data(), {scratchSize});
    if (spec.kv->ropePositions > 0) {
      MemRef<float, 3> tableView(table.data(), {spec.kv->ropePositions, spec.headDim / 2, 2});
      run(qView, kView, vView, bytes, capacity, tableView, position, yView, scratchView, threads);
    } else {
      run(qView, kView, vView, bytes, capacity, position, yView, scratchView, threads);
    }
    std::vector<float> result(y.data(), y.data() + tokens * qColumns);
    checkResult(rotated, position, tokens, result);
    return result;
  }

  void rotate(const std::vector<float> &x, int64_t heads, std::vector<float> &out) const {
    int64_t width = heads * spec.headDim, rows = int64_t(x.size()) / width;
    std::vector<double> exact(x.size());
    numerics::reference::rope({x.data(), rows, width}, table, spec.headDim, 0,
                              {exact.data(), rows, width});
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
    numerics::reference::AttentionParams params{spec.heads, spec.kvHeads, spec.headDim, spec.scale,
                                                spec.window};
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
    ASSERT_EQ(cache.template read<int64_t>(0, 0), position);
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
  std::vector<float> q, k, v, table;
  int64_t columns, capacity;
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
      for (int64_t threads : {1, 2, 3}) {
        std::vector<float> y = spec.halfCache
                                   ? SessionTest<_Float16>(target, spec, run, session).play(threads)
                                   : SessionTest<float>(target, spec, run, session).play(threads);
        if (testing::Test::HasFatalFailure())
          return;
        if (threads > 1)
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
TEST(QuantizedAttention, KeysPerToken) {
  checkAll({4, 2, 64, 0, 0, true, kv(4, 32, 32, 4, true)}, {{{17, 2, 1, 90, 1, 1}}});
  checkAll({4, 2, 8, 0, 0, false, kv(2, 16, 16, 4, true)}, {{{17, 2, 1, 90, 1, 1}}});
}
TEST(QuantizedAttention, KeysBeforeTheirRotation) {
  checkAll({9, 3, 64, 0, 0, true, kv(4, 32, 32, 4, false, 200)}, {{{17, 2, 1, 90, 1, 1}}});
  checkAll({2, 1, 8, 0, 0, false, kv(8, 16, 16, 0, true, 50)}, {{{40, 1, 1, 8}}});
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

TEST(QuantizedAttention, SaysHowManyBytesItsCacheHas) {
  AttentionSpec spec{9, 3, 64, 0, 0, true, std::nullopt};
  EXPECT_EQ(cacheBytes(spec).fixed, 0);
  EXPECT_EQ(cacheBytes(spec).perToken, 2 * 3 * 64 * 2);
  for (int bits : {8, 4, 2}) {
    spec.kv = kv(bits, 64, 128, 4);
    // Codes; a slice of four bytes for 64 keys of a channel and for 64 dimensions of a value.
    EXPECT_EQ(cacheBytes(spec).perToken, 2 * 3 * 64 * bits / 8 + 2 * 3 * 4);
    EXPECT_EQ(cacheBytes(spec).fixed, 64 + 2 * 3 * 132 * 64 * 2 + 3 * 64 * 4);
  }
}
