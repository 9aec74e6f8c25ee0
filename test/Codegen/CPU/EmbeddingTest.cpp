//===- EmbeddingTest.cpp - Token and position embeddings ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "SequenceTable.h"

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
namespace numerics = easyquant::numerics;

namespace {

constexpr float kBetween = 77.0f;

std::vector<float> randomTable(int64_t rows, int64_t columns) {
  std::mt19937 random(static_cast<unsigned>(rows + columns));
  std::normal_distribution<float> normal;
  std::vector<float> table(rows * columns);
  for (float &x : table)
    x = normal(random);
  return table;
}

/// The first, the last and some tokens in between, in no order.
std::vector<int32_t> someTokens(int64_t count, int64_t vocab) {
  std::vector<int32_t> tokens(count);
  for (int64_t i = 0; i < count; ++i)
    tokens[i] = static_cast<int32_t>((vocab - 1) - i * 37 % vocab);
  return tokens;
}

/// Strided rows of the result, compared with `expected` (dense) bit by bit.
struct Rows {
  Rows(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), stride(columns + 3),
        y((rows - 1) * stride + columns, kBetween) {}
  MemRef<float, 2> view() { return MemRef<float, 2>::strided(y.data(), {rows, columns}, stride); }
  void expectEqual(const std::vector<float> &expected) const {
    for (int64_t i = 0; i < static_cast<int64_t>(y.elementCount()); ++i) {
      int64_t row = i / stride, column = i % stride;
      ASSERT_EQ(y[i], column < columns ? expected[row * columns + column] : kBetween)
          << "row " << row << ", column " << column;
    }
  }
  int64_t rows, columns, stride;
  GuardedBuffer<float> y;
};

TEST(Embedding, FloatTable) {
  constexpr int64_t vocab = 77;
  for (const Target &target : testTargets())
    for (int64_t columns : {1, 7, 64, 172, 576}) {
      KernelRunner run(target, [&](ModuleOp module) {
        return getOrEmitEmbedding(module, EmbeddingSpec{vocab, columns}, target);
      });
      std::vector<float> values = randomTable(vocab, columns);
      GuardedBuffer<float> table(values.size());
      std::copy(values.begin(), values.end(), table.data());
      MemRef<float, 2> tableView(table.data(), {vocab, columns});
      for (int64_t rows : {1, 3, 17, 40}) {
        std::vector<int32_t> tokens = someTokens(rows, vocab);
        MemRef<int32_t, 1> tokensView(tokens.data(), {rows});
        std::vector<float> expected;
        for (int32_t token : tokens)
          expected.insert(expected.end(), values.begin() + token * columns,
                          values.begin() + (token + 1) * columns);
        for (int64_t threads : {1, 2, 3}) {
          Rows y(rows, columns);
          auto view = y.view();
          run(tokensView, tableView, view, threads);
          y.expectEqual(expected);
        }
      }
    }
}

/// Random codes and parameters of every value that the scheme has.
numerics::QuantizedMatrix randomQuantized(const EmbeddingSpec &spec) {
  numerics::Scheme scheme;
  scheme.bits = static_cast<int>(bitsOf(spec.table));
  scheme.minima = spec.numbers.minima;
  scheme.symmetric = !spec.zeroPoints && !scheme.minima;
  scheme.fullRange = scheme.symmetric;
  scheme.granularity =
      spec.groupSize == 0 ? numerics::Granularity::Channel : numerics::Granularity::Group;
  scheme.groupSize = spec.groupSize;
  scheme.codes = spec.numbers.codes;
  scheme.scales = spec.numbers.scales;
  if (scheme.codes == CodeFormat::Table)
    scheme.table = numerics::Codebook::nf4();
  scheme.outer = spec.numbers.outer;
  scheme.fullRange &= scheme.isInteger();
  std::mt19937 random(static_cast<unsigned>(spec.columns));
  int half = 1 << (scheme.bits - 1);
  std::uniform_int_distribution<int> code(-half, half - 1);
  std::uniform_real_distribution<float> scale(0.001f, 0.1f);
  int64_t groups = groupCount(spec.columns, spec.groupSize);
  numerics::QuantizedMatrix q{scheme, spec.vocab, spec.columns, {}, {spec.vocab, groups, {}, {}}};
  for (int64_t i = 0; i < spec.vocab * spec.columns; ++i)
    q.codes.push_back(static_cast<int8_t>(code(random)));
  if (scheme.codes == CodeFormat::F8E4M3FN) // less its NaNs
    std::ranges::replace_if(q.codes, [](int8_t c) { return c == -1 || c == 127; }, int8_t(0));
  for (int64_t row = 0; row < spec.vocab && scheme.outer; ++row)
    q.params.outer.push_back(scale(random));
  float unit = 1; // of a super-group
  for (int64_t i = 0; i < spec.vocab * groups; ++i) {
    float inner = numerics::roundScale(scale(random), scheme.scales);
    if (scheme.scales == ScaleFormat::UI6) {
      if (i % groups % numerics::kSuperGroups == 0)
        unit = numerics::roundScale(scale(random), ScaleFormat::F16);
      inner = static_cast<float>(1 + random() % 63) / 64 * unit;
    }
    q.params.scales.push_back(inner * q.params.outerOf(i / groups));
    if (spec.zeroPoints)
      q.params.zeroPoints.push_back(code(random));
    if (scheme.minima)
      q.params.minima.push_back(numerics::roundScale(scale(random) - 0.07f, scheme.scales));
  }
  return q;
}

void checkPacked(const EmbeddingSpec &spec, const Kernel &run) {
  SCOPED_TRACE(symbolName(spec));
  numerics::QuantizedMatrix quantized = randomQuantized(spec);
  auto layout = numerics::panelLayout(quantized.scheme, spec.vocab, spec.columns);
  ASSERT_TRUE(layout.has_value()) << layout.error().message;
  numerics::PackedWeight packed = numerics::pack(*layout, quantized);
  std::vector<float> table(quantized.codes.size());
  numerics::dequantize(quantized, {table.data(), spec.vocab, spec.columns});

  using numerics::WeightTensor;
  auto guarded = [&](WeightTensor tensor) {
    auto buffer = std::make_unique<GuardedBuffer<uint8_t>>(packed[tensor].size());
    std::ranges::copy(packed[tensor], buffer->data());
    return buffer;
  };
  auto codes = guarded(WeightTensor::Codes), scales = guarded(WeightTensor::Scales),
       zeros = guarded(WeightTensor::ZeroPoints), outer = guarded(WeightTensor::Outer),
       minima = guarded(WeightTensor::Minima), codebook = guarded(WeightTensor::Codebook);
  std::array<int64_t, 3> outerRows = {panelCount(spec.vocab), 1, kPanelRows};
  MemRef<uint8_t, 3> outerView(outer->data(), outerRows);
  MemRef<uint8_t, 1> codebookView(codebook->data(), {std::ssize(codebook->span()) / 4});
  std::array<int64_t, 3> params = {panelCount(spec.vocab), layout->groups(), kPanelRows};
  std::array<int64_t, 3> fields = params;
  fields[2] = numerics::panelFieldBytes(static_cast<int>(bitsOf(spec.table)));
  MemRef<uint8_t, 4> codesView(codes->data(), packedShape(spec.table, spec.vocab, spec.columns));
  // The kernel sees bytes as elements of its own type.
  std::array<int64_t, 3> scaleShape = params;
  if (spec.numbers.scales == ScaleFormat::UI6)
    scaleShape = {params[0], 1, std::ssize(packed[WeightTensor::Scales]) / params[0]};
  MemRef<uint8_t, 3> scalesView(scales->data(), scaleShape), zerosView(zeros->data(), fields);
  MemRef<uint8_t, 3> minimaView(minima->data(), params);
  for (int64_t rows : {1, 3, 40}) {
    std::vector<int32_t> tokens = someTokens(rows, spec.vocab);
    MemRef<int32_t, 1> tokensView(tokens.data(), {rows});
    std::vector<float> expected;
    for (int32_t token : tokens)
      expected.insert(expected.end(), table.begin() + token * spec.columns,
                      table.begin() + (token + 1) * spec.columns);
    for (int64_t threads : {1, 2, 3}) {
      Rows y(rows, spec.columns);
      auto view = y.view();
      if (spec.numbers.codes == CodeFormat::Table)
        run(tokensView, codesView, scalesView, codebookView, view, threads);
      else if (spec.numbers.outer)
        run(tokensView, codesView, scalesView, outerView, view, threads);
      else if (spec.numbers.minima)
        run(tokensView, codesView, scalesView, minimaView, view, threads);
      else if (spec.zeroPoints)
        run(tokensView, codesView, scalesView, zerosView, view, threads);
      else
        run(tokensView, codesView, scalesView, view, threads);
      y.expectEqual(expected);
    }
  }
}

// Panels hold rows interleaved; the vocabulary fills the last one only in part, and groups may be
// short. scale x (code - zero point) is one rounding, and so is the sum with a minimum, so the bits
// are those of Numerics.
TEST(Embedding, PackedTable) {
  constexpr int64_t vocab = 77;
  constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 0},    {7, 0},  {64, 32}, {100, 48},
                                                    {172, 64}, {12, 8}, {576, 0}};
  for (const Target &target : testTargets()) {
    std::vector<EmbeddingSpec> specs;
    for (WeightFormat format : {WeightFormat::I8, WeightFormat::I6, WeightFormat::I5,
                                WeightFormat::I4, WeightFormat::I3, WeightFormat::I2})
      for (auto [columns, groupSize] : shapes)
        for (bool zeroPoints : {false, true})
          specs.push_back({vocab, columns, format, groupSize, zeroPoints, {}});
    for (WeightNumbers numbers :
         {WeightNumbers{.scales = ScaleFormat::F16},
          WeightNumbers{
              .codes = CodeFormat::F4E2M1FN, .scales = ScaleFormat::F8E4M3FN, .outer = true},
          WeightNumbers{.codes = CodeFormat::F4E2M1FN, .scales = ScaleFormat::F8E8M0FNU},
          WeightNumbers{.codes = CodeFormat::Table}})
      specs.push_back({vocab, 100, WeightFormat::I4, 32, false, numbers});
    for (bool zeroPoints : {false, true}) {
      specs.push_back({vocab, 576, WeightFormat::I5, 32, zeroPoints, {.scales = ScaleFormat::UI6}});
      specs.push_back({vocab, 100, WeightFormat::I4, 16, zeroPoints, {.scales = ScaleFormat::UI6}});
    }
    specs.push_back(
        {vocab, 100, WeightFormat::I8, 0, false, {CodeFormat::F8E4M3FN, ScaleFormat::BF16}});
    specs.push_back({vocab, 172, WeightFormat::I2, 16, true, {.scales = ScaleFormat::F16}});
    for (WeightFormat format :
         {WeightFormat::I8, WeightFormat::I5, WeightFormat::I4, WeightFormat::I2})
      specs.push_back(
          {vocab, 100, format, 32, false, {.scales = ScaleFormat::F16, .minima = true}});
    specs.push_back({vocab, 172, WeightFormat::I2, 16, false, {.minima = true}});
    KernelLibrary library(target, [&](ModuleOp module) {
      return llvm::map_to_vector(specs, [&](const EmbeddingSpec &spec) {
        return getOrEmitEmbedding(module, spec, target);
      });
    });
    for (const EmbeddingSpec &spec : specs)
      checkPacked(spec, library.kernel(symbolName(spec)));
  }
}

