//===- SignRound.h - Rounding learned by signed gradients -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// SignRound (Cheng et al., 2023, https://arxiv.org/abs/2309.05516), known as AutoRound: each weight
// w has an offset v in [-1/2, 1/2] and each slice a factor a of its scale s in [1/2, 3/2],
//
//      what = a s (clamp(rne(w / (a s) + v) + z) - z)
//
// which start at 0 and 1 and follow the signs of the gradients of a layer's squared error,
//
//      v <- v - r sign(dL/dv)            dL/dv = dL/dwhat a s
//      a <- a - r/4 sign(dL/da)          dL/da = sum dL/dwhat s (what / (a s) - w / (a s))
//
// rounding counting as the identity and a clamped weight as a constant, of which the second term of
// dL/da is missing. The step r falls linearly to 0, and its sum is 1/2: as far as an offset goes. a
// s is rounded to the format of scales in every step, of two levels in units of the f16 that there
// is; zero points stay.
//
// Between values of a table t that ascend, offsets are in units of the distance of the two
// neighbours of x = w / (a s),
//
//      what = a s t[i + (x + v (t[i+1] - t[i]) > (t[i] + t[i+1]) / 2)]       t[i] <= x < t[i+1]
//
// so that an offset takes a weight to the other neighbour, however far that is, and no further, and
// 1/2 is as far for each. Beyond an end, i is that of the outermost two, and a weight is clamped
// where x + v (t[i+1] - t[i]) lies there. Rounding the identity, what = a s (x + v (t[i+1] -
// t[i])),
//
//      dL/dv = dL/dwhat a s (t[i+1] - t[i])        dL/da as above: the distance is constant in a
//
// which has the sign of dL/dwhat as before. A table of evenly spaced values is learned as integers.
//
// Some sequences are held out. What is returned is the best on these, among round to nearest in the
// ranges given and what is there after each quarter of the steps: never worse than the former.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_SIGNROUND_H
#define EASYQUANT_NUMERICS_SIGNROUND_H

#include "easyquant/Numerics/DifferentiableLayer.h"

namespace easyquant::numerics {

struct SignRoundOptions {
  int64_t steps = 200;     ///< updates, each by the gradients of one sequence
  double heldOut = 0.125;  ///< share of the sequences, at least one; in (0, 1)
  int64_t skippedRows = 0; ///< first rows of every sequence that the loss does not count
  unsigned threads = 0;    ///< 0: one per core. Results are the same bits for any number.
};

/// Is there something to learn: codes that are integers or indices of a table, and a scale for each
/// row or group? InvalidArgument otherwise.
Result<void> checkRoundingIsLearned(const Scheme &scheme);

/// Learns the rounding of a layer's weights; targets[i] is what the float layer makes of sequence
/// i. Ranges are those of the sites, or follow from their rules. Fails with InvalidArgument on
/// options out of range, fewer than two sequences, schemes that checkRoundingIsLearned refuses, a
/// rule that does not serve its scheme, and values that are or become not finite, and as the layer
/// fails.
Result<TrainedWeights> learnRounding(DifferentiableLayer &layer, std::span<const TrainedSite> sites,
                                     std::span<const ConstMatrix> targets,
                                     const SignRoundOptions &options);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_SIGNROUND_H
