//===- ConstantWeights.h - Quantized constants and where they come from --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_CONSTANTWEIGHTS_H
#define EASYQUANT_WEIGHTS_CONSTANTWEIGHTS_H

#include "easyquant/Target/Target.h"
#include "easyquant/Weights/ConstantTensors.h"

#include <optional>
#include <string>
#include <vector>

namespace easyquant::equant {

/// Rows of a quantized weight that come from one constant.
struct WeightPart {
  ConstantTensor weight; ///< floats, or codes if these exist
  std::string site;      ///< for messages and reports
  /// What is taken of it once it is quantized: its scales follow from whole rows.
  int64_t firstRow = 0, rows = 0, firstColumn = 0, columns = 0;
  int64_t blocks = 1; ///< equal ones of the constant's rows, of each of which as many are taken
  /// What a method has computed: scales (rows x G), with zero points or minima of an asymmetric
  /// scheme and the outer scales (rows x 1) of one that has them, instead of those of the rule;
  /// codes (rows x K) instead of the nearest ones.
  std::optional<ConstantTensor> scale, zeroPoint, minimum, outer, codes;
  bool hasFloats = true; ///< else nothing is known but codes and scales

  bool hasAllColumns() const { return columns == weight.columns(); }
  /// Equal for equal rows.
  std::string key() const;
};

/// A weight that is concat(quantize(constant), ...), or of parts of such (equant.slice): everything
/// needed to evaluate it without the IR.
struct ConstantWeight {
  std::vector<WeightPart> parts; ///< top to bottom
  int64_t rows = 0, columns = 0;
  SchemeAttr scheme;
  numerics::ScaleRule rule; ///< where scales are not computed
  bool needsSums = false;   ///< a reader has asymmetric activations
  targets::Readers readers;

  /// Equal for equal codes and scales.
  std::string key() const;
};

/// Looks through what makes a weight. `sites` names the parts. On failure the diagnostic, at `loc`
/// and naming a site, says which op is not the expected one.
mlir::FailureOr<ConstantWeight> matchConstantWeight(const ConstantMatcher &constants,
                                                    mlir::Location loc,
                                                    llvm::ArrayRef<llvm::StringRef> sites,
                                                    mlir::Value weight);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_CONSTANTWEIGHTS_H