TEST(PositionEmbedding, AddsRowsFromPositionOn) {
  constexpr int64_t positions = 30;
  for (const Target &target : testTargets())
    for (int64_t columns : {1, 7, 64, 172}) {
      KernelRunner run(target, [&](ModuleOp module) {
        return getOrEmitPositionEmbedding(module, PositionEmbeddingSpec{positions, columns},
                                          target);
      });
      std::vector<float> values = randomTable(positions, columns);
      GuardedBuffer<float> table(values.size());
      std::copy(values.begin(), values.end(), table.data());
      MemRef<float, 2> tableView(table.data(), {positions, columns});
      for (auto [rows, position] : {std::pair<int64_t, int64_t>{1, 29}, {17, 13}, {3, 0}}) {
        for (int64_t threads : {1, 2, 3}) {
          Rows y(rows, columns);
          std::vector<float> expected(rows * columns);
          for (int64_t m = 0; m < rows; ++m)
            for (int64_t c = 0; c < columns; ++c) {
              y.y[m * y.stride + c] = static_cast<float>(m - c);
              expected[m * columns + c] =
                  static_cast<float>(m - c) + values[(position + m) * columns + c];
            }
          auto view = y.view();
          SequenceTable sequence(rows, position);
          auto sequences = sequence.view();
          run(view, tableView, sequences, threads);
          y.expectEqual(expected);
        }
      }
    }
}

