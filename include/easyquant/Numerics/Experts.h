//===- Experts.h - Which experts compute which rows -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Mixtures of experts (Shazeer et al., 2017, https://arxiv.org/abs/1701.06538): what lm.route and
// lm.combine mean.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_EXPERTS_H
#define EASYQUANT_NUMERICS_EXPERTS_H

#include "easyquant/Numerics/Matrix.h"

#include <cstdint>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// The choices of all rows, C a row, sorted by expert and then by row.
struct Routing {
  std::vector<int32_t> order;   ///< the row of each choice
  std::vector<int32_t> offsets; ///< E + 1: where those of each expert begin, and the last ones end
  std::vector<int32_t> places;  ///< C for each row, from its greatest logit on: where they lie
  std::vector<float> weights;   ///< C for each row: softmax over all, or over the chosen ones
};

/// How rows choose, and what their choices count.
struct Router {
  int64_t chosen = 1;
  bool renormalize = false;
  /// Scores are sigmoids of logits, to which `bias` is added where experts are chosen, if it is not
  /// empty; weights are scores, or their parts of the sum of those chosen and 1e-20.
  bool sigmoid = false;
  std::span<const float> bias = {};
  double scale = 1.0;                  ///< of weights
  std::span<const float> factors = {}; ///< of the weights of each expert; empty: 1
};

/// Each row of logits, M x E, chooses the `chosen` greatest, of equal ones those that come first.
/// `chosen` is from 1 to E, and every logit is a number.
Routing route(ConstMatrix logits, const Router &router);

/// y[m] = sum_j weights[m, j] * x[places[m, j]], for M x columns elements of y.
void combine(ConstMatrix x, const Routing &routing, Matrix y);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_EXPERTS_H
