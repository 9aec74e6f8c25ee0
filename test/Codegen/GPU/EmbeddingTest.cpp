//===- EmbeddingTest.cpp - Rows of tables and heads on a simulated GPU ----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearData.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/Rope.h"

#include <algorithm>
#include <cmath>
#include <span>

using namespace easyquant;
using namespace easyquant::gpu;
using namespace easyquant::numerics;

namespace {

std::vector<float> normal(size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float &x : values)
    x = distribution(random);
  return values;
}

/// Tokens of the whole vocabulary, its last one among them.
std::vector<int32_t> someTokens(int64_t vocab, int64_t rows) {
  std::vector<int32_t> tokens;
  for (int64_t m = 0; m < rows; ++m)
    tokens.push_back(static_cast<int32_t>((vocab - 1 + m * 37) % vocab));
  return tokens;
}

/// Rows `columns` + 4 floats apart as one dense matrix.
std::vector<float> dense(const std::vector<float> &strided, int64_t rows, int64_t columns,
                         int64_t stride) {
  std::vector<float> result;
  for (int64_t m = 0; m < rows; ++m)
    result.insert(result.end(), strided.begin() + m * stride,
                  strided.begin() + m * stride + columns);
  return result;
}

constexpr int64_t kRows[] = {1, 2, 17};

} // namespace

TEST(GPUEmbedding, SharesOfATable) {
  constexpr int64_t ranks = 3, share = 11, rows = 17;
  KernelLibrary library;
  EmbeddingSpec spec;
  spec.vocab = share;
  spec.columns = 6;
  spec.sharded = true;
  library.add(spec);
  std::vector<float> table = normal(ranks * share * spec.columns, 1);
  std::vector<int32_t> ids = someTokens(ranks * share, rows);
  int64_t found = 0;
  for (int64_t rank = 0; rank < ranks; ++rank) {
    simt::Device device;
    DeviceBuffer<int32_t> tokens(device, ids);
    const auto first = table.begin() + rank * share * spec.columns;
    DeviceBuffer<float> own(device, std::vector<float>(first, first + share * spec.columns));
    DeviceBuffer<float> y(device, std::vector<float>(rows * spec.columns, 7));
    run(device, library, library.add(spec), rows,
        {{"tokens", tokens}, {"table", own}, {"rank", rank}, {"y", y}, {"y_stride", spec.columns}});
    std::vector<float> result = y.read();
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t j = 0; j < spec.columns; ++j) {
        const bool isOwn = ids[m] / share == rank;
        found += isOwn;
        EXPECT_EQ(result[m * spec.columns + j], isOwn ? table[ids[m] * spec.columns + j] : 0);
      }
  }
  EXPECT_EQ(found, rows * spec.columns);
}

TEST(GPUEmbedding, FloatTables) {
  KernelLibrary library;
  auto specOf = [](int64_t vocab, int64_t columns, Float type) {
    EmbeddingSpec spec;
    spec.vocab = vocab;
    spec.columns = columns;
    spec.table = type;
    return spec;
  };
  std::vector<EmbeddingSpec> specs;
  for (int64_t columns : {1, 6, 64, 1100})
    for (Float type : {Float::F32, Float::F16, Float::BF16})
      specs.push_back(specOf(33, columns, type));
  for (const EmbeddingSpec &spec : specs)
    library.add(spec);
  for (const EmbeddingSpec &spec : specs)
    for (int64_t rows : kRows) {
      std::vector<float> table = normal(spec.vocab * spec.columns, 1);
      std::vector<uint16_t> halves;
      if (spec.table != Float::F32)
        for (float &x : table) {
          halves.push_back(toHalf(x, spec.table));
          x = fromHalf(halves.back(), spec.table);
        }
      std::vector<int32_t> ids = someTokens(spec.vocab, rows);
      int64_t stride = spec.columns + 4;
      simt::Device device;
      DeviceBuffer<int32_t> tokens(device, ids);
      DeviceBuffer<float> floats(device, table), y(device, (rows - 1) * stride + spec.columns);
      DeviceBuffer<uint16_t> shorts(device, halves);
      Argument argument = spec.table == Float::F32 ? Argument(floats) : Argument(shorts);
      run(device, library, library.add(spec), rows,
          {{"tokens", tokens}, {"table", argument}, {"y", y}, {"y_stride", stride}});
      std::vector<float> found = dense(y.read(), rows, spec.columns, stride), expected;
      for (int32_t id : ids)
        expected.insert(expected.end(), table.begin() + id * spec.columns,
                        table.begin() + (id + 1) * spec.columns);
      EXPECT_EQ(found, expected) << library.add(spec).name;
    }
}

