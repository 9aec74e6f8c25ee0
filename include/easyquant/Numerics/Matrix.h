//===- Matrix.h - Views of row-major matrices -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_MATRIX_H
#define EASYQUANT_NUMERICS_MATRIX_H

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

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_MATRIX_H
