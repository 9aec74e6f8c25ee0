//===- PlainPacking.h - Weights as they are ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The layout of weights that no kernel of ours reads: those of upstream ops
// (convert-equant-to-linalg).
//
//   codes        N x K int8, one a byte
//   scales       N x G f32, whatever they were rounded to; products where one lies above them
//   zero points  N x G int8
//   minima       N x G f32
//   sums         N x G int32: the sum of code - zero point over each group
//   codebook     2^b floats; code q stands for element q + 2^(b-1)
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_PLAINPACKING_H
#define EASYQUANT_NUMERICS_PLAINPACKING_H

#include "easyquant/Numerics/WeightLayout.h"

namespace easyquant::numerics {

inline constexpr std::string_view kPlainLayout = "plain"; ///< its name in the IR

struct PlainLayout final : WeightLayout {
  PlainLayout(const Scheme &scheme, int64_t rows, int64_t columns);

  std::vector<int64_t> shape(WeightTensor tensor) const override;
  int64_t blockRows() const override { return 1; }
  void pack(int64_t firstRow, const QuantizedMatrix &block, PackedWeight &out) const override;
};

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_PLAINPACKING_H
