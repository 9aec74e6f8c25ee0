//===- StepBody.cpp - A step as what one thread does ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepBody.h"

#include "easyquant/Codegen/CPU/Team.h"
#include "easyquant/Dialect/Launch/Analysis/Memory.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace easyquant;

StringRef StepBody::nameOf(unsigned argument) const {
  func::FuncOp function = step;
  auto name = function.getArgAttrOfType<StringAttr>(argument, launch::kArgumentAttr);
  return name ? name.getValue() : StringRef();
}

namespace {

/// A program that is compiled to be measured calls a function that it is given before every kernel,
/// with the phase and the site that the kernel is for (docs/Architecture.md, "The program ABI"). A
/// program that is given none pays a branch a kernel.
class ProfilerHook {
public:
  explicit ProfilerHook(SymbolTable &symbols) : symbols(symbols) {}

  /// Emits function(context, phase, site) unless `function` is null when the program runs.
  void emit(ImplicitLocOpBuilder &b, Value function, Value context, int64_t phase, StringRef site);

private:
  func::FuncOp getOrEmitCall(ImplicitLocOpBuilder &b);
  /// A constant of the module that ends with a zero byte; one for each site.
  LLVM::GlobalOp getOrEmitText(ImplicitLocOpBuilder &b, StringRef site);

  SymbolTable &symbols;
  func::FuncOp callee;
  llvm::StringMap<LLVM::GlobalOp> texts;
};

} // namespace

func::FuncOp ProfilerHook::getOrEmitCall(ImplicitLocOpBuilder &b) {
  if (callee)
    return callee;
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  OpBuilder detached(b.getContext());
  callee = func::FuncOp::create(
      detached, b.getLoc(), "call_profiler",
      b.getFunctionType({pointer, pointer, b.getI64Type(), pointer}, TypeRange()));
  callee.setPrivate();
  symbols.insert(callee);

  Block *body = callee.addEntryBlock();
  auto inner = ImplicitLocOpBuilder::atBlockEnd(b.getLoc(), body);
  Value function = body->getArgument(0);
  Value null = LLVM::ZeroOp::create(inner, pointer);
  Value isGiven = LLVM::ICmpOp::create(inner, LLVM::ICmpPredicate::ne, function, null);
  scf::IfOp::create(inner, isGiven, [&](OpBuilder &builder, Location loc) {
    ValueRange arguments = body->getArguments().drop_front();
    auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()),
                                            llvm::to_vector(arguments.getTypes()));
    LLVM::CallOp::create(builder, loc, type, body->getArguments());
    scf::YieldOp::create(builder, loc);
  });
  func::ReturnOp::create(inner);
  return callee;
}

LLVM::GlobalOp ProfilerHook::getOrEmitText(ImplicitLocOpBuilder &b, StringRef site) {
  LLVM::GlobalOp &text = texts[site];
  if (text)
    return text;
  std::string bytes = site.str() + '\0';
  OpBuilder detached(b.getContext());
  text = LLVM::GlobalOp::create(
      detached, b.getLoc(), LLVM::LLVMArrayType::get(b.getI8Type(), bytes.size()),
      /*isConstant=*/true, LLVM::Linkage::Private, "site", b.getStringAttr(bytes));
  // The programs of several instruction sets then share their texts.
  text.setUnnamedAddr(LLVM::UnnamedAddr::Global);
  symbols.insert(text);
  return text;
}

void ProfilerHook::emit(ImplicitLocOpBuilder &b, Value function, Value context, int64_t phase,
                        StringRef site) {
  Value number = LLVM::ConstantOp::create(b, b.getI64Type(), phase);
  Value text = LLVM::AddressOfOp::create(b, getOrEmitText(b, site));
  func::CallOp::create(b, getOrEmitCall(b), ValueRange{function, context, number, text});
}

namespace {

class BodyEmitter {
public:
  BodyEmitter(func::FuncOp step, const cpu::Target &target, bool isEntered)
      : body{step, nullptr, !step.getOps<launch::CollectiveOp>().empty(), {}, {}}, target(target),
        module(step->getParentOfType<ModuleOp>()), symbols(module),
        b(step.getLoc(), step.getContext()), hasHostCalls(!step.getOps<launch::HostOp>().empty()) {
    if (isEntered)
      profiler.emplace(symbols);
  }

