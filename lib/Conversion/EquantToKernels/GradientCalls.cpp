//===- GradientCalls.cpp - Gradients as calls ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Gradients of row-wise ops are kernels; those that sum over tokens, and observers, are calls of
// the program's caller (HostCalls.h).
//
//===----------------------------------------------------------------------===//

#include "FunctionEmitter.h"

#include "easyquant/Codegen/CPU/RowGradients.h"
#include "easyquant/Conversion/EquantToKernels/HostCalls.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

bool easyquant::isHostCall(Operation *op) {
  return isa<equant::ObserveOp>(op) || op->hasTrait<OpTrait::HostOp>();
}

/// The fields of a HostOperand.
SmallVector<Value, 4> FunctionEmitter::hostOperand(Value operand) {
  auto integer = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), index);
  };
  Value memory = rows(operand), none = integer(zero());
  auto type = dyn_cast<MemRefType>(memory.getType());
  if (!type)
    return {none, integer(memory), none, none};
  auto metadata = memref::ExtractStridedMetadataOp::create(b, memory);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, memory);
  Value bytes = constant(type.getElementTypeBitWidth() / 8);
  Value offset = arith::MulIOp::create(b, metadata.getOffset(), bytes);
  Value begin = integer(arith::AddIOp::create(b, address, offset));
  Value columns = integer(memref::DimOp::create(b, memory, type.getRank() - 1));
  if (type.getRank() == 1)
    return {begin, integer(constant(1)), columns, columns};
  return {begin, integer(rowsOf(memory)), columns, integer(metadata.getStrides()[0])};
}

LogicalResult FunctionEmitter::emitHostCall(Operation &op) {
  Value count;
  for (Value operand : op.getOperands())
    if (isActivationType(operand.getType()) && !count)
      count = rowsOf(rows(operand));
  if (auto shifted = dyn_cast<lm::RowsGradientOp>(op))
    count = arith::AddIOp::create(b, count, rows(shifted.getFirst()));
  for (Value result : op.getResults()) {
    if (!isActivationType(result.getType()) &&
        !llvm::is_contained(source.front().getTerminator()->getOperands(), result))
      return op.emitOpError("sums over tokens: its result can only be one of @forward");
    destination(result, count);
  }
  SmallVector<Value> fields;
  for (Value operand : llvm::concat<Value>(op.getOperands(), op.getResults()))
    llvm::append_range(fields, hostOperand(operand));
  auto pointer = LLVM::LLVMPointerType::get(program.context());
  auto integer = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(b, b.getI64Type(), value);
  };
  Value array = LLVM::AllocaOp::create(b, pointer, b.getI64Type(),
                                       integer(static_cast<int64_t>(fields.size())));
  // One thread calls, between two barriers.
  meet();
  dependences.addAll();
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, team.thread, zero());
  auto branch = scf::IfOp::create(b, isFirst, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  for (auto [i, field] : llvm::enumerate(fields)) {
    LLVM::GEPArg at(static_cast<int32_t>(i));
    LLVM::StoreOp::create(b, field, LLVM::GEPOp::create(b, pointer, b.getI64Type(), array, at));
  }
  SmallVector<Value> arguments = {host[0], host[1], integer(program.hostCalls.lookup(&op)), array};
  SmallVector<Type> types(llvm::drop_begin(ValueRange(arguments).getTypes()));
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(program.context()), types);
  LLVM::CallOp::create(b, type, arguments);
  return success();
}

/// Operands, then the results in memory of their own.
void FunctionEmitter::emitRowGradient(Operation &op, cpu::RowGradientSpec spec) {
  spec.columns = lm::columns(op.getOperand(0));
  SmallVector<Value> arguments;
  for (Value operand : op.getOperands())
    arguments.push_back(rows(operand));
  SmallVector<Value> outputs;
  for (Value result : op.getResults())
    outputs.push_back(destination(result, rowsOf(arguments.front())));
  llvm::append_range(arguments, outputs);
  callRowKernel(Phase::Other, cpu::getOrEmitRowGradient(program.module, spec, program.target),
                arguments, outputs);
}

void FunctionEmitter::emitConcat(lm::ConcatOp op) {
  Value count = rowsOf(rows(op.getInputs().front()));
  Value output = destination(op.getOutput(), count);
  int64_t column = 0;
  for (Value input : op.getInputs()) {
    cpu::RowSpec spec{cpu::RowOp::Copy, lm::columns(input)};
    Value columns = columnsOf(output, column, spec.columns);
    callRowKernel(Phase::Other, cpu::getOrEmitRowOp(program.module, spec, program.target),
                  {rows(input), columns}, columns);
    column += spec.columns;
  }
}

LogicalResult FunctionEmitter::emitGradient(Operation &op) {
  if (isHostCall(&op))
    return emitHostCall(op);
  return TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](lm::RmsNormGradientOp gradient) {
        auto weight = cast<RankedTensorType>(gradient.getWeight().getType());
        emitRowGradient(op, {cpu::RowGradient::RmsNorm, 0, weight.getDimSize(0),
                             gradient.getEpsilon().convertToDouble()});
        return success();
      })
      .Case([&](lm::LayerNormGradientOp gradient) {
        emitRowGradient(op, {cpu::RowGradient::LayerNorm, 0, lm::columns(gradient.getInput()),
                             gradient.getEpsilon().convertToDouble()});
        return success();
      })
      .Case([&](lm::SiluMulGradientOp) {
        emitRowGradient(op, {cpu::RowGradient::SiluMul});
        return success();
      })
      .Case([&](lm::GeluGradientOp gradient) {
        bool tanh = gradient.getApproximate() == lm::GeluApproximation::Tanh;
        emitRowGradient(op, {tanh ? cpu::RowGradient::GeluTanh : cpu::RowGradient::GeluErf});
        return success();
      })
      .Case([&](lm::RopeGradientOp gradient) {
        emitRope(gradient, /*inverse=*/true);
        return success();
      })
      .Case([&](lm::ConcatOp concat) {
        emitConcat(concat);
        return success();
      })
      .Default([](Operation *op) {
        return op->emitOpError("has no kernel; it must be lowered to lm or equant ops first");
      });
}
