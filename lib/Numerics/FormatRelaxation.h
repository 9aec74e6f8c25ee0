//===- FormatRelaxation.h - Choices of formats, relaxed ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_FORMATRELAXATION_H
#define EASYQUANT_LIB_NUMERICS_FORMATRELAXATION_H

#include "easyquant/Numerics/FormatChoice.h"

#include <utility>

namespace easyquant::numerics {

/// The best choice for some of the groups if formats could be mixed.
class FormatRelaxation {
public:
  FormatRelaxation(const FormatTable &table, std::span<const size_t> groups);

  /// A lower bound of the loss of these groups within a budget; infinite where they do not fit.
  double bound(int64_t budget) const;
  /// Gives these groups formats that fit and are nearly best. They must fit at all.
  void complete(int64_t budget, std::vector<size_t> &formats) const;

private:
  /// From one format of a group's hull to the next larger one.
  struct Step {
    size_t group, format;
    int64_t bytes;
    double loss; ///< negative
  };

  const FormatTable &table;
  std::vector<std::pair<size_t, size_t>> smallest; ///< group and format
  FormatCost base;                                 ///< of these
  std::vector<Step> steps;                         ///< those that gain most a byte first
  std::vector<FormatCost> sums;                    ///< base and the first i steps
};

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_FORMATRELAXATION_H
