//===- LearnedTable.h - Tables of values from weights -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The table t of small
//
//      sum_j h_j sum_n (w_nj - s_ng t[q_nj])^2,      h_j = E[x_j^2],   g = group of j,
//
// in turns: scales by the rule for the table as it is, then the table of least error for these
// scales, which is the best k-means of the values w / s on a line, each counting h s^2, by dynamic
// programming over a histogram of them (as Ckmeans.1d.dp; Wang and Song, 2011. Weights as in
// SqueezeLLM; Kim et al., 2023, https://arxiv.org/abs/2306.07629). Rules that take scales from
// extremes take the largest magnitude to the outermost value, which then stays what it is. A rule's
// scales need not be the best ones, so that the error may rise: the best table is kept. A table
// that is to be int8 is rounded in every turn, so that codes, scales and errors are those of the
// rounded one.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_LEARNEDTABLE_H
#define EASYQUANT_NUMERICS_LEARNEDTABLE_H

#include "easyquant/Numerics/ScaleRules.h"

namespace easyquant::numerics {

/// Rows of a weight, and what its columns are multiplied by.
struct RowsToLearn {
  ConstMatrix rows;
  std::span<const float> meanSquares; ///< E[x_j^2] of each column; empty: ones
};

/// One table for all of them, the value of largest magnitude being 1 or -1; or, where the table to
/// start from is int8, one of int8 values. `scheme` has the table to start from; its scales are
/// taken for f32 ones. The rule weighs errors by meanSquares where it is HessianDiagonal. The same
/// for any number of threads (0: one per core). Errors: those of chooseQParams.
Result<const Codebook *> learnTable(std::span<const RowsToLearn> weights, const Scheme &scheme,
                                    ScaleRule rule, unsigned threads);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_LEARNEDTABLE_H
