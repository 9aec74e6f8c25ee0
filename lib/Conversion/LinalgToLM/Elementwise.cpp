//===- Elementwise.cpp - What an op computes for each element -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Elementwise.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace easyquant;
using linalg::LinalgOp;

static SmallVector<int64_t> longLoops(ArrayRef<int64_t> extents, int64_t first, int64_t end) {
  SmallVector<int64_t> loops;
  for (int64_t loop = std::max<int64_t>(first, 0); loop < end; ++loop)
    if (extents[loop] != 1)
      loops.push_back(loop);
  return loops;
}

bool Term::follows(int64_t first, int64_t end) const {
  return tensor && loops == longLoops(extents, first, end);
}

/// The loops of more than one step that the results of a map are; none where they are more than
/// loops.
static std::optional<SmallVector<int64_t>> loopsOf(AffineMap map, ArrayRef<int64_t> extents) {
  SmallVector<int64_t> loops;
  for (AffineExpr result : map.getResults()) {
    auto dim = dyn_cast<AffineDimExpr>(result);
    if (!dim && !isa<AffineConstantExpr>(result))
      return {};
    if (dim && extents[dim.getPosition()] != 1)
      loops.push_back(dim.getPosition());
  }
  return loops;
}

std::optional<double> easyquant::numberOf(Value scalar) {
  while (scalar.getDefiningOp() && isa<arith::TruncFOp, arith::ExtFOp>(scalar.getDefiningOp()))
    scalar = scalar.getDefiningOp()->getOperand(0);
  FloatAttr number;
  if (matchPattern(scalar, m_Constant(&number)))
    return number.getValueAsDouble();
  IntegerAttr integer;
  if (matchPattern(scalar, m_Constant(&integer)))
    return static_cast<double>(integer.getValue().getSExtValue());
  return {};
}

std::optional<Elementwise> Elementwise::match(Value value) {
  auto op = value ? value.getDefiningOp<LinalgOp>() : LinalgOp();
  if (!op || op->getNumResults() != 1 || op.getNumReductionLoops() != 0 ||
      !op.hasPureTensorSemantics())
    return {};
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  if (llvm::any_of(extents, ShapedType::isDynamic) ||
      !op.getMatchingIndexingMap(op.getDpsInitOperand(0)).isIdentity())
    return {};
  return Elementwise{op, std::move(extents), op.getBlock()->getTerminator()->getOperand(0)};
}

std::optional<Term> Elementwise::term(Value scalar) {
  if (std::optional<double> number = numberOf(scalar))
    return Term{nullptr, *number, {}, extents};
  auto argument = dyn_cast<BlockArgument>(scalar);
  if (!argument || argument.getOwner() != op.getBlock() ||
      argument.getArgNumber() >= static_cast<unsigned>(op.getNumDpsInputs()))
    return {};
  OpOperand *operand = op.getMatchingOpOperand(argument);
  auto loops = loopsOf(op.getMatchingIndexingMap(operand), extents);
  if (!loops || !isa<RankedTensorType>(operand->get().getType()))
    return {};
  return Term{operand->get(), 0, std::move(*loops), extents};
}

/// The input of a reduction of its last dimension from a number on, by `Combine`, of the first
/// result.
template <typename... Combine>
static Value reducedOverLast(Value value, llvm::function_ref<bool(double)> isStart) {
  auto op = value ? value.getDefiningOp<LinalgOp>() : LinalgOp();
  if (!op || cast<OpResult>(value).getResultNumber() != 0 || op.getNumDpsInputs() != 1 ||
      op.getNumReductionLoops() != 1 || !op.hasPureTensorSemantics() ||
      op.getIteratorTypesArray().back() != utils::IteratorType::reduction)
    return {};
  SmallVector<int64_t> extents = op.getStaticLoopRanges();
  const int64_t rank = std::ssize(extents);
  auto rows = loopsOf(op.getMatchingIndexingMap(op.getDpsInitOperand(0)), extents);
  auto fill = op.getDpsInitOperand(0)->get().getDefiningOp<linalg::FillOp>();
  std::optional<double> start = fill ? numberOf(fill.value()) : std::nullopt;
  if (!op.getMatchingIndexingMap(op.getDpsInputOperand(0)).isIdentity() || !rows ||
      *rows != longLoops(extents, 0, rank - 1) || !start || !isStart(*start))
    return {};
  Operation *combine = op.getBlock()->getTerminator()->getOperand(0).getDefiningOp();
  Value element = op.getMatchingBlockArgument(op.getDpsInputOperand(0));
  Value sum = op.getMatchingBlockArgument(op.getDpsInitOperand(0));
  if (!combine || !isa<Combine...>(combine) || combine->getNumOperands() != 2)
    return {};
  const bool isBoth = (combine->getOperand(0) == element && combine->getOperand(1) == sum) ||
                      (combine->getOperand(1) == element && combine->getOperand(0) == sum);
  return isBoth ? op.getDpsInputOperand(0)->get() : Value();
}

Value easyquant::summedOverLast(Value value) {
  return reducedOverLast<arith::AddFOp>(value, [](double start) { return start == 0; });
}

Value easyquant::largestOfLast(Value value) {
  return reducedOverLast<arith::MaximumFOp, arith::MaxNumFOp>(
      value, [](double start) { return start < -1e38; });
}

Value easyquant::sigmoidOf(Value value) {
  std::optional<Elementwise> of = Elementwise::match(value);
  auto quotient = of ? of->yielded.getDefiningOp<arith::DivFOp>() : arith::DivFOp();
  auto sum = quotient ? quotient.getRhs().getDefiningOp<arith::AddFOp>() : arith::AddFOp();
  if (!sum || numberOf(quotient.getLhs()) != 1)
    return {};
  Value power = numberOf(sum.getLhs()) == 1 ? sum.getRhs() : sum.getLhs();
  Value one = power == sum.getRhs() ? sum.getLhs() : sum.getRhs();
  auto exp = power.getDefiningOp<math::ExpOp>();
  auto negative = exp ? exp.getOperand().getDefiningOp<arith::NegFOp>() : arith::NegFOp();
  if (!negative || numberOf(one) != 1)
    return {};
  std::optional<Term> x = of->term(negative.getOperand());
  return x && x->isWhole() ? x->tensor : Value();
}

Value easyquant::repeatedAlong(Value value, int64_t dim) {
  std::optional<Elementwise> of = Elementwise::match(value);
  std::optional<Term> x = of ? of->term(of->yielded) : std::nullopt;
  if (!x || !x->tensor || dim >= std::ssize(of->extents))
    return {};
  SmallVector<int64_t> wanted = longLoops(of->extents, 0, std::ssize(of->extents));
  llvm::erase(wanted, dim);
  return x->loops == wanted ? x->tensor : Value();
}

Value easyquant::reshaped(Value value) {
  while (Operation *op = value ? value.getDefiningOp() : nullptr) {
    if (!isa<tensor::CollapseShapeOp, tensor::ExpandShapeOp>(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}
