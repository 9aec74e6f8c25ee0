//===- LaunchDialect.cpp - The launch dialect -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "easyquant/Formats/Phase.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::launch;

#include "easyquant/Dialect/Launch/IR/LaunchDialect.cpp.inc"

#define GET_OP_CLASSES
#include "easyquant/Dialect/Launch/IR/LaunchOps.cpp.inc"

void LaunchDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "easyquant/Dialect/Launch/IR/LaunchOps.cpp.inc"
      >();
}

int64_t easyquant::launch::rowBytes(MemRefType type) {
  int64_t elements = 1;
  for (int64_t extent : type.getShape().drop_front())
    elements *= extent;
  return llvm::divideCeil(elements * type.getElementTypeBitWidth(), 8);
}

LogicalResult BufferOp::verify() {
  auto type = cast<MemRefType>(getMemory().getType());
  if (type.getRank() == 0 || !type.isDynamicDim(0) || type.getNumDynamicDims() != 1 ||
      !type.getElementType().isIntOrFloat() || !type.getLayout().isIdentity())
    return emitOpError("expected a memref of any number of rows, contiguous, found ") << type;
  return success();
}

template <typename OpT> static LogicalResult verifyWrites(OpT op) {
  for (int64_t operand : op.getWrites())
    if (operand < 0 || operand >= static_cast<int64_t>(op.getArguments().size()) ||
        !isa<MemRefType>(op.getArguments()[operand].getType()))
      return op.emitOpError("writes operand ") << operand << ", which is no memory of its own";
  return success();
}

LogicalResult CollectiveOp::verify() {
  auto type = dyn_cast<MemRefType>(getMemory().getType());
  if (!type || type.getRank() < 1 || type.getRank() > 2 || !type.isDynamicDim(0) ||
      type.getNumDynamicDims() != 1 ||
      !(type.getElementType().isF32() || type.getElementType().isSignlessInteger(32)))
    return emitOpError("expected rows of f32 or i32, found ") << getMemory().getType();
  if (getCall() == "all_gather"
          ? !getReduction().empty() || type.getRank() != 2
          : getCall() != "all_reduce" || !llvm::is_contained({"sum", "max", "min"}, getReduction()))
    return emitOpError("expected an all_reduce by sum, max or min, or an all_gather of columns, "
                       "found ")
           << getCall() << " by '" << getReduction() << "'";
  return success();
}

LogicalResult HostOp::verify() { return verifyWrites(*this); }

LogicalResult KernelOp::verify() {
  SmallVector<StringRef> phases(std::begin(formats::kPhaseNames), std::end(formats::kPhaseNames));
  if (!llvm::is_contained(phases, getPhase()))
    return emitOpError("expected a phase of ")
           << llvm::join(phases, ", ") << ", found '" << getPhase() << "'";
  if (auto rows = getRows(); rows && ((*rows)[0] < 1 || (*rows)[1] < 0))
    return emitOpError("expected rows from 1 on, and 0 for no limit");
  return verifyWrites(*this);
}

LogicalResult KernelOp::verifySymbolUses(SymbolTableCollection &symbols) {
  Operation *callee = symbols.lookupNearestSymbolFrom(*this, getKernelAttr());
  if (!isa_and_present<FunctionOpInterface>(callee))
    return emitOpError("expected a kernel named ") << getKernelAttr();
  return success();
}
