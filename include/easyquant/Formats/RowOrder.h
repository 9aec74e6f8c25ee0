//===- RowOrder.h - Rows of a file in another order -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_ROWORDER_H
#define EASYQUANT_FORMATS_ROWORDER_H

#include <cstdint>

namespace easyquant::formats {

/// Where a file has the rows, or the columns, of a weight. Behind the first `kept` ones lie runs of
/// outer x inner pieces of `unit` rows, and piece (a, b) of a run in the model is piece (b, a) of
/// the same run in the file.
struct RowOrder {
  int64_t kept = 0, outer = 1, inner = 1, unit = 1;

  constexpr bool isSame() const { return outer == 1 || inner == 1; }
  /// The place in the file of row `row` of the model.
  constexpr int64_t stored(int64_t row) const {
    if (row < kept || isSame())
      return row;
    const int64_t behind = row - kept, run = outer * inner * unit;
    const int64_t piece = behind % run / unit;
    return kept + behind / run * run + (piece % inner * outer + piece / inner) * unit +
           behind % unit;
  }
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_ROWORDER_H
