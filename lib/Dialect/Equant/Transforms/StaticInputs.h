//===- StaticInputs.h - Constant scales of activations ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Chooses scales and zero points of activations that are quantized per tensor, from what
// calibration has gathered. Private to the passes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_STATICINPUTS_H
#define EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_STATICINPUTS_H

#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Weights/ConstantTensors.h"

#include <optional>

namespace easyquant::equant {

/// How a static range follows from statistics.
struct StaticObserver {
  std::string name; ///< minmax, absmax, percentile, mse, entropy or ema
  std::optional<double> percentile;
};

class StaticInputs {
public:
  /// Opens the module's statistics file and model. Sites whose plans name an observer take that,
  /// all others `observer`. Fails with a diagnostic: an unknown observer, no statistics, those of
  /// another model.
  static mlir::FailureOr<StaticInputs> open(mlir::ModuleOp module, StaticObserver observer);

  /// Scale and zero point of the activations of `op`, whose plan has a static scheme per tensor.
  ///
  /// The file says which transforms had been there when the activations were observed. One that
  /// came after divides channel j of the activations by what it multiplies column j of the weight
  /// with, so that minmax and absmax, which are kept per channel, follow it; the other observers
  /// know the tensor as a whole and cannot (Unsupported), and no range follows a rotation. Also
  /// NotFound (what was not gathered, and how to gather it), InvalidArgument (an unknown observer)
  /// and Corrupt; each names the site.
  Result<numerics::SliceParams> choose(QuantizableOpInterface op, PlanAttr plan) const;

private:
  StaticInputs(formats::StatisticsFile file, ConstantReader reader, mlir::ModuleOp module,
               StaticObserver preset)
      : file(std::move(file)), reader(std::move(reader)), constants(module),
        preset(std::move(preset)) {}

  Result<std::vector<float>> divisorsOf(llvm::StringRef site, const ConstantTensor &weight) const;
  Result<numerics::SliceParams> fromExtrema(llvm::StringRef site, llvm::StringRef observer,
                                            const numerics::Scheme &scheme,
                                            const std::vector<float> &divisors) const;
  Result<numerics::SliceParams> fromHistogram(llvm::StringRef site, llvm::StringRef observer,
                                              const numerics::Scheme &scheme) const;
  Result<numerics::SliceParams> fromAverages(llvm::StringRef site,
                                             const numerics::Scheme &scheme) const;

  formats::StatisticsFile file;
  ConstantReader reader;
  ConstantMatcher constants;
  StaticObserver preset; ///< of sites that name none
};

} // namespace easyquant::equant

#endif // EASYQUANT_LIB_DIALECT_EQUANT_TRANSFORMS_STATICINPUTS_H