/// Rows of packed tables, to the bit those of `dequantize`.
static void checkPacked(const std::vector<EmbeddingSpec> &specs) {
  KernelLibrary library;
  for (const EmbeddingSpec &spec : specs)
    library.add(spec);
  for (const EmbeddingSpec &spec : specs) {
    constexpr int64_t kTokens = 5;
    SCOPED_TRACE(library.add(spec).name);
    std::mt19937 random(static_cast<unsigned>(spec.codec.bits + spec.columns));
    const bool isInt8 = spec.order == FragmentOrder::M16N8K32;
    QuantizedMatrix q =
        randomWeights(spec.vocab, spec.columns, schemeOf(spec.codec, isInt8), random);
    PackedWeight packed = fragmentsOf(q, spec.order);
    std::vector<int32_t> ids = someTokens(spec.vocab, kTokens);
    simt::Device device;
    DeviceBuffer<int32_t> tokens(device, ids);
    DeviceBuffer<float> y(device, kTokens * spec.columns);
    std::map<std::string, Argument> arguments = {
        {"tokens", tokens}, {"y", y}, {"y_stride", spec.columns}};
    std::vector<std::unique_ptr<DeviceBuffer<uint8_t>>> parts;
    auto give = [&](const char *name, WeightTensor tensor) {
      if (packed[tensor].empty())
        return;
      parts.push_back(std::make_unique<DeviceBuffer<uint8_t>>(device, packed[tensor], name));
      arguments.emplace(name, *parts.back());
    };
    give("w", WeightTensor::Codes);
    give("wscales", WeightTensor::Scales);
    give("wzeros", WeightTensor::ZeroPoints);
    give("wminima", WeightTensor::Minima);
    give("wouter", WeightTensor::Outer);
    give("codebook", WeightTensor::Codebook);
    run(device, library, library.add(spec), kTokens, arguments);
    std::vector<float> all(spec.vocab * spec.columns), expected;
    dequantize(q, Matrix{all.data(), spec.vocab, spec.columns, spec.columns});
    for (int32_t id : ids)
      expected.insert(expected.end(), all.begin() + id * spec.columns,
                      all.begin() + (id + 1) * spec.columns);
    EXPECT_EQ(y.read(), expected);
  }
}

TEST(GPUEmbedding, PackedTablesAreThoseOfTheHead) {
  struct Case {
    int64_t vocab, columns, group;
  };
  std::vector<EmbeddingSpec> specs;
  for (Case c : {Case{70, 64, 32}, {130, 100, 0}, {5, 7, 64}})
    for (int bits : {8, 6, 5, 4, 3, 2})
      for (FragmentOrder order : {FragmentOrder::M16N8K32, FragmentOrder::M16N8K16})
        for (auto [zeroPoints, scales] : {std::pair(false, ScaleFormat::F32),
                                          {true, ScaleFormat::F32},
                                          {true, ScaleFormat::F16}}) {
          EmbeddingSpec spec;
          spec.rows = EmbeddingSpec::Rows::Codes;
          spec.vocab = c.vocab;
          spec.columns = c.columns;
          spec.order = order;
          spec.codec.bits = bits;
          spec.codec.groupSize = c.group;
          spec.codec.zeroPoints = zeroPoints;
          spec.codec.scales = scales;
          specs.push_back(spec);
        }
  checkPacked(specs);
}

