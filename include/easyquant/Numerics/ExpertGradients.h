//===- ExpertGradients.h - Gradients of mixtures of experts -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What the `lm` dialect's gradient ops mean that have to do with the choices of rows (Experts.h).
// Rows of choices are sorted by expert: those of expert e are offsets[e] to offsets[e + 1]. Row m
// has C choices, numbers m C to (m + 1) C of `places`, which say where they lie. Results are only
// written, overlap no operand, and are the same bits for any number of threads (0: one per core).
// Sizes are the caller's to get right.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_EXPERTGRADIENTS_H
#define EASYQUANT_NUMERICS_EXPERTGRADIENTS_H

#include "easyquant/Numerics/Experts.h"

namespace easyquant::numerics {

/// dx = dy w of the rows of each expert, whose weights of N x K lie one below the other in w.
void expertInputGradient(ConstMatrix dy, ConstMatrix w, std::span<const int32_t> offsets, Matrix dx,
                         unsigned threads);
/// dw = dy^T x of the rows of each expert; 0 where it has none.
void expertWeightGradient(ConstMatrix dy, ConstMatrix x, std::span<const int32_t> offsets,
                          Matrix dw, unsigned threads);

/// y[place of choice j of row m] = weights[m, j] x[the same row].
void weighChoices(ConstMatrix x, std::span<const int32_t> places, ConstMatrix weights, Matrix y);
/// dweights[m, j] = <dy[m], x[place of choice j of row m]>, M x C.
void choiceWeightsGradient(ConstMatrix dy, ConstMatrix x, std::span<const int32_t> places,
                           Matrix dweights);
/// The gradients of what is added to a row, sigma(gate) times `shared`; gate and dgate are M x 1.
void sharedExpertGradient(ConstMatrix dy, ConstMatrix shared, ConstMatrix gate, Matrix dshared,
                          Matrix dgate);
/// The gradients of the logits, M x E, of which `router` made the weights of the choices; its bias
/// counts for nothing. Who is chosen is constant.
void routeGradient(ConstMatrix dweights, ConstMatrix logits, std::span<const int32_t> offsets,
                   std::span<const int32_t> places, const Router &router, Matrix dlogits);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_EXPERTGRADIENTS_H
