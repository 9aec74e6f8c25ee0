//===- RankOps.cpp - What ranks share -------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

//===----------------------------------------------------------------------===//
// AllSliceOp
//===----------------------------------------------------------------------===//

/// Rows and columns; a vector has rows alone.
static SmallVector<int64_t, 2> extentsOf(Type type) {
  if (auto weight = dyn_cast<WeightType>(type))
    return {weight.getRows(), weight.getColumns()};
  return SmallVector<int64_t, 2>(cast<RankedTensorType>(type).getShape());
}

int64_t AllSliceOp::getRanks() {
  const auto axis = static_cast<size_t>(getAxis());
  return extentsOf(getInput().getType())[axis] / extentsOf(getOutput().getType())[axis];
}

SmallVector<std::pair<int64_t, int64_t>> AllSliceOp::piecesOf(int64_t rank) {
  const int64_t ranks = getRanks(), whole = extentsOf(getInput().getType())[getAxis()];
  SmallVector<std::pair<int64_t, int64_t>> pieces;
  int64_t begin = 0;
  for (int64_t part : getParts() ? *getParts() : ArrayRef<int64_t>(whole)) {
    pieces.emplace_back(begin + rank * (part / ranks), part / ranks);
    begin += part;
  }
  return pieces;
}

LogicalResult AllSliceOp::verify() {
  Type input = getInput().getType();
  const auto axis = static_cast<size_t>(getAxis());
  const SmallVector<int64_t, 2> whole = extentsOf(input);
  SmallVector<int64_t, 2> sliced = extentsOf(getOutput().getType());
  auto weight = dyn_cast<WeightType>(input);
  if (axis >= whole.size() || sliced.size() != whole.size() || whole[axis] % sliced[axis] != 0)
    return emitOpError("expected one of equal parts of ")
           << input << " along axis " << axis << ", found " << getOutput().getType();
  const int64_t ranks = whole[axis] / sliced[axis],
                unit = weight && axis == 1 ? weight.getColumnUnit() : 1;
  const ArrayRef<int64_t> parts = getParts() ? *getParts() : ArrayRef<int64_t>(whole[axis]);
  const bool areShared =
      llvm::all_of(parts, [&](int64_t part) { return part > 0 && part % (ranks * unit) == 0; });
  const bool areAll = llvm::sum_of(parts) == whole[axis] && (axis == 0 || llvm::all_equal(parts));
  if (getParts() && !(areShared && areAll))
    return emitOpError("expected parts that make up the ")
           << whole[axis] << (axis == 0 ? " rows of " : " columns of ") << input
           << ", of which each of " << ranks
           << " ranks has whole groups, columns of one width; found [" << parts << "]";
  SmallVector<int64_t, 2> extents = whole;
  extents[axis] = sliced[axis];
  Type expected = weight ? Type(weight.withShape(extents[0], extents[1]))
                         : Type(cast<RankedTensorType>(input).clone(extents));
  if (!areShared || getOutput().getType() != expected)
    return emitOpError("expected one of equal parts of ")
           << input << " along axis " << axis << ", whole groups of it, found "
           << getOutput().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// PartRmsNormOp
//===----------------------------------------------------------------------===//

LogicalResult PartRmsNormOp::verify() {
  const int64_t own = lm::columns(getInput()), all = static_cast<int64_t>(getColumns());
  if (getWeight().getType().getDimSize(0) != own)
    return emitOpError("expected a weight of ")
           << own << " elements, found " << getWeight().getType();
  if (all % own != 0)
    return emitOpError("columns must be a multiple of the ")
           << own << " that a rank has, found " << all;
  return success();
}

//===----------------------------------------------------------------------===//
// AddBiasOp
//===----------------------------------------------------------------------===//

LogicalResult AddBiasOp::verify() {
  const int64_t columns = lm::columns(getInput()), length = getBias().getType().getDimSize(0);
  if (length != columns)
    return emitOpError("bias has ")
           << length << " elements, but the result has " << columns << " columns";
  return success();
}