  FailureOr<StepBody> run();

private:
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  Value view(Value memory, int64_t offset, Type type, ValueRange sizes = {}) {
    return memref::ViewOp::create(b, cast<MemRefType>(type), memory, index(offset), sizes);
  }

  LogicalResult addFunction();
  LogicalResult emit(Operation &op);
  LogicalResult emitConstant(memref::GetGlobalOp op);
  LogicalResult emitKernel(launch::KernelOp op);
  void emitHostCall(launch::HostOp op);
  void emitCollective(launch::CollectiveOp op);
  void emitWait(launch::WaitOp op);
  /// Where `op` begins: the threads meet if they must, and the profiler hears of it.
  template <typename OpT> void enter(OpT op, launch::Phase phase) {
    if (pending.mustMeet(op))
      meet();
    pending.add(op);
    if (profiler)
      profiler->emit(b, hook[0], hook[1], static_cast<int64_t>(phase), op.getSite());
  }
  Value integer(int64_t value) { return LLVM::ConstantOp::create(b, b.getI64Type(), value); }
  /// One thread calls a function: the first of the operands that `emitOperands` gives.
  void callOnce(llvm::function_ref<SmallVector<Value>()> emitOperands);
  SmallVector<Value, 4> hostOperand(Value operand);
  /// All threads meet; the function returns there if the team is stopped.
  void meet();

  StepBody body;
  cpu::Target target;
  ModuleOp module;
  SymbolTable symbols;
  ImplicitLocOpBuilder b;
  bool hasHostCalls;
  std::optional<ProfilerHook> profiler;
  launch::Pending pending;
  Block *stopped = nullptr; ///< returns from a function of a stopped step
  Value weights, arena;
  cpu::Team team;
  std::array<Value, 2> host, hook; ///< function and context
  Value start, wait;               ///< services
  IRMapping mapping;
};

} // namespace

LogicalResult BodyEmitter::addFunction() {
  func::FuncOp step = body.step;
  MLIRContext *context = b.getContext();
  auto vector = [&](unsigned bits) {
    return MemRefType::get({ShapedType::kDynamic}, IntegerType::get(context, bits));
  };
  SmallVector<Type> types = {vector(8), vector(8), vector(8), vector(64)};
  // The fixed ones have their places.
  static constexpr StringLiteral kFixed[] = {"cache", "pages"};
  for (unsigned i = 0; i < step.getNumArguments(); ++i)
    if (StringRef name = body.nameOf(i); name == "logits" || name == "next_hidden")
      body.results.push_back(i);
    else if (!llvm::is_contained(kFixed, name))
      body.own.push_back(i);
  for (unsigned i : body.own)
    types.push_back(step.getArgument(i).getType());
  cpu::Team::appendTypes(context, types);
  types.append((hasHostCalls ? 2 : 0) + (profiler ? 2 : 0) + (body.hasCollectives ? 2 : 0),
               LLVM::LLVMPointerType::get(context));
  for (unsigned i : body.results)
    types.push_back(step.getArgument(i).getType());
  SmallVector<Type> results;
  if (profiler)
    results.push_back(b.getI1Type());

  b.setInsertionPoint(step);
  std::string name = (step.getSymName() + ".kernels").str();
  body.function = func::FuncOp::create(b, name, b.getFunctionType(types, results));
  body.function.setPrivate();
  symbols.insert(body.function);
  Block *block = body.function.addEntryBlock();
  b.setInsertionPointToStart(block);
  unsigned next = 0;
  auto take = [&]() -> Value { return block->getArgument(next++); };
  weights = take();
  arena = take();
  llvm::StringMap<Value> fixed;
  for (StringRef name : kFixed)
    fixed[name] = take();
  for (unsigned i = 0; i < step.getNumArguments(); ++i) {
    Value argument = fixed.lookup(body.nameOf(i));
    if (!argument)
      continue;
    if (argument.getType() != step.getArgument(i).getType())
      return step.emitOpError("argument ")
             << i << " is the " << body.nameOf(i) << ", of " << step.getArgument(i).getType()
             << "; expected " << argument.getType();
    mapping.map(step.getArgument(i), argument);
  }
  for (unsigned i : body.own)
    mapping.map(step.getArgument(i), take());
  team = cpu::Team::of(block->getArguments().slice(next, 3));
  next += 3;
  if (hasHostCalls)
    host = {take(), take()};
  if (profiler)
    hook = {take(), take()};
  if (body.hasCollectives) {
    start = take();
    wait = take();
  }
  for (unsigned i : body.results)
    mapping.map(step.getArgument(i), take());
  return success();
}

