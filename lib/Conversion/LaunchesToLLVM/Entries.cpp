//===- Entries.cpp - How programs are called ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepBody.h"

#include "easyquant/Codegen/CPU/Team.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Formats/Step.h"
#include "easyquant/Support/Result.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <cstddef>

using namespace mlir;
using namespace easyquant;

/// An entry at the end of the module, with its block.
static func::FuncOp addEntry(const StepBody &body, StringRef name, FunctionType type) {
  auto module = body.step->getParentOfType<ModuleOp>();
  auto builder = OpBuilder::atBlockEnd(module.getBody());
  func::FuncOp step = body.step;
  auto entry = func::FuncOp::create(builder, step.getLoc(), name, type);
  entry.addEntryBlock();
  return entry;
}

void easyquant::emitCallEntry(const StepBody &body, StringRef name) {
  func::FuncOp function = body.function;
  auto module = function->getParentOfType<ModuleOp>();
  ImplicitLocOpBuilder b(function.getLoc(), function.getContext());
  const unsigned teamAt = body.teamAt();
  SmallVector<Type> types(function.getArgumentTypes());
  types.erase(types.begin() + teamAt, types.begin() + teamAt + 2); // which leaves the threads
  func::FuncOp entry = addEntry(body, name, b.getFunctionType(types, {}));
  entry->setAttr("llvm.emit_c_interface", b.getUnitAttr());
  b.setInsertionPointToStart(&entry.front());
  ValueRange inputs = entry.getArguments();
  cpu::emitTeam(b, module, inputs[teamAt], /*stop=*/nullptr,
                [&](ImplicitLocOpBuilder &b, const cpu::Team &team) {
                  SmallVector<Value> arguments(inputs.take_front(teamAt));
                  team.append(arguments);
                  llvm::append_range(arguments, inputs.drop_front(teamAt + 1));
                  func::CallOp::create(b, function, arguments);
                });
  func::ReturnOp::create(b);
}