TEST(GPUEmbedding, EveryCodec) {
  std::vector<EmbeddingSpec> specs;
  std::vector<WeightCodec> byteCodecs = integerCodecs();
  std::ranges::copy_if(floatCodecs(), std::back_inserter(byteCodecs), [](const WeightCodec &codec) {
    return codec.codes == CodeFormat::F8E4M3FN;
  });
  for (FragmentOrder order : {FragmentOrder::M16N8K32, FragmentOrder::M16N8K16})
    for (const WeightCodec &codec : order == FragmentOrder::M16N8K32 ? byteCodecs : floatCodecs()) {
      EmbeddingSpec spec;
      spec.rows = EmbeddingSpec::Rows::Codes;
      spec.vocab = 90;
      spec.columns = 360;
      spec.order = order;
      spec.codec = codec;
      specs.push_back(spec);
    }
  checkPacked(specs);
}

TEST(GPUEmbedding, FloatFragments) {
  KernelLibrary library;
  constexpr int64_t kVocab = 21, kTokens = 4;
  auto specOf = [](int64_t columns, Float type) {
    EmbeddingSpec spec;
    spec.vocab = kVocab;
    spec.columns = columns;
    spec.rows = EmbeddingSpec::Rows::Fragments;
    spec.table = type;
    return spec;
  };
  for (Float type : {Float::F16, Float::BF16})
    for (int64_t columns : {7, 64, 100})
      library.add(specOf(columns, type));
  for (Float type : {Float::F16, Float::BF16})
    for (int64_t columns : {7, 64, 100}) {
      std::vector<uint16_t> halves;
      for (float x : normal(kVocab * columns, 8))
        halves.push_back(toHalf(x, type));
      std::vector<uint8_t> packed(floatFragmentBytes(kVocab, columns));
      packFloatFragments(kVocab, columns, halves.data(), packed.data());
      std::vector<int32_t> ids = someTokens(kVocab, kTokens);
      simt::Device device;
      DeviceBuffer<int32_t> tokens(device, ids);
      DeviceBuffer<uint8_t> w(device, packed);
      DeviceBuffer<float> y(device, kTokens * columns);
      run(device, library, library.add(specOf(columns, type)), kTokens,
          {{"tokens", tokens}, {"w", w}, {"y", y}, {"y_stride", columns}});
      std::vector<float> expected;
      for (int32_t id : ids)
        for (int64_t k = 0; k < columns; ++k)
          expected.push_back(fromHalf(halves[id * columns + k], type));
      EXPECT_EQ(y.read(), expected) << columns << " columns of " << nameOf(type);
    }
}

TEST(GPUEmbedding, PositionsAreAdded) {
  KernelLibrary library;
  constexpr int64_t kPositions = 40;
  auto specOf = [](int64_t columns) { return PositionEmbeddingSpec{kPositions, columns}; };
  for (int64_t columns : {7, 768})
    library.add(specOf(columns));
  for (int64_t columns : {7, 768})
    for (int32_t position : {0, 23}) {
      std::vector<float> rows = normal(17 * columns, 3), values = normal(kPositions * columns, 4);
      simt::Device device;
      DeviceBuffer<float> y(device, rows), table(device, values);
      // Some rows of another sequence.
      StepInput step(device, {sequenceOf(6, position), sequenceOf(11, 5, 6)});
      run(device, library, library.add(specOf(columns)), 17,
          {{"table", table}, {"row_places", step.rowPlaces}, {"y", y}, {"y_stride", columns}});
      for (size_t i = 0; i < rows.size(); ++i) {
        const size_t row = i / columns, at = row < 6 ? position + row : row - 1;
        rows[i] += values[at * columns + i % columns];
      }
      EXPECT_EQ(y.read(), rows);
    }
}

