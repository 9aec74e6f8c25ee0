//===- AwqSearch.h - AWQ's scales and ranges in one layer -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The enclosing block of q, k, v and o ends with the residual sum behind attention, that of gate,
// up and down with the one behind the MLP: the next place where the layer can be cut. Its output
// differs from the block's by the residual, which no candidate changes, so that their errors agree.
// Private to lib/Methods.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_AWQSEARCH_H
#define EASYQUANT_LIB_CALIBRATION_AWQSEARCH_H

#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Execution/LayerSites.h"
#include "easyquant/Execution/SampleSum.h"
#include "easyquant/Numerics/Awq.h"
#include "easyquant/Numerics/Statistics.h"

#include "llvm/ADT/SetVector.h"

namespace easyquant::methods {

using namespace execution;

class AwqSearch {
public:
  /// `points` are the fold points of the layer. Candidates are compared on the first
  /// `searchSamples` samples.
  AwqSearch(LayerRunner &runner, const Ranks &ranks, mlir::func::FuncOp layer,
            std::vector<const equant::FoldPoint *> points, int64_t searchSamples, unsigned threads)
      : runner(runner), ranks(ranks), layer(layer), points(std::move(points)), threads(threads),
        kept(std::min(searchSamples, runner.tokens().allSamples())) {}

  /// Takes `states` through the layer; with `gather` the activations are looked at on the way,
  /// which both searches need. Fails with a diagnostic, as these do.
  mlir::LogicalResult runLayer(HiddenStates &states, bool gather);
  /// The factors of a point.
  mlir::FailureOr<std::vector<float>> searchScales(const equant::FoldPoint &point);
  /// Scales and zero points of a site whose weight has been scaled; `factors` divide its input.
  mlir::FailureOr<numerics::AwqClipResult> searchClip(const PlannedSite &site,
                                                      llvm::ArrayRef<float> factors);

private:
  /// Rows of the samples that candidates are compared on.
  struct KeptRows {
    int64_t columns = 0;
    std::vector<std::vector<float>> samples;
    numerics::Matrix sample(int64_t i) {
      return {samples[i].data(), static_cast<int64_t>(samples[i].size()) / columns, columns};
    }
  };

  llvm::SetVector<mlir::Value> searchedValues();
  Result<void> quantizeScaled(CompiledSubgraph &program,
                              std::vector<std::pair<PlannedSite, WeightValues>> &weights,
                              std::span<const float> scales, std::span<const float> meanSquares);
  Result<double> outputError(CompiledSubgraph &program, const Subgraph &subgraph);

  /// Gives all ranks the rows that candidates are compared on, and the means of all samples.
  Result<void> shareActivations();

  LayerRunner &runner;
  const Ranks &ranks;
  mlir::func::FuncOp layer;
  std::vector<const equant::FoldPoint *> points;
  unsigned threads;
  int64_t kept;
  llvm::MapVector<mlir::Value, SampleSum<numerics::MeanAbs>> sums;
  llvm::MapVector<mlir::Value, SampleSum<numerics::Moments>> squareSums;
  llvm::MapVector<mlir::Value, std::vector<float>> means;       ///< mean |x|
  llvm::MapVector<mlir::Value, std::vector<float>> meanSquares; ///< E[x^2]
  llvm::MapVector<mlir::Value, KeptRows> rows; ///< activations, cuts, and the layer's input
};

} // namespace easyquant::methods

#endif // EASYQUANT_LIB_CALIBRATION_AWQSEARCH_H
