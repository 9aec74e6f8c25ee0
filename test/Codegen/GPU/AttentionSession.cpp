//===- AttentionSession.cpp - Sessions of simulated attention -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionSession.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Rope.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

std::optional<HeadsSpec> easyquant::gpu::basisOf(const AttentionSpec &spec) {
  if (!spec.kv || !spec.kv->hadamard)
    return std::nullopt;
  return HeadsSpec{.heads = spec.heads,
                   .keyHeads = spec.kvHeads,
                   .headDim = spec.headDim,
                   .hadamard = spec.kv->hadamard};
}

static std::vector<float> rotationsOf(const AttentionSpec &spec) {
  return spec.keyPositions > 0 ? *ropeTable({.dims = spec.rotated()}, kPositions)
                               : std::vector<float>(4);
}

/// Some far below all scores, some that take nearly all of the weights.
static std::vector<float> sinkLogitsOf(const AttentionSpec &spec) {
  std::vector<float> logits;
  for (int64_t head = 0; spec.sinkLogits && head < spec.heads; ++head)
    logits.push_back(head % 5 == 3   ? -100.0f
                     : head % 5 == 4 ? 15.0f
                                     : static_cast<float>(head % 3) - 0.5f);
  return logits;
}

/// The layer that appends.
static AttentionSpec otherLayerOf(AttentionSpec spec) {
  spec.appended = false;
  return spec;
}

Session::Session(KernelLibrary &library, const AttentionSpec &spec, AttentionKernel::Form form,
                 int64_t tokens, simt::Checks checks, Pages order)
    : Session(library, spec, form, checks,
              std::make_shared<Pool>(spec, 2 * divideCeil(tokens, cacheBytes(spec).pageTokens)),
              0) {
  std::vector<int64_t> numbers(pool->count);
  std::iota(numbers.begin(), numbers.end(), 0);
  if (order == Pages::Shuffled)
    std::shuffle(numbers.begin(), numbers.end(), std::mt19937(3));
  for (int64_t i = 0; i < pool->count / 2; ++i)
    table.push_back(pool->page(numbers[i]));
  for (int64_t i = pool->count / 2; i < pool->count; ++i)
    others.push_back(pool->page(numbers[i]));
}

Session::Session(KernelLibrary &library, const AttentionSpec &spec, AttentionKernel::Form form,
                 simt::Checks checks, std::shared_ptr<Pool> memory, int64_t number)
    : library(library), spec(spec), checks(checks), pool(std::move(memory)), number(number),
      sinkLogits(sinkLogitsOf(spec)), rotations(pool->device, rotationsOf(spec), "table"),
      sinks(pool->device, sinkLogits, "sink logits") {
  launches = library.add(spec);
  if (spec.appended) {
    EXPECT_TRUE(launches.before.empty());
    launches.before = library.add(otherLayerOf(spec)).before;
  }
  for (const AttentionKernel &candidate : launches.kernels)
    if (candidate.form == form)
      kernel = candidate;
  kernel.cut.minRows = 1;
  kernel.cut.maxRows = 0;
}

Session Session::fork(int64_t shared) {
  Session other(library, spec, kernel.form, checks, pool, 1);
  other.table = table;
  other.keys = keys;
  other.values = values;
  auto copy = [&](int64_t from, int64_t to, int64_t bytes) {
    std::vector<uint8_t> data(bytes);
    auto at = [&](int64_t place) { return pool->cache.address() + static_cast<uint64_t>(place); };
    EXPECT_TRUE(pool->device.copyOut(data.data(), at(from), bytes));
    EXPECT_TRUE(pool->device.copyIn(at(to), data.data(), bytes));
  };
  for (size_t i = static_cast<size_t>(shared); i < table.size(); ++i) {
    other.table[i] = others[i];
    copy(table[i], others[i], 3 * pool->bytes.page);
  }
  if (spec.kv)
    copy(pool->window(0), pool->window(1), 3 * pool->bytes.window);
  other.random.seed(11);
  return other;
}

void Session::call(int64_t rows) {
  SCOPED_TRACE(testing::Message() << kernel.launch.name << ": " << rows << " tokens at "
                                  << position());
  int64_t before = position(), width = spec.heads * spec.headDim;
  int64_t stride = width + 2 * columns() + 16, yStride = width + 8;
  std::vector<float> qkv((rows - 1) * stride + width + 2 * columns());
  for (float &x : qkv)
    x = normal(random);
  // A dimension that towers above the others, in every third token.
  for (int64_t m = 0; m < rows; m += 3)
    qkv[m * stride + width + m % columns()] *= 8.0f;
  for (int64_t m = 0; m < rows; ++m) {
    const float *k = qkv.data() + m * stride + width, *v = k + columns();
    keys.insert(keys.end(), k, k + columns());
    values.insert(values.end(), v, v + columns());
  }
  std::vector<float> y = run(qkv, rows, before, stride, yStride);
  results.insert(results.end(), y.begin(), y.end());
  for (int64_t m = 0; basisOf(spec) && m < rows; ++m)
    rotateActivation(std::span(qkv).subspan(m * stride, width), spec.kv->hadamard);
  compare(qkv, stride, rows, before, y, yStride);
}

