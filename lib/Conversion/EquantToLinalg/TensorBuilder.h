//===- TensorBuilder.h - Upstream ops on tensors ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What every op becomes is loops over dimensions: maps, reductions, contractions, and other shapes
// of the same elements. Dimensions are those of the loops; a tensor says which of them index it.
// Only the first dimension of activations, the tokens, has an extent that run time gives.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_TENSORBUILDER_H
#define EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_TENSORBUILDER_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

namespace easyquant {

using Dims = llvm::SmallVector<int64_t, 4>;
using Sizes = llvm::SmallVector<mlir::OpFoldResult, 4>;

/// A tensor whose element [i, j, ...] a loop nest reads, i and j being these of its dimensions.
struct Indexed {
  mlir::Value tensor;
  Dims dims;
};

class TensorBuilder : public mlir::ImplicitLocOpBuilder {
public:
  using ImplicitLocOpBuilder::ImplicitLocOpBuilder;
  /// The element of the result for the elements that are read and, last, what was summed before.
  using Body = llvm::function_ref<mlir::Value(TensorBuilder &, mlir::ValueRange)>;

  mlir::Value f32(double value);
  /// bound * tanh(x / bound) of an f32.
  mlir::Value softCap(mlir::Value x, double bound);
  mlir::Value i32(int32_t value);
  /// A constant of the type of a scalar.
  mlir::Value scalar(mlir::Type type, double value);
  /// A constant tensor of one dimension.
  mlir::Value table(llvm::ArrayRef<float> values);
  mlir::Value table(llvm::ArrayRef<int8_t> values);

  static mlir::RankedTensorType typeOf(mlir::Value tensor);
  static mlir::Type elementOf(mlir::Value tensor) { return typeOf(tensor).getElementType(); }
  Sizes sizesOf(mlir::Value tensor);
  mlir::OpFoldResult sizeOf(mlir::Value tensor, int64_t dim);
  mlir::OpFoldResult size(int64_t extent) { return getIndexAttr(extent); }
  mlir::Value index(int64_t dim);
  /// The first element of a dimension that `i`, of any integer type, is.
  mlir::Value asIndex(mlir::Value i);

  /// result[i, j, ...] = body(...): a parallel loop for each size.
  mlir::Value map(const Sizes &sizes, mlir::Type element, llvm::ArrayRef<Indexed> inputs,
                  Body body);
  /// The same for every element of one tensor.
  mlir::Value map(mlir::Value tensor, mlir::Type element, Body body);
  /// result[dims of it] = body over all other of `loops` dimensions in their order, from `init` on.
  /// `sizes` are those of the result.
  mlir::Value reduce(int64_t loops, const Dims &dims, const Sizes &sizes, mlir::Value init,
                     llvm::ArrayRef<Indexed> inputs, Body body);
  /// The sum of products over the dimensions that are none of the result's: linalg.contract, in
  /// `element`.
  mlir::Value contract(int64_t loops, const Indexed &a, const Indexed &b, const Dims &dims,
                       const Sizes &sizes, mlir::Type element);

  /// Zeros behind the elements of the last dimension, up to `extent` of them.
  mlir::Value pad(mlir::Value tensor, int64_t extent);
  /// The elements from `offsets` on, in all dimensions.
  mlir::Value slice(mlir::Value tensor, llvm::ArrayRef<int64_t> offsets, const Sizes &sizes);
  /// The elements from `offset` on of one dimension.
  mlir::Value slice(mlir::Value tensor, int64_t dim, int64_t offset, mlir::OpFoldResult count);
  /// One element of a dimension, which is dropped.
  mlir::Value pick(mlir::Value tensor, int64_t dim, int64_t at);
  /// A dimension as several, the last of which is the fastest.
  mlir::Value split(mlir::Value tensor, int64_t dim, llvm::ArrayRef<int64_t> extents);
  /// `count` dimensions from `dim` on as one.
  mlir::Value merge(mlir::Value tensor, int64_t dim, int64_t count);
  /// One below the other.
  mlir::Value concat(mlir::ValueRange tensors);

  /// result[m, ...] = tensor[rows[m], ...]
  mlir::Value gather(mlir::Value tensor, mlir::Value rows);
  /// x H along one dimension, in blocks: additions and subtractions as in
  /// easyquant/Numerics/Hadamard.h, without the factor.
  mlir::Value addAndSubtract(mlir::Value tensor, int64_t dim, int64_t block);

private:
  mlir::Value loop(mlir::Value init, int64_t loops, llvm::ArrayRef<Indexed> inputs,
                   const Dims &dims, Body body);
  mlir::AffineMap mapOf(int64_t loops, const Dims &dims);
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_TENSORBUILDER_H
