//===- LossSums.h - Hessians of the loss, of a sum over samples -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Linears that read tokens have their Hessians summed up as samples go through the layer. Those of
// all experts of a layer would be more than memory holds: 128 of 768 x 2048 have 7.3 GB, several
// times while they are summed up. So the rows of experts are kept, of all samples, and the Hessians
// of each are made when they are asked for.
//
// Private to lib/Execution.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXECUTION_LOSSSUMS_H
#define EASYQUANT_LIB_EXECUTION_LOSSSUMS_H

#include "easyquant/Execution/LossStatistics.h"
#include "easyquant/Execution/SampleSum.h"

#include <memory>

namespace easyquant::execution {

/// Which samples count how.
struct LossSamples {
  Ranks ranks;
  const CalibrationTokens *tokens;
  bool rows;       ///< Hout, too
  int64_t heldOut; ///< the last ones of all, in sums of their own
};

/// The Hessians of several weights, of all samples and of those held out.
class LossSums {
public:
  LossSums(const LossSamples &samples, std::vector<LossWeight> weights);
  /// A sample of this rank, in ascending order. Errors: those of LossHessians::add.
  Result<void> add(int64_t sample, llvm::ArrayRef<TrainedLayer::Rows> rows, unsigned threads);
  /// What the loss says of each weight. Collective. Errors: those of Ranks.
  Result<std::vector<SiteLoss>> finish();

private:
  LossSamples samples;
  size_t count;
  SampleSum<LossHessians> used, kept;
};

/// What the experts of the linears of a layer read, and the gradients at what they give: the rows
/// of the samples of this rank.
class ExpertLoss {
public:
  /// `weights` are those of one expert of each linear.
  ExpertLoss(const LossSamples &samples, std::vector<LossWeight> weights)
      : samples(samples), weights(std::move(weights)) {}
  /// Keeps the rows of each linear, of the next sample. Linears that read the same have it once.
  void keep(llvm::ArrayRef<TrainedLayer::Rows> rows);
  /// What the loss says of an expert; Hessians of 0 where no row chose it. Collective. Errors:
  /// those of LossSums.
  Result<SiteLoss> of(size_t linear, int64_t expert, unsigned threads) const;

private:
  struct Kept {
    std::shared_ptr<const std::vector<float>> input;
    std::vector<float> gradient;
    std::vector<int32_t> offsets;
  };
  LossSamples samples;
  std::vector<LossWeight> weights;
  std::vector<std::vector<Kept>> kept; ///< by sample, then by linear
};

} // namespace easyquant::execution

#endif // EASYQUANT_LIB_EXECUTION_LOSSSUMS_H