namespace {

/// The body of a step's entry.
class StepEntryEmitter {
public:
  StepEntryEmitter(const StepBody &body, func::FuncOp entry)
      : body(body), module(entry->getParentOfType<ModuleOp>()),
        b(entry.getLoc(), entry.getContext()),
        pointer(LLVM::LLVMPointerType::get(entry.getContext())), step(entry.getArgument(0)) {
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
  /// mark, the context, the stop flag, start and wait; null where there are no services.
  SmallVector<Value, 5> services();
  LogicalResult collect();
  Value call();

  const StepBody &body;
  ModuleOp module;
  ImplicitLocOpBuilder b;
  Type pointer;
  Value step;
  SmallVector<Value> arguments; ///< of the body, up to the team
  SmallVector<Value> results;   ///< their memory
};

} // namespace

Value StepEntryEmitter::memref(Value data, MemRefType type, Value rows) {
  int64_t rank = type.getRank();
  auto sizesType = LLVM::LLVMArrayType::get(b.getI64Type(), rank);
  auto descriptor = LLVM::LLVMStructType::getLiteral(
      b.getContext(), {pointer, pointer, b.getI64Type(), sizesType, sizesType});
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

SmallVector<Value, 5> StepEntryEmitter::services() {
  Value services = pointerAt(step, offsetof(eq_step, services));
  Value null = LLVM::ZeroOp::create(b, pointer);
  Value isGiven = LLVM::ICmpOp::create(b, LLVM::ICmpPredicate::ne, services, null);
  const size_t places[] = {offsetof(eq_services, mark), offsetof(eq_services, context),
                           offsetof(eq_services, stop), offsetof(eq_services, start),
                           offsetof(eq_services, wait)};
  SmallVector<Type> types(std::size(places), pointer);
  auto branch = scf::IfOp::create(b, types, isGiven, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> given;
  for (size_t place : places)
    given.push_back(pointerAt(services, place));
  scf::YieldOp::create(b, given);
  b.setInsertionPointToStart(branch.elseBlock());
  scf::YieldOp::create(b, SmallVector<Value>(std::size(places), null));
  return SmallVector<Value, 5>(branch.getResults());
}

LogicalResult StepEntryEmitter::collect() {
  // Nobody asks for the sizes of these.
  Value unbounded = arith::ConstantIndexOp::create(b, launch::kMaxBytes);
  func::FuncOp function = body.function, source = body.step;
  auto type = [&](unsigned argument) {
    return cast<MemRefType>(function.getArgument(argument).getType());
  };
  arguments = {memref(pointerAt(step, offsetof(eq_step, weights)), type(0), unbounded),
               memref(pointerAt(step, offsetof(eq_step, arena)), type(1), unbounded),
               memref(pointerAt(step, offsetof(eq_step, cache)), type(2), unbounded),
               memref(pointerAt(step, offsetof(eq_step, page)), type(3), unbounded)};
  bool isKnown = llvm::is_contained({1, 2}, std::ssize(body.results));
  for (unsigned i : body.own) {
    StringRef name = body.nameOf(i);
    auto rows = [&](size_t data, size_t count) {
      arguments.push_back(
          memref(pointerAt(step, data), type(arguments.size()), indexAt(step, count)));
    };
    if (name == "tokens")
      rows(offsetof(eq_step, tokens), offsetof(eq_step, rows));
    else if (name == "hidden")
      rows(offsetof(eq_step, hidden), offsetof(eq_step, rows));
    else if (name == "sequences")
      rows(offsetof(eq_step, sequence), offsetof(eq_step, sequences));
    else if (name == "logit_rows")
      rows(offsetof(eq_step, logit_row), offsetof(eq_step, logit_rows));
    else if (name == "sliding_pages")
      arguments.push_back(memref(pointerAt(step, offsetof(eq_step, sliding_page)),
                                 type(arguments.size()), unbounded));
    else if (name == "state")
      arguments.push_back(
          memref(pointerAt(step, offsetof(eq_step, state)), type(arguments.size()), unbounded));
    else if (name == "recurrent")
      arguments.push_back(
          memref(pointerAt(step, offsetof(eq_step, recurrent)), type(arguments.size()), unbounded));
    else if (name == "rank")
      arguments.push_back(indexAt(step, offsetof(eq_step, rank)));
    else
      isKnown = false;
  }
  auto types = function.getArgumentTypes().take_back(body.results.size());
  auto isMatrix = [](Type type) {
    auto memory = dyn_cast<MemRefType>(type);
    return memory && memory.getRank() == 2 && memory.isDynamicDim(0);
  };
  if (!isKnown || !llvm::all_of(types, isMatrix))
    return source.emitOpError("expected tokens, a batch, the rows of the logits and a cache, and "
                              "logits as the result: what a step is called with");
  results = {memref(pointerAt(step, offsetof(eq_step, logits)), cast<MemRefType>(types.front()),
                    indexAt(step, offsetof(eq_step, logit_rows)))};
  if (types.size() == 2)
    results.push_back(memref(pointerAt(step, offsetof(eq_step, next_hidden)),
                             cast<MemRefType>(types.back()),
                             indexAt(step, offsetof(eq_step, rows))));
  return success();
}

/// The region; whether it was stopped, as a status.
Value StepEntryEmitter::call() {
  func::FuncOp function = body.function;
  SmallVector<Value, 5> given = services();
  Value null = LLVM::ZeroOp::create(b, pointer);
  Value result = LLVM::AllocaOp::create(b, pointer, b.getI32Type(), integer(1));
  LLVM::StoreOp::create(b, status(0), result);
  Value threads = indexAt(step, offsetof(eq_step, threads));
  cpu::emitTeam(b, module, threads, given[2], [&](ImplicitLocOpBuilder &b, const cpu::Team &team) {
    Value zero = arith::ConstantIndexOp::create(b, 0);
    Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, team.thread, zero);
    // The other threads have nobody to tell.
    Value mark = LLVM::SelectOp::create(b, isFirst, given[0], null);
    SmallVector<Value> operands(arguments);
    team.append(operands);
    operands.append({mark, given[1]});
    if (body.hasCollectives)
      operands.append({given[3], given[4]});
    llvm::append_range(operands, results);
    Value stops = func::CallOp::create(b, function, operands).getResult(0);
    scf::IfOp::create(
        b, arith::AndIOp::create(b, stops, isFirst), [&](OpBuilder &builder, Location loc) {
          ImplicitLocOpBuilder b(loc, builder);
          Value code =
              arith::ConstantOp::create(b, b.getI32IntegerAttr(int32_t(ErrorCode::Interrupted)));
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

LogicalResult easyquant::emitStepEntry(const StepBody &body, StringRef name) {
  func::FuncOp step = body.step;
  Builder builder(step.getContext());
  Type pointer = LLVM::LLVMPointerType::get(builder.getContext());
  func::FuncOp entry =
      addEntry(body, name, builder.getFunctionType({pointer}, {builder.getI32Type()}));
  return StepEntryEmitter(body, entry).run();
}
