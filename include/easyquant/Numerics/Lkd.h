//===- Lkd.h - Layer-by-layer distillation ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// ZeroQuant's LKD (Yao et al., 2022, https://arxiv.org/abs/2206.01861): the weights W behind the
// codes of a layer are trained until the quantized layer gives what the float layer gives,
//
//      minimise  mean (L(h) - Lhat(h))^2        Lhat: the layer on Q(W)
//
// over hidden states h of the float model. What a layer computes, and its gradients, are the
// caller's (DifferentiableLayer): here are the loss, the optimizer and the rounding. Scales follow
// from W by their rule in every step where none are given, and gradients pass Q as if it were the
// identity (Bengio et al., 2013). Adam (Kingma and Ba, 2014) takes steps of at most `learningRate`
// times the mean scale of a weight, so that one setting fits all bit widths and magnitudes; it
// falls linearly to 0.
//
// Some sequences are held out. What is returned is the best on these, among the weights as they
// came and those after each pass over the others: never worse than round to nearest.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_LKD_H
#define EASYQUANT_NUMERICS_LKD_H

#include "easyquant/Numerics/DifferentiableLayer.h"

namespace easyquant::numerics {

struct LkdOptions {
  int64_t epochs = 4;          ///< passes over the sequences that are not held out
  double learningRate = 0.005; ///< in units of a weight's mean scale; positive
  double heldOut = 0.125;      ///< share of the sequences, at least one; in (0, 1)
  int64_t skippedRows = 0;     ///< first rows of every sequence that the loss does not count
  unsigned threads = 0;        ///< 0: one per core. Results are the same bits for any number.
};

/// Distills a layer; targets[i] is what the float layer makes of sequence i. Fails with
/// InvalidArgument on options out of range, fewer than two sequences, a rule that does not serve
/// its scheme, and values that are or become not finite, and as the layer fails.
Result<TrainedWeights> distill(DifferentiableLayer &layer, std::span<const TrainedSite> sites,
                               std::span<const ConstMatrix> targets, const LkdOptions &options);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_LKD_H