TEST(GPUGather, SomeRows) {
  KernelLibrary library;
  constexpr int64_t kAll = 23;
  for (int64_t columns : {1, 7, 64, 1100})
    library.add(GatherSpec{columns});
  for (int64_t columns : {1, 7, 64, 1100})
    for (int64_t rows : kRows) {
      const int64_t xStride = columns + 8, yStride = columns + 4;
      std::vector<float> x = normal((kAll - 1) * xStride + columns, 9), expected;
      std::vector<int32_t> numbers;
      for (int64_t m = 0; m < rows; ++m) // ascending, the last row among them
        numbers.push_back(static_cast<int32_t>(kAll - rows + m));
      numbers.front() = 0;
      for (int32_t number : numbers)
        expected.insert(expected.end(), x.begin() + number * xStride,
                        x.begin() + number * xStride + columns);
      simt::Device device;
      DeviceBuffer<float> from(device, x), y(device, (rows - 1) * yStride + columns);
      DeviceBuffer<int32_t> list(device, numbers);
      run(device, library, library.add(GatherSpec{columns}), rows,
          {{"x", from}, {"x_stride", xStride}, {"numbers", list}, {"y", y}, {"y_stride", yStride}});
      EXPECT_EQ(dense(y.read(), rows, columns, yStride), expected) << columns << " columns";
      EXPECT_EQ(y.unwritten(), static_cast<size_t>((rows - 1) * 4)) << "between the rows";
    }
}

TEST(GPUHeads, NormAndRotation) {
  KernelLibrary library(ChipId::SM90a);
  constexpr int64_t kPositions = 60;
  constexpr double kEpsilon = 1e-6;
  struct Case {
    int64_t heads, keyHeads, headDim;
    bool norm, rope;
    int64_t dims = 0; ///< 0: all
    bool plain = false;

    int64_t rotated() const { return dims > 0 ? dims : headDim; }
  };
  const Case cases[] = {{9, 3, 64, false, true},
                        {8, 4, 8, false, true},
                        {16, 8, 128, true, true},
                        {3, 0, 20, true, true},
                        {5, 1, 256, true, false},
                        {2, 1, 7, true, false},
                        {1, 0, 2, false, true},
                        {71, 1, 100, false, true},
                        {6, 2, 128, false, true, 96},
                        {3, 1, 20, true, true, 6},
                        {2, 1, 96, true, true, 64},
                        {4, 0, 16, true, false, 0, true},
                        {1, 0, 512, true, false, 0, true},
                        {2, 1, 12, true, true, 0, true}};
  auto specOf = [&](const Case &c) {
    HeadsSpec spec{c.heads, c.keyHeads, c.headDim, c.norm, kEpsilon, c.rope ? kPositions : 0};
    spec.dims = c.dims;
    spec.plainNorm = c.plain;
    return spec;
  };
  for (const Case &c : cases)
    library.add(specOf(c));
  for (const Case &c : cases)
    for (int64_t rows : kRows)
      for (int32_t position : {0, 41}) {
        Description kernel = library.add(specOf(c));
        SCOPED_TRACE(testing::Message() << kernel.name << " on " << rows << " at " << position);
        int64_t heads = c.heads + c.keyHeads, columns = heads * c.headDim, stride = columns + 12;
        std::vector<float> x = normal((rows - 1) * stride + columns, 5);
        std::vector<float> weights = normal(2 * c.headDim, 6), table(2, 0.0f);
        if (c.rope)
          table = *ropeTable({.dims = c.rotated()}, kPositions);
        simt::Device device;
        DeviceBuffer<float> device_x(device, x), device_table(device, table);
        DeviceBuffer<float> weight(device, {weights.begin(), weights.begin() + c.headDim});
        DeviceBuffer<float> keyWeight(device, {weights.begin() + c.headDim, weights.end()});
        StepInput step(device, rows, position);
        std::map<std::string, Argument> arguments = {{"x", device_x}, {"x_stride", stride}};
        if (c.norm && !c.plain)
          arguments.emplace("weight", weight);
        if (c.norm && !c.plain && c.keyHeads > 0)
          arguments.emplace("key_weight", keyWeight);
        if (c.rope) {
          arguments.emplace("table", device_table);
          arguments.emplace("row_places", step.rowPlaces);
        }
        run(device, library, kernel, rows, arguments);

        std::vector<float> found = device_x.read();
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t h = 0; h < heads; ++h) {
            std::vector<double> head(x.begin() + m * stride + h * c.headDim,
                                     x.begin() + m * stride + (h + 1) * c.headDim);
            if (c.norm) {
              double squares = 0;
              for (double v : head)
                squares += v * v;
              double scale = 1 / std::sqrt(squares / double(c.headDim) + kEpsilon);
              const float *w = weights.data() + (h < c.heads ? 0 : c.headDim);
              for (int64_t d = 0; d < c.headDim; ++d)
                head[d] *= scale * (c.plain ? 1 : w[d]);
            }
            for (int64_t i = 0; c.rope && i < c.rotated() / 2; ++i) {
              const float *turn = table.data() + (position + m) * c.rotated() + 2 * i;
              double u = head[i], v = head[i + c.rotated() / 2];
              head[i] = u * turn[0] - v * turn[1];
              head[i + c.rotated() / 2] = v * turn[0] + u * turn[1];
            }
            for (int64_t d = 0; d < c.headDim; ++d)
              ASSERT_NEAR(found[m * stride + h * c.headDim + d], head[d],
                          2e-6 * (1 + std::abs(head[d])))
                  << "token " << m << ", head " << h << ", dimension " << d;
          }
        // What lies between the rows is left alone.
        for (int64_t m = 0; m + 1 < rows; ++m)
          for (int64_t i = m * stride + columns; i < (m + 1) * stride; ++i)
            ASSERT_EQ(found[i], x[i]);
      }
}