void BodyEmitter::meet() {
  pending.clear();
  Value stops = cpu::emitBarrier(b, module, target, team);
  if (!profiler)
    return;
  OpBuilder::InsertPoint here = b.saveInsertionPoint();
  if (!stopped) {
    stopped = b.createBlock(&body.function.getBody());
    func::ReturnOp::create(b, arith::ConstantOp::create(b, b.getBoolAttr(true)).getResult());
  }
  Block *next = b.createBlock(&body.function.getBody());
  b.restoreInsertionPoint(here);
  cf::CondBranchOp::create(b, stops, stopped, next);
  b.setInsertionPointToEnd(next);
}

LogicalResult BodyEmitter::emitConstant(memref::GetGlobalOp op) {
  auto global = symbols.lookup<memref::GlobalOp>(op.getName());
  auto offset = global ? global->getAttrOfType<IntegerAttr>(launch::kOffsetAttr) : IntegerAttr();
  if (!offset)
    return op.emitOpError() << "@" << op.getName() << " has no place in the weights";
  mapping.map(op.getResult(), view(weights, offset.getInt(), op.getType()));
  return success();
}

LogicalResult BodyEmitter::emitKernel(launch::KernelOp op) {
  auto error = [&] { return op.emitOpError("of site '") << op.getSite() << "' "; };
  auto kernel = dyn_cast<func::FuncOp>(symbols.lookup(op.getKernel().getRootReference()));
  if (!kernel)
    return error() << "launches " << op.getKernel()
                   << " on a GPU; expected a func.func: convert to launches for a CPU";
  enter(op, op.getPhase());
  SmallVector<Value> operands;
  for (Value operand : op.getArguments())
    operands.push_back(mapping.lookup(operand));
  team.append(operands);
  for (auto [operand, type] : llvm::zip_equal(operands, kernel.getArgumentTypes()))
    if (operand.getType() != type)
      operand = memref::CastOp::create(b, type, operand);
  func::CallOp::create(b, kernel, operands);
  return success();
}

/// The fields of a HostOperand.
SmallVector<Value, 4> BodyEmitter::hostOperand(Value operand) {
  auto integer = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), index);
  };
  auto type = cast<MemRefType>(operand.getType());
  auto metadata = memref::ExtractStridedMetadataOp::create(b, operand);
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, operand);
  Value bytes = index(type.getElementTypeBitWidth() / 8);
  Value offset = arith::MulIOp::create(b, metadata.getOffset(), bytes);
  Value begin = integer(arith::AddIOp::create(b, address, offset));
  Value columns = integer(memref::DimOp::create(b, operand, type.getRank() - 1));
  if (type.getRank() == 1)
    return {begin, integer(index(1)), columns, columns};
  return {begin, integer(memref::DimOp::create(b, operand, 0)), columns,
          integer(metadata.getStrides()[0])};
}

void BodyEmitter::callOnce(llvm::function_ref<SmallVector<Value>()> emitOperands) {
  Value isFirst = arith::CmpIOp::create(b, arith::CmpIPredicate::eq, team.thread, index(0));
  auto branch = scf::IfOp::create(b, isFirst, /*withElseRegion=*/false);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  SmallVector<Value> operands = emitOperands();
  SmallVector<Type> types(llvm::drop_begin(ValueRange(operands).getTypes()));
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), types);
  LLVM::CallOp::create(b, type, operands);
}

void BodyEmitter::emitHostCall(launch::HostOp op) {
  SmallVector<Value> fields;
  for (Value operand : op.getArguments())
    llvm::append_range(fields, hostOperand(mapping.lookup(operand)));
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  Value array = LLVM::AllocaOp::create(b, pointer, b.getI64Type(),
                                       integer(static_cast<int64_t>(fields.size())));
  // One thread calls while the others wait.
  meet();
  callOnce([&] {
    for (auto [i, field] : llvm::enumerate(fields)) {
      LLVM::GEPArg at(static_cast<int32_t>(i));
      LLVM::StoreOp::create(b, field, LLVM::GEPOp::create(b, pointer, b.getI64Type(), array, at));
    }
    return SmallVector<Value>{host[0], host[1], integer(static_cast<int64_t>(op.getCall())), array};
  });
  meet();
}