TEST(PositionEmbedding, RowsOfManySequences) {
  constexpr int64_t positions = 30, columns = 12;
  for (const Target &target : testTargets()) {
    KernelRunner run(target, [&](ModuleOp module) {
      return getOrEmitPositionEmbedding(module, PositionEmbeddingSpec{positions, columns}, target);
    });
    std::vector<float> values = randomTable(positions, columns);
    MemRef<float, 2> tableView(values.data(), {positions, columns});
    SequenceTable table;
    std::vector<int64_t> expectedPositions;
    for (auto [rows, position] : {std::pair<int64_t, int64_t>{1, 29}, {7, 13}, {1, 0}, {3, 4}}) {
      table.add(rows, position);
      for (int64_t row = 0; row < rows; ++row)
        expectedPositions.push_back(position + row);
    }
    for (int64_t threads : {1, 2, 3, 5}) {
      Rows y(std::ssize(expectedPositions), columns);
      std::vector<float> expected;
      for (int64_t m = 0; m < y.rows; ++m)
        for (int64_t c = 0; c < columns; ++c) {
          y.y[m * y.stride + c] = static_cast<float>(m - c);
          expected.push_back(static_cast<float>(m - c) +
                             values[expectedPositions[m] * columns + c]);
        }
      auto view = y.view();
      auto sequences = table.view();
      run(view, tableView, sequences, threads);
      y.expectEqual(expected);
    }
  }
}

TEST(Gather, CopiesTheRowsOfTheList) {
  for (const Target &target : testTargets())
    for (int64_t columns : {1, 7, 64, 172}) {
      KernelRunner run(target, [&](ModuleOp module) {
        return getOrEmitGather(module, GatherSpec{columns}, target);
      });
      std::vector<float> values = randomTable(20, columns);
      MemRef<float, 2> x = MemRef<float, 2>::strided(values.data(), {20, columns}, columns);
      for (std::vector<int32_t> list :
           {std::vector<int32_t>{19}, {0, 3, 4}, {1, 2, 5, 6, 7, 8, 9, 10, 11, 12, 18}})
        for (int64_t threads : {1, 2, 3}) {
          Rows y(std::ssize(list), columns);
          std::vector<float> expected;
          for (int32_t row : list)
            expected.insert(expected.end(), values.begin() + row * columns,
                            values.begin() + (row + 1) * columns);
          MemRef<int32_t, 1> numbers(list.data(), {std::ssize(list)});
          auto view = y.view();
          run(numbers, x, view, threads);
          y.expectEqual(expected);
        }
    }
}

} // namespace