// To the bit what rotation in place gives, keys and values rounded as an append of theirs does.
TEST(GPUHeads, Append) {
  KernelLibrary library(ChipId::SM80);
  constexpr int64_t kPositions = 150, kPage = kPageTokens, kColumnsBetween = 4;
  const HeadsSpec specs[] = {{9, 3, 64, false, 0, kPositions, true},
                             {4, 1, 20, false, 0, kPositions, true},
                             {4, 2, 64, false, 0, kPositions, true, 0, 48}};
  auto inPlace = [](HeadsSpec spec) {
    spec.append = false;
    return spec;
  };
  for (const HeadsSpec &spec : specs) {
    library.add(spec);
    library.add(inPlace(spec));
  }
  for (const HeadsSpec &spec : specs)
    for (int64_t rows : {1, 3, 70}) {
      const int32_t position = 61;
      const int64_t d = spec.headDim, queries = spec.heads * d, columns = spec.allHeads() * d;
      const int64_t stride = columns + kColumnsBetween;
      std::vector<float> x = normal((rows - 1) * stride + columns, 5);
      x[queries + spec.keyHeads * d] = 1e6f; // saturates
      simt::Device device;
      DeviceBuffer<float> appended(device, x), rotated(device, x);
      DeviceBuffer<float> table(device, *ropeTable({.dims = spec.rotated()}, kPositions));
      StepInput step(device, rows, position);
      const int64_t head = 2 * kPage * d, page = spec.keyHeads * head;
      const std::vector<int64_t> places = {4 * page, 0, 2 * page}; // in bytes: two an element
      DeviceBuffer<_Float16> cache(device, 3 * page);
      DeviceBuffer<int64_t> pages(device, places);
      std::map<std::string, Argument> arguments = {
          {"x", rotated}, {"x_stride", stride}, {"table", table}, {"row_places", step.rowPlaces}};
      run(device, library, library.add(inPlace(spec)), rows, arguments);
      arguments.at("x") = appended;
      arguments.emplace("cache", cache);
      arguments.emplace("pages", pages);
      arguments.emplace("sequences", step.sequences);
      run(device, library, library.add(spec), rows, arguments);

      std::vector<float> turned = rotated.read(), left = appended.read();
      std::vector<_Float16> kept = cache.read();
      for (int64_t m = 0; m < rows; ++m)
        for (int64_t c = 0; c < columns; ++c) {
          const bool isQuery = c < queries;
          ASSERT_EQ(left[m * stride + c], (isQuery ? turned : x)[m * stride + c]);
          if (isQuery)
            continue;
          const int64_t number = (c - queries) / d, token = position + m;
          const bool isKey = number < spec.keyHeads;
          const int64_t place = places[token / kPage] / 2 + number % spec.keyHeads * head +
                                (isKey ? 0 : kPage * d) + token % kPage * d + c % d;
          const float value = std::min((isKey ? turned : x)[m * stride + c], 65504.0f);
          ASSERT_EQ(kept[place], static_cast<_Float16>(value)) << "token " << token << " " << c;
        }
    }
}

