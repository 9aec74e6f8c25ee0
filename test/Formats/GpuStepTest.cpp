//===- GpuStepTest.cpp - The pieces that attention is cut into ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GpuStep.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>

using namespace easyquant::formats;

namespace {

/// A step of sequences of (rows, position).
std::vector<eq_sequence> stepOf(const std::vector<std::pair<int32_t, int32_t>> &sequences) {
  std::vector<eq_sequence> step;
  int32_t row = 0;
  for (auto [rows, position] : sequences) {
    eq_sequence &sequence = step.emplace_back();
    sequence = {};
    sequence.first_row = row;
    sequence.rows = rows;
    sequence.position = position;
    row += rows;
  }
  return step;
}

struct Listed {
  std::vector<Piece> pieces;
  int64_t places;
};

Listed list(const PieceCut &cut, const std::vector<eq_sequence> &step) {
  Listed listed;
  listed.places = listPieces(cut, step, listed.pieces);
  return listed;
}

/// Every token that a row sees is in one piece of it, whose parts are numbered from 0 on and whose
/// places nobody else has; and pieces have no tokens but those that a row sees.
void check(const PieceCut &cut, const std::vector<eq_sequence> &step) {
  const Listed listed = list(cut, step);
  std::set<int64_t> places;
  for (const eq_sequence &sequence : step)
    for (int32_t i = 0; i < sequence.rows; ++i) {
      const int64_t row = sequence.first_row + i, position = sequence.position + i;
      const bool isTaken =
          sequence.rows >= cut.minRows && (cut.maxRows == 0 || sequence.rows <= cut.maxRows);
      std::vector<int> seen(static_cast<size_t>(position) + 1);
      std::set<int32_t> parts;
      for (const Piece &piece : listed.pieces) {
        if (row < piece.row || row >= piece.row + piece.rows)
          continue;
        EXPECT_EQ(&step[piece.sequence], &sequence);
        EXPECT_LE(piece.rows, cut.rows);
        EXPECT_LT(piece.begin, piece.end);
        for (int64_t token = piece.begin; token < std::min<int64_t>(piece.end, position + 1);
             ++token)
          ++seen[token];
        EXPECT_TRUE(parts.insert(piece.part).second);
        EXPECT_LT(piece.part, piece.parts);
        if (piece.parts > 1) {
          EXPECT_TRUE(
              places.insert(piece.partials + (row - piece.row) * piece.parts + piece.part).second);
          EXPECT_GT(cut.tokens, 0);
        }
        if (cut.tokens > 0 && piece.part + 1 < piece.parts)
          EXPECT_EQ((piece.end - cut.origin) % cut.tokens, 0);
        if (cut.tokens > 0 && piece.part > 0)
          EXPECT_EQ((piece.begin - cut.origin) % cut.tokens, 0);
      }
      const int64_t first = cut.window > 0 ? std::max<int64_t>(0, position + 1 - cut.window) : 0;
      for (int64_t token = 0; token <= position; ++token)
        if (isTaken && token >= first)
          ASSERT_EQ(seen[token], 1) << "row " << row << ", token " << token;
      EXPECT_EQ(parts.empty(), !isTaken);
    }
  if (!places.empty()) {
    EXPECT_EQ(*places.begin(), 0);
    EXPECT_EQ(*places.rbegin() + 1, listed.places);
  }
  EXPECT_EQ(std::ssize(places), listed.places);
}

} // namespace

TEST(GpuStep, PiecesHoldWhatRowsSee) {
  const auto step = stepOf({{1, 0}, {1, 255}, {1, 256}, {8, 250}, {3, 700}, {9, 0}, {40, 500}});
  for (const PieceCut &cut : {PieceCut{1, 8, 5, 256, 0, 0}, PieceCut{1, 8, 1, 256, -28, 0},
                              PieceCut{1, 8, 16, 256, 0, 300}, PieceCut{9, 0, 21, 0, 0, 0},
                              PieceCut{9, 0, 4, 0, -60, 33}, PieceCut{1, 0, 3, 256, -1, 10}})
    check(cut, step);
}

TEST(GpuStep, ASequenceIsCutAlikeInAnyStep) {
  const PieceCut cut = {1, 8, 5, 256, -28, 0};
  for (auto [rows, position] : {std::pair(1, 1000), {7, 1020}}) {
    const Listed alone = list(cut, stepOf({{rows, position}}));
    const Listed together = list(cut, stepOf({{3, 17}, {rows, position}, {1, 4000}}));
    std::vector<Piece> own;
    std::copy_if(together.pieces.begin(), together.pieces.end(), std::back_inserter(own),
                 [](const Piece &piece) { return piece.sequence == 1; });
    ASSERT_EQ(own.size(), alone.pieces.size());
    for (size_t i = 0; i < own.size(); ++i) {
      const Piece &a = own[i], &b = alone.pieces[i];
      EXPECT_EQ(std::tuple(a.row - 3, a.rows, a.begin, a.end, a.part, a.parts),
                std::tuple(b.row, b.rows, b.begin, b.end, b.part, b.parts));
    }
  }
}

// Blocks take turns, each piece counting once for every kv head.
TEST(GpuStep, BlocksHaveAboutAsManyTokens) {
  constexpr int64_t kBlocks = 264, kHeads = 8;
  std::mt19937 random(5);
  std::uniform_real_distribution<double> exponent(0, std::log(32768.0));
  for (int trial = 0; trial < 20; ++trial) {
    std::vector<std::pair<int32_t, int32_t>> sequences;
    Listed listed;
    do {
      for (int i = 0; i < 8; ++i)
        sequences.emplace_back(1, static_cast<int32_t>(std::exp(exponent(random))) - 1);
      listed = list({1, 8, 4, 256, 0, 0}, stepOf(sequences));
    } while (std::ssize(listed.pieces) < 4 * kBlocks);
    std::vector<int64_t> tokens(kBlocks);
    for (size_t item = 0; item < listed.pieces.size() * kHeads; ++item) {
      const Piece &piece = listed.pieces[item / kHeads];
      tokens[item % kBlocks] += piece.end - piece.begin;
    }
    const auto mean = double(std::accumulate(tokens.begin(), tokens.end(), int64_t(0))) / kBlocks;
    EXPECT_LE(double(*std::max_element(tokens.begin(), tokens.end())), 1.1 * mean);
  }
}