void Session::goBack(int64_t to) {
  int64_t held = position();
  simt::Device &device = pool->device;
  // Beside one that has not gone back, and before another row of its own.
  eq_sequence own = ownRows(2, to, 1);
  own.held = static_cast<int32_t>(held);
  StepInput step(device, {ownRows(1, 0), own});
  DeviceBuffer<int64_t> pages(device, table, "pages");
  gpu::run(device, library, library.addRestore(spec), 3,
           {{"cache", ofLayer(pool->bytes.page)},
            {"pages", pages},
            {"windows", windows()},
            {"window_bytes", 3 * pool->bytes.window},
            {"sequences", step.sequences},
            {"row_places", step.rowPlaces}},
           checks);
  // What has left the window is known by its codes only.
  QuantizedKV k = *quantizeKeys(matrix(keys), *spec.kv, spec.headDim, CacheFloat::F16);
  QuantizedKV v = *quantizeValues(matrix(values), *spec.kv, spec.headDim, CacheFloat::F16);
  int64_t end = std::min(to, held - spec.kv->residual);
  auto forget = [&](std::vector<float> &x, const QuantizedKV &q, int64_t begin) {
    for (int64_t t = begin; t < end; ++t)
      for (int64_t j = 0; j < columns(); ++j)
        x[t * columns() + j] = roundToCache(q.dequantized(t, j), CacheFloat::F16);
    x.resize(to * columns());
  };
  forget(keys, k, quantizedKeys(*spec.kv, to));
  forget(values, v, quantizedValues(*spec.kv, to));
}

std::vector<float> Session::run(const std::vector<float> &qkv, int64_t rows, int64_t before,
                                int64_t stride, int64_t yStride) {
  int64_t width = spec.heads * spec.headDim;
  simt::Device &device = pool->device;
  // Device memory begins at multiples of 16 bytes; columns of it, at multiples of a row's part.
  DeviceBuffer<float> fused(device, qkv, "qkv");
  StepInput step(device, {ownRows(rows, before)});
  PieceInput cut(device, kernel.cut, step.step);
  DeviceBuffer<int64_t> pages(device, table, "pages");
  DeviceBuffer<uint8_t> partials(device, cut.places * kernel.partialBytes, "partials");
  const std::vector<int32_t> zeros(cut.places * kernel.partialCounters);
  DeviceBuffer<int32_t> counters(device, zeros, "counters");
  DeviceBuffer<float> y(device, (rows - 1) * yStride + width, "y");
  const RowSpec made = spec.codes.value_or(RowSpec());
  const int64_t groups = spec.codes ? groupCount(width, made.groupSize) : 0;
  const std::vector<int32_t> noneDone(rows);
  DeviceBuffer<int8_t> codes(device, rows * width, "codes");
  DeviceBuffer<float> scales(device, rows, "scales");
  DeviceBuffer<int32_t> sums(device, rows * groups, "sums"), done(device, noneDone, "row counters");
  auto columnsFrom = [&](int64_t first) {
    return Argument(fused.address() + static_cast<uint64_t>(first) * sizeof(float));
  };
  std::map<std::string, Argument> all = {{"q", columnsFrom(0)},
                                         {"q_stride", stride},
                                         {"k", columnsFrom(width)},
                                         {"k_stride", stride},
                                         {"v", columnsFrom(width + columns())},
                                         {"v_stride", stride},
                                         {"cache", ofLayer(pool->bytes.page)},
                                         {"pages", pages},
                                         {"windows", windows()},
                                         {"window_bytes", 3 * pool->bytes.window},
                                         {"table", rotations},
                                         {"sink_logits", sinks},
                                         {"sequences", step.sequences},
                                         {"row_places", step.rowPlaces},
                                         {"pieces", cut.pieces},
                                         {"partials", partials},
                                         {"partial_counters", counters},
                                         {"y", y},
                                         {"y_stride", yStride},
                                         {"x", y},
                                         {"x_stride", yStride},
                                         {"codes", codes},
                                         {"scales", scales},
                                         {"sums", sums},
                                         {"row_counters", done}};
  if (auto basis = basisOf(spec))
    gpu::run(device, library, library.add(*basis), rows, {{"x", fused}, {"x_stride", stride}},
             checks);
  auto runOne = [&](const Description &launch) {
    std::map<std::string, Argument> arguments;
    for (const Parameter &parameter : launch.parameters)
      if (parameter.name != "rows")
        arguments.emplace(parameter.name, all.at(parameter.name));
    return gpu::run(device, library, launch, rows, arguments, checks);
  };
  for (const Description &launch : launches.before)
    runOne(launch);
  statistics = runOne(kernel.launch);
  EXPECT_EQ(counters.read(), zeros);
  EXPECT_EQ(done.read(), noneDone);
  if (spec.codes) {
    const std::vector<float> x = y.read();
    auto expected = quantizeTokens({x.data(), rows, width, yStride}, made.groupSize);
    EXPECT_TRUE(codes.read() == expected->codes && scales.read() == expected->scales &&
                sums.read() == expected->sums);
  }
  for (const Description &launch : launches.behind)
    runOne(launch);
  return y.read();
}