// To the bit what numerics makes of heads that were rotated by their positions alone.
TEST(GPUHeads, Basis) {
  constexpr int64_t kPositions = 60;
  const int32_t position = 17;
  // Blocks within lanes, of several registers, of both halves of a head, and smaller than a head.
  std::vector<HeadsSpec> specs;
  for (auto [headDim, block] : {std::pair(16, 16),
                                {32, 32},
                                {48, 16},
                                {64, 64},
                                {80, 16},
                                {96, 32},
                                {128, 128},
                                {128, 32},
                                {256, 256},
                                {512, 512}})
    specs.push_back({5, 2, headDim, false, 0, kPositions, false, block});
  specs.push_back({9, 3, 64, true, 1e-6, 0, false, 64});
  auto plain = [](HeadsSpec spec) {
    spec.hadamard = 0;
    return spec;
  };
  for (ChipId chip : {ChipId::SM80, ChipId::SM90a}) {
    KernelLibrary library(chip);
    for (const HeadsSpec &spec : specs)
      for (const HeadsSpec &each : {spec, plain(spec)})
        library.add(each);
    for (const HeadsSpec &spec : specs)
      for (int64_t rows : {1, 3}) {
        const int64_t columns = spec.allHeads() * spec.headDim, stride = columns + 16;
        simt::Device device;
        std::vector<float> x = normal((rows - 1) * stride + columns, 5);
        const std::vector<float> weights = normal(2 * spec.headDim, 6);
        DeviceBuffer<float> weight(device, {weights.begin(), weights.begin() + spec.headDim});
        DeviceBuffer<float> keyWeight(device, {weights.begin() + spec.headDim, weights.end()});
        DeviceBuffer<float> table(device, *ropeTable({.dims = spec.headDim}, kPositions));
        StepInput step(device, rows, position);
        auto found = [&](const HeadsSpec &which) {
          DeviceBuffer<float> heads(device, x);
          std::map<std::string, Argument> arguments = {{"x", heads}, {"x_stride", stride}};
          if (which.norm) {
            arguments.emplace("weight", weight);
            arguments.emplace("key_weight", keyWeight);
          } else {
            arguments.emplace("table", table);
            arguments.emplace("row_places", step.rowPlaces);
          }
          run(device, library, library.add(which), rows, arguments);
          return heads.read();
        };
        const std::vector<float> rotated = found(spec);
        std::vector<float> expected = found(plain(spec));
        for (int64_t m = 0; m < rows; ++m)
          rotateActivation(std::span(expected).subspan(m * stride, columns), spec.hadamard);
        // Behind a norm, squares are added up in another order: fewer lanes have columns.
        const double bound = spec.norm ? 1e-5 : 0;
        for (size_t i = 0; i < expected.size(); ++i)
          ASSERT_NEAR(rotated[i], expected[i], bound)
              << library.add(spec).name << " on " << rows << " rows: " << i;
      }
  }
}
