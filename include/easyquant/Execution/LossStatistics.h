//===- LossStatistics.h - Hessians of the loss, of all and held out -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What methods take of the loss: the Hessians (LossHessians.h) of all samples, and those of the
// last quarter of them, which judge what the others alone have chosen. They are gathered by running
// the model backward, or read from a file that an earlier run has left:
//
//      <site>/loss_inputs, <site>/held_out_inputs      F32 [K (K + 1) / 2]  H, its lower triangle
//      <site>/loss_outputs, <site>/held_out_outputs    F32 [N (N + 1) / 2]  Hout, row by row
//      <site>/loss_tokens                              I64 [2]              of all, held out
//
// The file is of the model as it is. Where transforms have changed a weight, what they have done to
// its columns and rows is done to the Hessians, too. Tokens then still count by the gradient of the
// output as it was before its rows were scaled.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LOSSSTATISTICS_H
#define EASYQUANT_EXECUTION_LOSSSTATISTICS_H

#include "easyquant/Execution/LossGradients.h"
#include "easyquant/Execution/LossHessians.h"
#include "easyquant/Execution/Ranks.h"
#include "easyquant/Formats/StatisticsFile.h"

#include <variant>

namespace easyquant::execution {

/// The statistic of `easyquant calibrate` that this is.
inline constexpr llvm::StringLiteral kLossStatistic = "fisher";

/// So many of the samples, the last ones, are held out; none of a single one.
int64_t heldOutSamples(int64_t samples);

/// What the loss says of a site.
struct SiteLoss {
  HessianPair all, heldOut; ///< nothing in `heldOut` where nothing was held out

  /// The Hessians of the samples that are not held out.
  HessianPair used() const;
};

/// What is asked for besides H.
struct LossRequest {
  bool rows = true;    ///< Hout
  bool heldOut = true; ///< those of the samples held out
};

/// Takes the gradients through the next layer and gathers. Collective. Fails with a diagnostic.
mlir::FailureOr<std::vector<SiteLoss>>
gatherLoss(LossGradients &gradients, const Ranks &ranks, const LayerRunner &runner,
           llvm::ArrayRef<equant::QuantizableOpInterface> sites, const LossRequest &request,
           unsigned threads);

/// The tensors of a site, as the file has them.
struct LossTensor {
  std::string name;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};
std::vector<LossTensor> tensorsOf(llvm::StringRef site, SiteLoss loss);

class LossStatistics {
public:
  /// Fails with a diagnostic: no such file, statistics of another model or of another text.
  static mlir::FailureOr<LossStatistics> open(mlir::ModuleOp module,
                                              const ModelConstants &constants,
                                              const CalibrationTokens &tokens,
                                              llvm::StringRef path);

  /// What the loss says of each of the sites, in the basis of its weight. Fails with a diagnostic:
  /// a site is not in the file, its weight is made in another way than by scales and rotations.
  mlir::FailureOr<std::vector<SiteLoss>> of(const ModelConstants &constants,
                                            llvm::ArrayRef<equant::QuantizableOpInterface> sites,
                                            const LossRequest &request) const;

private:
  explicit LossStatistics(formats::StatisticsFile file) : file(std::move(file)) {}
  mlir::FailureOr<SiteLoss> of(const ModelConstants &constants, equant::QuantizableOpInterface site,
                               const LossRequest &request) const;
  Result<SiteLoss> read(llvm::StringRef site, int64_t rows, int64_t columns,
                        const LossRequest &request) const;

  formats::StatisticsFile file;
};

/// Where Hessians come from: a file, or the model run backward where none is named.
class LossSource {
public:
  /// Without a file it runs the model forward. Fails with a diagnostic.
  static mlir::FailureOr<LossSource> open(LayerRunner &runner, const Ranks &ranks,
                                          llvm::StringRef file, unsigned threads);

  /// What the loss says of some sites of a layer, or of none: to be asked for all layers down from
  /// the last one. Collective. Fails with a diagnostic.
  mlir::FailureOr<std::vector<SiteLoss>> of(llvm::ArrayRef<equant::QuantizableOpInterface> sites,
                                            const LossRequest &request);

private:
  LossSource(LayerRunner &runner, const Ranks &ranks, unsigned threads)
      : runner(&runner), ranks(ranks), threads(threads) {}

  LayerRunner *runner;
  Ranks ranks;
  unsigned threads;
  std::optional<LossGradients> gradients;
  std::optional<LossStatistics> file;
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LOSSSTATISTICS_H