void Session::compare(const std::vector<float> &qkv, int64_t stride, int64_t rows, int64_t before,
                      const std::vector<float> &y, int64_t yStride) {
  int64_t width = spec.heads * spec.headDim, tokens = position(), dim = spec.headDim;
  std::vector<float> seenKeys(keys.size()), seenValues(values.size());
  Matrix k{seenKeys.data(), tokens, columns(), columns()};
  Matrix v{seenValues.data(), tokens, columns(), columns()};
  if (spec.kv) {
    auto ok = seenKeysAndValues(matrix(keys), matrix(values), *spec.kv, dim, CacheFloat::F16,
                                before, k, v);
    ASSERT_TRUE(ok) << ok.error().message;
  } else {
    for (size_t i = 0; i < keys.size(); ++i) {
      seenKeys[i] = roundToCache(keys[i], CacheFloat::F16);
      seenValues[i] = roundToCache(values[i], CacheFloat::F16);
    }
  }
  if (spec.keyPositions > 0) {
    std::vector<double> rotated(seenKeys.size());
    reference::rope(matrix(seenKeys), rotationsOf(spec), dim, 0,
                    {rotated.data(), tokens, columns(), columns()}, spec.rotated());
    std::copy(rotated.begin(), rotated.end(), seenKeys.begin());
  }
  ConstMatrix q{qkv.data(), rows, width, stride};
  std::vector<double> expected(rows * width);
  reference::attention(
      q, matrix(seenKeys), matrix(seenValues),
      {spec.heads, spec.kvHeads, dim, spec.scale, spec.window, spec.bound, sinkLogits}, before,
      {expected.data(), rows, width, width});

  // Halves have 11 bits. Queries and weights are rounded to them where mma.sync multiplies; what
  // codes stand for, always; keys that are rotated after that, once more.
  const double unit = 0x1p-11;
  double ofKeys = (kernel.tile.matrix ? 1 : 0) + (spec.kv ? 1 : 0);
  if (spec.keyPositions > 0)
    ofKeys += 3; // u cos - v sin: each error counts up to sqrt 2 times
  double ofValues = (kernel.tile.matrix ? 2 : 0) + (spec.kv ? 1 : 0);
  double squares = 0, bounds = 0;
  for (int64_t m = 0; m < rows; ++m)
    for (int64_t h = 0; h < spec.heads; ++h) {
      int64_t kv = h / (spec.heads / spec.kvHeads), last = before + m;
      int64_t first = spec.window == 0 ? 0 : std::max<int64_t>(0, last - spec.window + 1);
      double dots = 0, largest = 0;
      for (int64_t t = first; t <= last; ++t) {
        double dot = 0;
        for (int64_t d = 0; d < dim; ++d) {
          dot += std::abs(double(q(m, h * dim + d)) * seenKeys[t * columns() + kv * dim + d]);
          largest = std::max(largest, std::abs(double(seenValues[t * columns() + kv * dim + d])));
        }
        dots = std::max(dots, dot * spec.scale);
      }
      // An error e of every score changes weights by a factor of exp(+-2 e) at most.
      double score = dots * (ofKeys * unit + 0x1p-20) + spec.bound * 0x1p-20;
      double bound = (std::expm1(2 * score) + ofValues * unit + 0x1p-17) * largest;
      for (int64_t d = 0; d < dim; ++d) {
        double error = y[m * yStride + h * dim + d] - expected[m * width + h * dim + d];
        ASSERT_LE(std::abs(error), bound)
            << "token " << m << ", head " << h << ", dimension " << d << ": "
            << y[m * yStride + h * dim + d] << ", not " << expected[m * width + h * dim + d];
        squares += error * error;
        bounds += bound * bound;
      }
    }
  // Errors are random: far from their bound as a rule.
  EXPECT_LE(squares, bounds / 16);
}

