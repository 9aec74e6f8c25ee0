//===- SiteBounds.h - Errors and bounds of single sites ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measures what the sites of a float model would suffer by their plans, one at a time, beside its
// bounds, and adds it to a report. Weights are read a few rows at a time. Private to
// lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_SITEBOUNDS_H
#define EASYQUANT_LIB_CALIBRATION_SITEBOUNDS_H

#include "BoundsReport.h"
#include "FloatRun.h"

#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Execution/LayerSites.h"

namespace easyquant::calibration {

using namespace execution;

/// What Hoeffding's bound may fail with.
inline constexpr double kSamplingRisk = 0.05;

class SiteBounds {
public:
  /// `samples`: how many there are in all.
  SiteBounds(const ModelConstants &constants, int64_t samples, unsigned threads,
             BoundsReport &report)
      : constants(constants), order(randomOrder(samples)), threads(threads), report(report) {}

  /// Weights and outputs of the sites, and the bytes that they move. Fails with a diagnostic.
  mlir::LogicalResult addLinears(const SiteGroup &group, const ActivationSummary &activation);
  /// Scales of the activation that few samples give.
  void addSampling(const SiteGroup &group, const ActivationSummary &activation);
  /// `point` has a reader whose plan quantizes its input. Fails with a diagnostic.
  mlir::LogicalResult addSmoothing(const equant::FoldPoint &point,
                                   const ActivationSummary &activation);
  /// What the attention of layer `layer` caches. Fails with a diagnostic.
  mlir::LogicalResult addCache(lm::AttentionOp attention, int64_t layer, const CachedRows &cached);

private:
  mlir::LogicalResult
  visitRows(equant::QuantizableOpInterface op, bool whole,
            llvm::function_ref<Result<void>(numerics::ConstMatrix)> visit) const;

  const ModelConstants &constants;
  std::vector<int64_t> order;
  unsigned threads;
  BoundsReport &report;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_SITEBOUNDS_H
