//===- GpuStep.cpp - What kernels on GPUs read of a step ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/GpuStep.h"

#include <algorithm>
#include <tuple>

using namespace easyquant;
using namespace easyquant::formats;

/// The pieces of `rows` rows of a sequence, the first of which is its own number `first`.
static void addPieces(const PieceCut &cut, const eq_sequence &sequence, int32_t number,
                      int64_t first, int64_t rows, int64_t &places, std::vector<Piece> &pieces) {
  const int64_t position = sequence.position + first, end = position + rows;
  const int64_t begin =
      cut.window > 0 ? std::max<int64_t>(0, position + 1 - cut.window) : int64_t(0);
  const int64_t firstCut = cut.tokens > 0 ? (begin - cut.origin) / cut.tokens : 0;
  const int64_t parts =
      cut.tokens > 0 ? (end - 1 - cut.origin) / cut.tokens + 1 - firstCut : int64_t(1);
  for (int64_t part = 0; part < parts; ++part) {
    Piece &piece = pieces.emplace_back();
    piece.sequence = number;
    piece.row = static_cast<int32_t>(sequence.first_row + first);
    piece.rows = static_cast<int32_t>(rows);
    const int64_t from = cut.origin + (firstCut + part) * cut.tokens;
    piece.begin = static_cast<int32_t>(part == 0 ? begin : from);
    piece.end = static_cast<int32_t>(part + 1 == parts ? end : from + cut.tokens);
    piece.partials = static_cast<int32_t>(parts > 1 ? places : 0);
    piece.part = static_cast<int32_t>(part);
    piece.parts = static_cast<int32_t>(parts);
  }
  if (parts > 1)
    places += rows * parts;
}

int64_t formats::listPieces(const PieceCut &cut, std::span<const eq_sequence> sequences,
                            std::vector<Piece> &pieces) {
  int64_t places = 0;
  pieces.clear();
  for (int32_t number = 0; number < std::ssize(sequences); ++number) {
    const eq_sequence &sequence = sequences[static_cast<size_t>(number)];
    if (sequence.rows < cut.minRows || (cut.maxRows > 0 && sequence.rows > cut.maxRows))
      continue;
    for (int64_t first = 0; first < sequence.rows; first += cut.rows)
      addPieces(cut, sequence, number, first, std::min(cut.rows, sequence.rows - first), places,
                pieces);
  }
  std::ranges::sort(pieces, {}, [](const Piece &piece) {
    return std::tuple(piece.begin - piece.end, piece.row, piece.part);
  });
  return places;
}