void Session::checkCodes() {
  const KVScheme &kv = *spec.kv;
  const int64_t heads = spec.kvHeads, dim = spec.headDim, slices = kvSlices(kv, dim);
  const int64_t codeBytes = dim * kv.bits / 8, width = dim / slices, all = position();
  std::vector<uint8_t> bytes = pool->cache.read();
  // Where the parts are: Attention.h.
  const int64_t page = std::max<int64_t>(64, kv.group), valueCodes = page * codeBytes;
  const int64_t valueSlices = 2 * valueCodes, keySlices = valueSlices + page * slices * 4;
  const int64_t ofKeys =
      kv.keys == KeySlices::Token ? page * slices * 4 : page / kv.group * dim * 4;
  const int64_t headBytes = (keySlices + ofKeys + 63) / 64 * 64;
  auto place = [&](int64_t h, int64_t i) {
    return table[i / page] + pool->bytes.page + h * headBytes;
  };
  auto code = [&](int64_t part, int64_t h, int64_t i, int64_t d) {
    const uint8_t *row = bytes.data() + place(h, i) + part + i % page * codeBytes;
    if (kv.bits == 8)
      return int(row[d]);
    int64_t r = d % 8 / 2, bit = d / 8 * 8 * kv.bits + 4 * kv.bits * (d % 2) + kv.bits * r;
    return row[bit / 8] >> (bit % 8) & ((1 << kv.bits) - 1);
  };
  auto half = [&](int64_t at) {
    return fromHalf(static_cast<uint16_t>(bytes[at] | bytes[at + 1] << 8), Float::F16);
  };
  auto check = [&](bool isKeys, const QuantizedKV &q, int64_t end) {
    for (int64_t t = kv.sinks; t < end; ++t)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t d = 0; d < dim; ++d) {
          int64_t i = t - kv.sinks, at = t * columns() + h * dim + d;
          int64_t minimum, scale;
          if (isKeys && kv.keys == KeySlices::Channel) {
            minimum = place(h, i) + keySlices + (i % page / kv.group * 2 * dim + d) * 2;
            scale = minimum + dim * 2;
          } else {
            int64_t part = isKeys ? keySlices : valueSlices;
            minimum = place(h, i) + part + (i % page * slices + d / width) * 4;
            scale = minimum + 2;
          }
          ASSERT_EQ(code(isKeys ? 0 : valueCodes, h, i, d), q.codes[at])
              << (isKeys ? "key " : "value ") << t << ", head " << h << ", dimension " << d;
          ASSERT_EQ(half(minimum), q.slices[at].minimum);
          ASSERT_EQ(half(scale), q.slices[at].scale);
        }
  };
  check(true, *quantizeKeys(matrix(keys), kv, dim, CacheFloat::F16), quantizedKeys(kv, all));
  check(false, *quantizeValues(matrix(values), kv, dim, CacheFloat::F16), quantizedValues(kv, all));
}
AttentionSpec easyquant::gpu::specOf(int64_t heads, int64_t kvHeads, int64_t headDim,
                                     int64_t window) {
  AttentionSpec spec;
  spec.heads = heads;
  spec.kvHeads = kvHeads;
  spec.headDim = headDim;
  spec.scale = 1 / std::sqrt(double(headDim));
  spec.window = window;
  return spec;
}

AttentionSpec easyquant::gpu::codesOf(AttentionSpec spec, KVScheme scheme, bool rotatedLater) {
  spec.kv = scheme;
  spec.keyPositions = rotatedLater ? kPositions : 0;
  EXPECT_TRUE(checkKVScheme(scheme, spec.headDim));
  return spec;
}

void easyquant::gpu::checkAll(const std::vector<AttentionSpec> &specs,
                              const std::vector<int64_t> &calls, int64_t tokens, ChipId chip) {
  KernelLibrary library(chip);
  for (const AttentionSpec &spec : specs) {
    library.add(spec);
    if (spec.appended)
      library.add(otherLayerOf(spec));
    if (auto basis = basisOf(spec))
      library.add(*basis);
  }
  for (const AttentionSpec &spec : specs)
    for (auto form : kForms) {
      Session session(library, spec, form, tokens);
      for (int64_t rows : calls) {
        session.call(rows);
        if (testing::Test::HasFailure())
          return;
      }
      if (spec.kv)
        session.checkCodes();
    }
}
