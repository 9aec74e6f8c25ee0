//===- Entries.cpp - How programs are called ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Entries.h"

#include "easyquant/Formats/Step.h"
#include "easyquant/Support/Result.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

#include <cstddef>

using namespace mlir;
using namespace easyquant;

void easyquant::emitCallEntry(Program &program, func::FuncOp body, int64_t teamAt, StringRef name) {
  auto b = ImplicitLocOpBuilder::atBlockEnd(body.getLoc(), program.module.getBody());
  SmallVector<Type> types(body.getArgumentTypes());
  types.erase(types.begin() + teamAt, types.begin() + teamAt + 2); // which leaves the threads
  auto entry = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  entry->setAttr("llvm.emit_c_interface", b.getUnitAttr());
  program.symbols.insert(entry);
  b.setInsertionPointToStart(entry.addEntryBlock());
  ValueRange inputs = entry.getArguments();
  cpu::emitTeam(b, program.module, inputs[teamAt], /*stop=*/nullptr,
                [&](ImplicitLocOpBuilder &b, const cpu::Team &team) {
                  SmallVector<Value> arguments(inputs.take_front(teamAt));
                  team.append(arguments);
                  llvm::append_range(arguments, inputs.drop_front(teamAt + 1));
                  func::CallOp::create(b, body, arguments);
                });
  func::ReturnOp::create(b);
}

namespace {

/// The body of a step's entry.
class StepEntryEmitter {
public:
  StepEntryEmitter(Program &program, func::FuncOp source, func::FuncOp body, func::FuncOp entry)
      : program(program), source(source), body(body), b(source.getLoc(), program.context()),
        pointer(LLVM::LLVMPointerType::get(program.context())), step(entry.getArgument(0)) {
    b.setInsertionPointToStart(&entry.front());
  }

  LogicalResult run();

private:
  Value integer(int64_t value) {
    return LLVM::ConstantOp::create(b, b.getI64Type(), b.getI64IntegerAttr(value));
  }
  Value status(int32_t value) { return arith::ConstantOp::create(b, b.getI32IntegerAttr(value)); }
  Value load(Value structure, size_t offset, Type type) {
    Value at = LLVM::GEPOp::create(b, pointer, b.getI8Type(), structure,
                                   ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
    return LLVM::LoadOp::create(b, type, at);
  }
  Value pointerAt(Value structure, size_t offset) { return load(structure, offset, pointer); }
  /// An int32_t >= 0.
  Value indexAt(Value structure, size_t offset) {
    return arith::IndexCastOp::create(b, b.getIndexType(), load(structure, offset, b.getI32Type()));
  }
  /// A dense memref of a type with a dynamic first dimension.
  Value memref(Value data, MemRefType type, Value rows);
  /// mark, its context, and the stop flag; null where there are no services.
  SmallVector<Value, 3> services();
  LogicalResult collect();
  Value call();

  Program &program;
  func::FuncOp source, body;
  ImplicitLocOpBuilder b;
  Type pointer;
  Value step;
  SmallVector<Value> arguments; ///< of the body, up to the team
  Value logits;
};

} // namespace

Value StepEntryEmitter::memref(Value data, MemRefType type, Value rows) {
  int64_t rank = type.getRank();
  auto sizesType = LLVM::LLVMArrayType::get(b.getI64Type(), rank);
  auto descriptor = LLVM::LLVMStructType::getLiteral(
      program.context(), {pointer, pointer, b.getI64Type(), sizesType, sizesType});
  Value result = LLVM::PoisonOp::create(b, descriptor);
  auto insert = [&](Value value, ArrayRef<int64_t> at) {
    result = LLVM::InsertValueOp::create(b, result, value, at);
  };
  insert(data, {0});
  insert(data, {1});
  insert(integer(0), {2});
  insert(arith::IndexCastOp::create(b, b.getI64Type(), rows), {3, 0});
  insert(integer(rank == 1 ? 1 : type.getDimSize(1)), {4, 0});
  if (rank == 2) {
    insert(integer(type.getDimSize(1)), {3, 1});
    insert(integer(1), {4, 1});
  }
  return UnrealizedConversionCastOp::create(b, type, result).getResult(0);
}

SmallVector<Value, 3> StepEntryEmitter::services() {
  Value services = pointerAt(step, offsetof(eq_step, services));
  Value null = LLVM::ZeroOp::create(b, pointer);
  Value isGiven = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, services, null);
  SmallVector<Type> types(3, pointer);
  auto branch = scf::IfOp::create(b, types, isGiven, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  Value mark = pointerAt(services, offsetof(eq_services, mark));
  Value context = pointerAt(services, offsetof(eq_services, context));
  Value stop = pointerAt(services, offsetof(eq_services, stop));
  scf::YieldOp::create(b, ValueRange{mark, context, stop});
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, ValueRange{null, null, null});
  return SmallVector<Value, 3>(branch.getResults());
}

