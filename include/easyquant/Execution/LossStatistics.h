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
// A site of E experts has those of each expert, over the rows that chose it, one behind the other:
// [E, K (K + 1) / 2] and so on. Those of an expert that no row chose are 0.
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

#include <functional>
#include <optional>
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

/// What the loss says of sites of a layer.
struct LayerLoss {
  std::vector<SiteLoss> sites; ///< nothing in those of linears of experts
  /// What it says of one expert of site `site`: Hessians of 0 where no row chose it, or the loss
  /// does not depend on it. Collective. Fails with a diagnostic.
  std::function<mlir::FailureOr<SiteLoss>(size_t site, int64_t expert)> ofExpert;
};

/// The experts of a site; 0: it is none of experts.
int64_t expertsOf(equant::QuantizableOpInterface site);
/// Emits that the loss does not depend on a site.
mlir::LogicalResult failUnreached(equant::QuantizableOpInterface site);

/// Takes the gradients through the next layer and gathers. Collective. Fails with a diagnostic: a
/// site without experts that the loss does not depend on, a gradient that is not finite.
mlir::FailureOr<LayerLoss> gatherLoss(LossGradients &gradients, const Ranks &ranks,
                                      const LayerRunner &runner,
                                      llvm::ArrayRef<equant::QuantizableOpInterface> sites,
                                      const LossRequest &request, unsigned threads);

/// A tensor of a site, as the file has it.
struct LossTensor {
  std::string name;
  std::vector<int64_t> shape;
  std::variant<std::vector<float>, std::vector<int64_t>> values;
};
/// The tensors of site `number` of `losses`, which has no Hessian of it any more. Collective. Fails
/// with a diagnostic: that of LayerLoss, or the loss depends on no expert.
mlir::FailureOr<std::vector<LossTensor>> tensorsOf(equant::QuantizableOpInterface site,
                                                   size_t number, LayerLoss &losses);

class LossStatistics {
public:
  /// Fails with a diagnostic: no such file, statistics of another model or of another text.
  static mlir::FailureOr<LossStatistics> open(mlir::ModuleOp module,
                                              const ModelConstants &constants,
                                              const CalibrationTokens &tokens,
                                              llvm::StringRef path);

  /// What the loss says of a site, or of one expert of it, in the basis of its weight. Fails with a
  /// diagnostic: the site is not in the file, its weight is made in another way than by scales and
  /// rotations.
  mlir::FailureOr<SiteLoss> of(const ModelConstants &constants, equant::QuantizableOpInterface site,
                               const LossRequest &request,
                               std::optional<int64_t> expert = std::nullopt) const;

private:
  /// An expert of a site, and how many there are.
  struct Part {
    int64_t expert, experts;
  };
  explicit LossStatistics(formats::StatisticsFile file) : file(std::move(file)) {}
  Result<SiteLoss> read(llvm::StringRef site, int64_t rows, int64_t columns,
                        std::optional<Part> part, const LossRequest &request) const;

  formats::StatisticsFile file;
};

/// Where Hessians come from: a file, or the model run backward where none is named.
class LossSource {
public:
  /// Without a file it runs the model forward. Fails with a diagnostic.
  static mlir::FailureOr<LossSource> open(LayerRunner &runner, const Ranks &ranks,
                                          llvm::StringRef file, unsigned threads);

  /// What the loss says of some sites of a layer, or of none: to be asked for all layers down from
  /// the last one. It lives as long as the source. Collective. Fails with a diagnostic.
  mlir::FailureOr<LayerLoss> of(llvm::ArrayRef<equant::QuantizableOpInterface> sites,
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
