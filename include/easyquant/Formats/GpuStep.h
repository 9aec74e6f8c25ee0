//===- GpuStep.h - What kernels on GPUs read of a step ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A launch is for all sequences of a step. What it has to know of them lies in device memory: the
// step's table of sequences (eq_sequence, Step.h), whose each row is, and the pieces that the work
// of attention is cut into. The host writes them; kernels read the numbers of these structures.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_GPUSTEP_H
#define EASYQUANT_FORMATS_GPUSTEP_H

#include "easyquant/Formats/Step.h"

#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::formats {

/// Where a row of the step belongs.
struct RowPlace {
  int32_t sequence; ///< the number, in the step's table, of the one whose row it is
  int32_t position; ///< of its token there
};

/// Some rows of a sequence attend to some of its cached tokens. Where the tokens that they see are
/// in several pieces, these are the parts of one result: together they have rows x parts places for
/// partial sums, each with room for all heads of a row, as the kernel lays them out.
struct Piece {
  int32_t sequence;   ///< its number in the step's table
  int32_t row, rows;  ///< the first of the step's rows, and how many
  int32_t begin, end; ///< tokens, [begin, end)
  int32_t partials;   ///< the first place of all parts; 0 where there is one part
  int32_t part, parts;
};
/// Pieces are rows of a matrix of int32_t. Row 0 has their number in column 0.
inline constexpr int64_t kPieceFields = sizeof(Piece) / sizeof(int32_t);
inline constexpr int64_t kRowPlaceFields = sizeof(RowPlace) / sizeof(int32_t);

/// How kernels of attention want a step cut into pieces.
struct PieceCut {
  /// Sequences with so many rows in the step have pieces, others have none; maxRows 0: any number.
  int64_t minRows = 1, maxRows = 0;
  int64_t rows = 1; ///< of a piece, at most
  /// Cached tokens of a piece, at most: pieces end at `origin` and multiples of them behind it, so
  /// that a sequence is cut alike whatever else is in the step. 0: all tokens are in one piece.
  int64_t tokens = 0;
  int64_t origin = 0; ///< at most 0
  int64_t window = 0; ///< tokens that a row sees, its own the last of them; 0: all
  bool operator==(const PieceCut &) const = default;
};

/// The pieces of a step, those of most tokens first, so that blocks that take turns have about as
/// many. Returns the number of places for partial sums.
int64_t listPieces(const PieceCut &cut, std::span<const eq_sequence> sequences,
                   std::vector<Piece> &pieces);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_GPUSTEP_H
