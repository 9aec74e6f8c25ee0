//===- ColumnOps.cpp - Operations on columns of activations ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// They scale, rotate or reorder columns, or rows of constants.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "easyquant/Numerics/Hadamard.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

//===----------------------------------------------------------------------===//
// ScaleOp
//===----------------------------------------------------------------------===//

LogicalResult ScaleOp::verify() {
  RankedTensorType input = cast<RankedTensorType>(getInput().getType());
  int64_t axis = getAxisAttr().getInt();
  if (axis < 0 || axis >= input.getRank())
    return emitOpError("axis must be ")
           << (input.getRank() == 1 ? "0 for a vector" : "0 or 1") << ", found " << axis;
  int64_t extent = input.getDimSize(axis),
          factors = cast<RankedTensorType>(getFactor().getType()).getDimSize(0);
  if (factors != extent)
    return emitOpError("needs ") << extent << " factors for axis " << axis << " of " << input
                                 << ", found " << factors;
  return success();
}

//===----------------------------------------------------------------------===//
// HadamardOp
//===----------------------------------------------------------------------===//

LogicalResult HadamardOp::verify() {
  const int64_t block = getBlockAttr().getInt(), axis = getAxisAttr().getInt(),
                first = getFirstAttr().getInt();
  RankedTensorType type = cast<RankedTensorType>(getInput().getType());
  if (!numerics::isHadamardBlock(block))
    return emitOpError("block must be a power of two from ")
           << numerics::kLeastHadamard << " to " << numerics::kLargestHadamard << ", found "
           << block;
  if (axis < 0 || axis >= type.getRank())
    return emitOpError("axis must be ")
           << (type.getRank() == 1 ? "0 for a vector" : "0 or 1") << ", found " << axis;
  const StringRef kind = axis == 0 ? " rows" : " columns";
  if (type.isDynamicDim(axis))
    return emitOpError("rotates rows of constants alone; rows of ")
           << type << " are tokens, whose columns it rotates";
  if (type.getDimSize(axis) % block != 0)
    return emitOpError("needs whole blocks of ")
           << block << kind << ", found " << type.getDimSize(axis);
  if (axis != 0 && first != 0)
    return emitOpError("rotates all columns: first is of axis 0, found ") << first;
  if (first < 0 || first % block != 0 || first >= type.getDimSize(axis))
    return emitOpError("rotates whole blocks of ")
           << block << " rows: first must be a multiple of it below " << type.getDimSize(axis)
           << ", found " << first;
  return success();
}

FailureOr<SmallVector<Value>> HadamardOp::buildGradients(OpBuilder &b, ArrayRef<Value> results,
                                                         const llvm::BitVector &) {
  return SmallVector<Value>{HadamardOp::create(b, getLoc(), results[0].getType(), results[0],
                                               getBlockAttr(), getAxisAttr(), getFirstAttr())};
}

//===----------------------------------------------------------------------===//
// GatherColumnsOp
//===----------------------------------------------------------------------===//

LogicalResult GatherColumnsOp::verify() {
  const int64_t columns = lm::columns(getInput()),
                count = cast<RankedTensorType>(getOrder().getType()).getDimSize(0);
  if (count == columns)
    return success();
  return emitOpError("needs the place of each of ") << columns << " columns, found " << count;
}
