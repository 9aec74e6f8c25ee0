//===- RotatedValues.h - Values that a cache keeps rotated ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Attention gives every head a weighted sum of values. What rotates the columns of the values
// within heads therefore rotates those of the result alike. So the basis of a site that reads
// attention's result is folded into the linear that makes the values: into the rows of its weight
// and its bias. Where one linear makes queries, keys and values, in this order, it is the last
// rows.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_ROTATEDVALUES_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_ROTATEDVALUES_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

namespace easyquant::equant {

/// Where a site's basis may be folded.
struct ValuesOfSite {
  lm::LinearOp linear;  ///< makes the values; null: there is no such linear
  int64_t headDim = 0;  ///< blocks lie within so many columns
  int64_t firstRow = 0; ///< of the values; those before are queries and keys

  explicit operator bool() const { return static_cast<bool>(linear); }
  bool takes(int64_t block) const { return linear && block != 0 && headDim % block == 0; }
};

/// The linear whose result, or the last columns of it, is the values of the attention that `site`
/// reads as it is. There is none where others read values or what attention makes, too.
ValuesOfSite valuesOf(QuantizableOpInterface site);

/// The plan in the basis of the largest block that divides the columns of the site, or those of a
/// head where the linear that makes the values takes it.
PlanAttr inFittingBasis(QuantizableOpInterface site, PlanAttr plan);

/// Rows of a weight that are rotated in blocks.
struct RowBlocks {
  int64_t block = 0; ///< 0: all rows stay as they are
  int64_t first = 0; ///< rows before it stay
};
/// The rows of the site's weight that equant-rotate rotates together: it makes the values of a site
/// whose plan has a basis.
RowBlocks rowBlocksOf(QuantizableOpInterface site);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_ROTATEDVALUES_H
