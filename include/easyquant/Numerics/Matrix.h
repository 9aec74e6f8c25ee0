//===- Matrix.h - Views of row-major matrices -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_MATRIX_H
#define EASYQUANT_NUMERICS_MATRIX_H

#include <algorithm>
#include <cstdint>
#include <type_traits>

namespace easyquant::numerics {

/// A borrowed matrix whose rows are contiguous and `stride` elements apart.
template <typename T> struct MatrixView {
  T *data = nullptr;
  int64_t rows = 0, columns = 0, stride = 0;

  MatrixView() = default;
  MatrixView(T *data, int64_t rows, int64_t columns) : MatrixView(data, rows, columns, columns) {}
  MatrixView(T *data, int64_t rows, int64_t columns, int64_t stride)
      : data(data), rows(rows), columns(columns), stride(stride) {}
  /// A view of mutable elements is one of constant elements.
  template <typename U>
    requires std::is_same_v<const U, T>
  MatrixView(const MatrixView<U> &other)
      : MatrixView(other.data, other.rows, other.columns, other.stride) {}

  T *row(int64_t i) const { return data + i * stride; }
  T &operator()(int64_t i, int64_t j) const { return data[i * stride + j]; }
  /// Rows first .. first + count - 1.
  MatrixView middleRows(int64_t first, int64_t count) const {
    return {row(first), count, columns, stride};
  }
};

using ConstMatrix = MatrixView<const float>;
using Matrix = MatrixView<float>;

/// Some rows of a matrix.
struct RowRange {
  int64_t first = 0, count = 0;
};

/// One of `parts` parts of `rows` rows, cut between blocks of `block` rows.
inline RowRange partOfRows(int64_t rows, int64_t block, int64_t part, int64_t parts) {
  const int64_t blocks = (rows + block - 1) / block;
  const int64_t first = std::min(rows, blocks * part / parts * block),
                last = std::min(rows, blocks * (part + 1) / parts * block);
  return {first, last - first};
}

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_MATRIX_H