void BodyEmitter::emitCollective(launch::CollectiveOp op) {
  enter(op, launch::Phase::Comm);
  Value memory = mapping.lookup(op.getMemory());
  auto type = cast<MemRefType>(memory.getType());
  Value address = memref::ExtractAlignedPointerAsIndexOp::create(b, memory);
  Value data =
      LLVM::IntToPtrOp::create(b, LLVM::LLVMPointerType::get(b.getContext()),
                               arith::IndexCastOp::create(b, b.getI64Type(), address).getResult());
  Value count = memref::DimOp::create(b, memory, 0);
  if (type.getRank() == 2)
    count = arith::MulIOp::create(b, count, index(type.getDimSize(1)));
  Value elements = arith::IndexCastOp::create(b, b.getI64Type(), count);
  callOnce([&] {
    return SmallVector<Value>{start, hook[1], integer(static_cast<int64_t>(op.getId())), data,
                              elements};
  });
}

void BodyEmitter::emitWait(launch::WaitOp op) {
  enter(op, launch::Phase::Sync);
  callOnce(
      [&] { return SmallVector<Value>{wait, hook[1], integer(static_cast<int64_t>(op.getId()))}; });
}

LogicalResult BodyEmitter::emit(Operation &op) {
  b.setLoc(op.getLoc());
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](memref::GetGlobalOp op) { return emitConstant(op); })
      .Case([&](launch::BufferOp op) -> LogicalResult {
        if (!op.getOffset() && !op.use_empty())
          return op.emitOpError("has no place: run launch-place-buffers first");
        if (op.getOffset())
          mapping.map(op.getMemory(), view(arena, static_cast<int64_t>(*op.getOffset()),
                                           op.getMemory().getType(), mapping.lookup(op.getRows())));
        return success();
      })
      .Case([&](launch::ScratchOp op) {
        int64_t begin = body.step->getAttrOfType<IntegerAttr>(launch::kArenaBytesAttr).getInt();
        Value size =
            arith::MulIOp::create(b, team.threads, index(static_cast<int64_t>(op.getBytes())));
        mapping.map(op.getMemory(), view(arena, begin, op.getMemory().getType(), size));
        return success();
      })
      .Case([&](launch::CacheOp op) {
        mapping.map(op.getMemory(), mapping.lookup(op.getCache()));
        return op.getOffset() == 0 ? success()
                                   : op.emitOpError("kernels on CPUs take the whole cache");
      })
      .Case([&](launch::KernelOp op) { return emitKernel(op); })
      .Case<launch::CollectiveOp, launch::WaitOp>([&](auto op) -> LogicalResult {
        if (!profiler)
          return op.emitOpError("is a collective, for which only steps have services");
        if constexpr (std::is_same_v<decltype(op), launch::CollectiveOp>)
          emitCollective(op);
        else
          emitWait(op);
        return success();
      })
      .Case([&](launch::HostOp op) -> LogicalResult {
        if (profiler)
          return op.emitOpError("calls the program's caller, which a step cannot do");
        emitHostCall(op);
        return success();
      })
      .Case(
          [&](launch::CountersOp op) { return op.emitOpError("kernels on CPUs have no counters"); })
      .Case([&](func::ReturnOp) {
        SmallVector<Value> results;
        if (profiler)
          results.push_back(arith::ConstantOp::create(b, b.getBoolAttr(false)));
        func::ReturnOp::create(b, results);
        return success();
      })
      .Default([&](Operation *op) {
        b.clone(*op, mapping);
        return success();
      });
}

FailureOr<StepBody> BodyEmitter::run() {
  if (failed(addFunction()))
    return failure();
  for (Operation &op : body.step.front())
    if (failed(emit(op)))
      return failure();
  return body;
}

FailureOr<StepBody> easyquant::emitStepBody(func::FuncOp step, const cpu::Target &target,
                                            bool isEntered) {
  return BodyEmitter(step, target, isEntered).run();
}