LogicalResult StepEntryEmitter::collect() {
  Value sequence = pointerAt(step, offsetof(eq_step, sequence));
  // Nobody asks for the size of weights and arena.
  Value unbounded = arith::ConstantIndexOp::create(b, kMaxPlannedBytes);
  Value capacity = indexAt(sequence, offsetof(eq_sequence, capacity));
  Value perToken = arith::ConstantIndexOp::create(b, program.cacheBytes.perToken);
  Value cacheBytes =
      arith::AddIOp::create(b, arith::MulIOp::create(b, capacity, perToken),
                            arith::ConstantIndexOp::create(b, program.cacheBytes.fixed));
  MemRefType bytes = program.bytes();
  arguments = {memref(pointerAt(step, offsetof(eq_step, weights)), bytes, unbounded),
               memref(pointerAt(step, offsetof(eq_step, arena)), bytes, unbounded),
               memref(pointerAt(step, offsetof(eq_step, cache)), bytes, cacheBytes)};
  int tokens = 0, indices = 0;
  bool isKnown = source.getNumResults() == 1 && isActivationType(source.getResultTypes()[0]);
  for (Type type : source.getArgumentTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (isa<lm::KVCacheType>(type))
      continue;
    if (type.isIndex() && indices < 2) {
      arguments.push_back(indices++ == 0
                              ? indexAt(sequence, offsetof(eq_sequence, position))
                              : indexAt(pointerAt(step, offsetof(eq_step, logit_row)), 0));
    } else if (tensor && tensor.getRank() == 1 && tensor.isDynamicDim(0) &&
               tensor.getElementType().isInteger(32) && tokens++ == 0) {
      arguments.push_back(memref(pointerAt(step, offsetof(eq_step, tokens)),
                                 Program::memref(tensor.getShape(), tensor.getElementType()),
                                 indexAt(step, offsetof(eq_step, rows))));
    } else {
      isKnown = false;
    }
  }
  if (!isKnown)
    return source.emitOpError("expected tokens, a position, the first row of the logits and a "
                              "cache, and logits as the result: what a step is called with");
  logits = memref(pointerAt(step, offsetof(eq_step, logits)),
                  cast<MemRefType>(body.getArgumentTypes().back()),
                  indexAt(step, offsetof(eq_step, logit_rows)));
  return success();
}

/// The region; whether it was stopped, as a status.
Value StepEntryEmitter::call() {
  SmallVector<Value, 3> given = services();
  Value null = LLVM::ZeroOp::create(b, pointer);
  Value result = LLVM::AllocaOp::create(b, pointer, b.getI32Type(), integer(1));
  LLVM::StoreOp::create(b, status(0), result);
  Value threads = indexAt(step, offsetof(eq_step, threads));
  cpu::emitTeam(
      b, program.module, threads, given[2], [&](ImplicitLocOpBuilder &b, const cpu::Team &team) {
        Value zero = arith::ConstantIndexOp::create(b, 0);
        Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, team.thread, zero);
        // The other threads have nobody to tell.
        Value mark = LLVM::SelectOp::create(b, isFirst, given[0], null);
        SmallVector<Value> operands(arguments);
        team.append(operands);
        operands.append({mark, given[1], logits});
        Value stops = func::CallOp::create(b, body, operands).getResult(0);
        scf::IfOp::create(b, arith::AndIOp::create(b, stops, isFirst),
                          [&](OpBuilder &builder, Location loc) {
                            ImplicitLocOpBuilder b(loc, builder);
                            Value code = arith::ConstantOp::create(
                                b, b.getI32IntegerAttr(int32_t(ErrorCode::Interrupted)));
                            LLVM::StoreOp::create(b, code, result);
                            scf::YieldOp::create(b);
                          });
      });
  return LLVM::LoadOp::create(b, b.getI32Type(), result);
}

LogicalResult StepEntryEmitter::run() {
  auto equals = [&](size_t offset, int64_t expected) -> Value {
    return arith::CmpIOp::create(b, arith::CmpIPredicate::eq, load(step, offset, b.getI32Type()),
                                 status(static_cast<int32_t>(expected)));
  };
  Value isOurs = arith::AndIOp::create(b, equals(offsetof(eq_step, abi), EQ_PROGRAM_ABI),
                                       equals(offsetof(eq_step, bytes), sizeof(eq_step)));
  auto branch = scf::IfOp::create(b, TypeRange(b.getI32Type()), isOurs, /*withElseRegion=*/true);
  func::ReturnOp::create(b, branch.getResults());
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, ValueRange(status(int32_t(ErrorCode::Unsupported))));
  b.setInsertionPointToStart(branch.thenBlock());
  if (failed(collect()))
    return failure();
  Value result = call();
  scf::YieldOp::create(b, ValueRange(result));
  return success();
}

LogicalResult easyquant::emitStepEntry(Program &program, func::FuncOp source, func::FuncOp body,
                                       StringRef name) {
  OpBuilder builder = OpBuilder::atBlockEnd(program.module.getBody());
  auto pointer = LLVM::LLVMPointerType::get(program.context());
  auto entry =
      func::FuncOp::create(builder, body.getLoc(), name,
                           builder.getFunctionType(TypeRange(pointer), builder.getI32Type()));
  program.symbols.insert(entry);
  entry.addEntryBlock();
  return StepEntryEmitter(program, source, body, entry).run();
}
