//===- FloatRun.h - The float model, looked at on its way -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Takes all samples through the float model, one function after the other, and keeps of the
// activations what errors and bounds are computed from. Private to lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_FLOATRUN_H
#define EASYQUANT_LIB_CALIBRATION_FLOATRUN_H

#include "easyquant/Execution/LayerRunner.h"
#include "easyquant/Numerics/Statistics.h"

#include "llvm/ADT/MapVector.h"

#include <optional>

namespace easyquant::calibration {

using namespace execution;

/// What is kept of an activation.
struct ActivationSummary {
  explicit ActivationSummary(int64_t columns) : peaks(columns), moments(columns) {}
  numerics::AbsMax peaks;
  numerics::Moments moments;
  std::vector<double> scales; ///< of each sample by itself, for int8 codes
  std::vector<float> picked;  ///< rows on which outputs are compared
};

/// What one attention would cache, by sample.
struct CachedRows {
  std::vector<std::vector<float>> keys, values;
};

class FloatRun {
public:
  /// Keeps the cached rows of the first `samples` samples, and `rows` rows of every activation,
  /// evenly spread.
  FloatRun(LayerRunner &runner, int64_t samples, int64_t rows);

  /// Embeds the samples. Fails with a diagnostic.
  mlir::LogicalResult start();
  /// Takes all samples from `input`, whose rows are the hidden states, through `function`.
  /// Summarizes `observed` and keeps what `attention`, if there is one, would cache, in the place
  /// of those of the function before. `output`, if there is one, becomes the hidden states. Fails
  /// with a diagnostic.
  mlir::LogicalResult run(mlir::func::FuncOp function, mlir::Value input, mlir::Value output,
                          llvm::ArrayRef<mlir::Value> observed, lm::AttentionOp attention);

  /// How many samples, the first ones, are kept.
  int64_t samples() const { return kept; }
  int64_t pickedRows() const;
  numerics::Matrix hiddenStates(int64_t sample) const { return states->sample(sample); }
  const ActivationSummary &summary(mlir::Value activation) const {
    return summaries.find(activation)->second;
  }
  const CachedRows &cachedRows() const { return cached; }
  /// The rows of a sample that count.
  numerics::ConstMatrix counted(numerics::ConstMatrix rows) const;

private:
  Result<void> summarize(ActivationSummary &summary, int64_t sample,
                         numerics::ConstMatrix rows) const;

  LayerRunner &runner;
  int64_t kept;
  std::vector<std::vector<int64_t>> picks; ///< by sample: rows on which outputs are compared
  std::optional<HiddenStates> states;
  llvm::MapVector<mlir::Value, ActivationSummary> summaries;
  CachedRows cached;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_FLOATRUN_H
