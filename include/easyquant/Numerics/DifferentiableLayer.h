//===- DifferentiableLayer.h - What is trained layer by layer ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A layer, the weights of it that are quantized, and what training them gives: what LKD (Lkd.h) and
// learned rounding (SignRound.h) share.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_DIFFERENTIABLELAYER_H
#define EASYQUANT_NUMERICS_DIFFERENTIABLELAYER_H

#include "easyquant/Numerics/Quantize.h"
#include "easyquant/Numerics/ScaleRules.h"

#include <optional>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// A weight that is quantized; the others of the layer stay float.
struct TrainedSite {
  ConstMatrix weight; ///< as it comes, N x K; read before DifferentiableLayer::setWeight is called
  Scheme scheme;
  ScaleRule rule;
  std::optional<QParams> params = {}; ///< instead of those that follow from the weight by the rule
};

/// A layer on the sequences that it is distilled on.
class DifferentiableLayer {
public:
  virtual ~DifferentiableLayer() = default;
  /// Puts `values` in the place of the weight of a site. Never called from two threads.
  virtual Result<void> setWeight(size_t site, ConstMatrix values) = 0;
  /// y = the layer of a sequence.
  virtual Result<void> forward(size_t sequence, Matrix y) = 0;
  /// After forward of the same sequence: dL/dW of all sites, given dL/dy.
  virtual Result<void> backward(size_t sequence, ConstMatrix dy,
                                std::span<const Matrix> gradients) = 0;
};

/// What training gives: never worse than what it began with.
struct TrainedWeights {
  std::vector<QuantizedMatrix> weights; ///< of the sites, in their order
  double before = 0, after = 0;         ///< loss of the sequences held out
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_DIFFERENTIABLELAYER_H
