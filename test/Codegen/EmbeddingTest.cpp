//===- EmbeddingTest.cpp - Token and position embeddings ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include "easyquant/Numerics/Packing.h"
#include "easyquant/Numerics/Reference.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <random>
#include <vector>

using namespace mlir;
using namespace easyquant::cpu;
namespace numerics = easyquant::numerics;
using easyquant::cpu::groupCount;
using easyquant::cpu::kPanelRows;
using easyquant::cpu::paddedColumns;
using easyquant::cpu::panelCount;

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

} // namespace

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

// Panels hold rows interleaved; the vocabulary fills the last one only in part, and groups may be
// short. scale x code is one multiplication, so the bits are those of Numerics.
TEST(Embedding, PackedTable) {
  constexpr int64_t vocab = 77;
  constexpr std::pair<int64_t, int64_t> shapes[] = {{1, 0},    {7, 0},  {64, 32}, {100, 48},
                                                    {172, 64}, {12, 8}, {576, 0}};
  for (const Target &target : testTargets())
    for (WeightFormat format : {WeightFormat::I8, WeightFormat::I4})
      for (auto [columns, groupSize] : shapes) {
        SCOPED_TRACE(symbolName(EmbeddingSpec{vocab, columns, format, groupSize}));
        numerics::Scheme scheme;
        scheme.bits = format == WeightFormat::I8 ? 8 : 4;
        scheme.granularity =
            groupSize == 0 ? numerics::Granularity::Channel : numerics::Granularity::Group;
        scheme.groupSize = groupSize;
        std::vector<float> values = randomTable(vocab, columns);
        auto quantized = numerics::quantize({values.data(), vocab, columns}, scheme, {});
        ASSERT_TRUE(quantized.has_value()) << quantized.error().message;
        auto layout = numerics::panelLayout(scheme, vocab, columns);
        ASSERT_TRUE(layout.has_value()) << layout.error().message;
        numerics::PackedWeights packed = numerics::packPanels(*layout, *quantized);
        std::vector<float> table(values.size());
        numerics::dequantize(*quantized, {table.data(), vocab, columns});

        GuardedBuffer<int8_t> codes(packed.codes.size());
        std::memcpy(codes.data(), packed.codes.data(), packed.codes.size());
        GuardedBuffer<float> scales(packed.scales.size());
        std::copy(packed.scales.begin(), packed.scales.end(), scales.data());
        int64_t panels = panelCount(vocab);
        int64_t columnsOfSlab = format == WeightFormat::I8 ? 4 : 8;
        MemRef<int8_t, 4> codesView(
            codes.data(), {panels, paddedColumns(columns) / columnsOfSlab, kPanelRows, 4});
        MemRef<float, 3> scalesView(scales.data(),
                                    {panels, groupCount(columns, groupSize), kPanelRows});
        KernelRunner run(target, [&](ModuleOp module) {
          EmbeddingSpec spec{vocab, columns, format, groupSize};
          return getOrEmitEmbedding(module, spec, target);
        });
        for (int64_t rows : {1, 3, 40}) {
          std::vector<int32_t> tokens = someTokens(rows, vocab);
          MemRef<int32_t, 1> tokensView(tokens.data(), {rows});
          std::vector<float> expected;
          for (int32_t token : tokens)
            expected.insert(expected.end(), table.begin() + token * columns,
                            table.begin() + (token + 1) * columns);
          for (int64_t threads : {1, 2, 3}) {
            Rows y(rows, columns);
            auto view = y.view();
            run(tokensView, codesView, scalesView, view, threads);
            y.expectEqual(expected);
          }
        }
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
        Rows y(rows, columns);
        std::vector<float> expected(rows * columns);
        for (int64_t m = 0; m < rows; ++m)
          for (int64_t c = 0; c < columns; ++c) {
            y.y[m * y.stride + c] = static_cast<float>(m - c);
            expected[m * columns + c] =
                static_cast<float>(m - c) + values[(position + m) * columns + c];
          }
        auto view = y.view();
        run(tableView, position, view);
        y.expectEqual(expected);
      }
    }
}
