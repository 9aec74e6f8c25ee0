//===- StoredRows.h - Rows of a weight as floats ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_STOREDROWS_H
#define EASYQUANT_LIB_FORMATS_STOREDROWS_H

#include "Checkpoint.h"
#include "easyquant/Formats/RowOrder.h"

namespace easyquant::formats {

/// The bytes behind the rows of a weight: one tensor, or one for each of several experts, whose
/// rows come one behind the other.
struct StoredRows {
  std::vector<StoredTensor> parts;
  /// The file holds K x N (Conv1D).
  bool transposed = false;
  RowOrder order;
  /// The file has -exp of it.
  bool isLogarithm = false;
  /// If not 0: one tensor has all experts (ExpectedTensor::stack).
  int64_t stackParts = 0, stackPart = 0;
  bool stacksRows = false;
  /// Added to what is stored.
  float offset = 0.0f;

  bool isThere() const { return !parts.empty() && parts.front().data.data(); }
  /// Rows [firstRow, firstRow + rows) of `allRows` rows of `columns` values.
  Result<void> read(int64_t allRows, int64_t columns, int64_t firstRow, int64_t rows,
                    std::span<float> out) const;
  /// The pages of all that was read leave memory.
  void release() const;

private:
  Result<void> readRowsOfStack(int64_t partRows, int64_t columns, int64_t firstRow, int64_t rows,
                               std::span<float> out) const;
  Result<void> readStack(int64_t partRows, int64_t columns, int64_t firstRow, int64_t rows,
                         std::span<float> out) const;
};

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_STOREDROWS_H
