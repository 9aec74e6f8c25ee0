//===- Elementwise.h - What an op computes for each element -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Ops of linalg with one result, seen as arithmetic on whole tensors. Dimensions of one step count
// nowhere: torch-mlir reads them by a loop or by a constant, as it happens.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_LINALGTOLM_ELEMENTWISE_H
#define EASYQUANT_LIB_CONVERSION_LINALGTOLM_ELEMENTWISE_H

#include "mlir/Dialect/Linalg/IR/Linalg.h"

#include <array>
#include <optional>

namespace easyquant {

/// An operand of arithmetic: elements of a tensor, or a number.
struct Term {
  mlir::Value tensor;                 ///< null: the number
  double number = 0;                  ///< as the op has it
  llvm::SmallVector<int64_t> loops;   ///< those that its dimensions follow
  llvm::SmallVector<int64_t> extents; ///< of all loops

  /// Does it follow the dimensions from `first` to before `end`, those before it or behind it being
  /// repeated?
  bool follows(int64_t first, int64_t end) const;
  bool isWhole() const { return follows(0, std::ssize(extents)); }
  /// A value for each row, whose elements are the last dimension.
  bool isOfRows() const { return follows(0, std::ssize(extents) - 1); }
  /// The last `count` dimensions, for all others alike.
  bool isOfLast(int64_t count) const {
    return follows(std::ssize(extents) - count, std::ssize(extents));
  }
};

/// A result whose elements are computed by themselves.
struct Elementwise {
  mlir::linalg::LinalgOp op;
  llvm::SmallVector<int64_t> extents; ///< of the loops, which are the dimensions of the result
  mlir::Value yielded;                ///< in the body

  /// None for other ops, and for dynamic extents.
  static std::optional<Elementwise> match(mlir::Value value);
  /// None where the scalar is computed, or read in another order.
  std::optional<Term> term(mlir::Value scalar);
};

/// The number that a scalar is, behind conversions of floats.
std::optional<double> numberOf(mlir::Value scalar);

/// The operands of a result that is `Op` of two terms, or of one.
template <typename Op> std::optional<std::array<Term, 2>> binary(Elementwise &of) {
  auto op = of.yielded.getDefiningOp<Op>();
  if (!op)
    return {};
  std::optional<Term> lhs = of.term(op.getLhs()), rhs = of.term(op.getRhs());
  if (!lhs || !rhs)
    return {};
  return std::array{*lhs, *rhs};
}
template <typename Op> std::optional<Term> unary(Elementwise &of) {
  auto op = of.yielded.getDefiningOp<Op>();
  return op ? of.term(op.getOperand()) : std::nullopt;
}

/// What is reduced over its last dimension, which may stay as one element.
mlir::Value summedOverLast(mlir::Value value);
mlir::Value largestOfLast(mlir::Value value);

/// x / (1 + e^-x) without the product: the x of 1 / (1 + e^-x).
mlir::Value sigmoidOf(mlir::Value value);
/// The tensor of fewer elements that is repeated along dimension `dim` of the result.
mlir::Value repeatedAlong(mlir::Value value, int64_t dim);

/// Through ops that give the elements another shape, in the same order.
mlir::Value reshaped(mlir::Value value);

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_LINALGTOLM_ELEMENTWISE_H
