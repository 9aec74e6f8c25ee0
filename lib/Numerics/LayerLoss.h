//===- LayerLoss.h - What a layer's weights are trained by ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_LAYERLOSS_H
#define EASYQUANT_LIB_NUMERICS_LAYERLOSS_H

#include "easyquant/Numerics/DifferentiableLayer.h"

#include <optional>
#include <string_view>

namespace easyquant::numerics {

/// The mean squared error of a layer's output. The last sequences are held out.
class LayerLoss {
public:
  /// `heldOut`: share of the sequences, at least one; the first `skippedRows` rows of each do not
  /// count. `remedy` ends the message where the output is not finite.
  LayerLoss(DifferentiableLayer &layer, std::span<const ConstMatrix> targets, double heldOut,
            int64_t skippedRows, std::string_view remedy);

  /// Sequences that are not held out.
  size_t trained() const { return training; }
  /// The loss of one sequence, and dL/dW of all sites if there is a place for them. Fails with
  /// InvalidArgument where the output is not finite, and as the layer fails.
  Result<double> of(size_t sequence, std::span<const Matrix> gradients = {});
  /// Keeps the codes of `weights` if they are the first, or better than those before on the
  /// sequences held out.
  template <typename Weights>
  Result<void> keepBest(const Weights &weights, std::optional<TrainedWeights> &best) {
    auto now = ofHeldOut();
    if (!now)
      return Unexpected(now.error());
    if (!best)
      best.emplace(TrainedWeights{{}, *now, *now});
    else if (!(*now < best->after))
      return {};
    best->after = *now;
    best->weights.clear();
    for (const auto &weight : weights)
      best->weights.push_back(weight.codes);
    return {};
  }

private:
  /// The mean over the sequences held out.
  Result<double> ofHeldOut();

  DifferentiableLayer &layer;
  std::span<const ConstMatrix> targets;
  size_t training;
  int64_t skippedRows;
  std::string_view remedy;
  std::vector<float> output;
};

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_LAYERLOSS_H
