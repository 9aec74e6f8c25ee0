//===- ConvertLaunchesToLLVM.cpp - Steps to programs for CPUs -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Marks.h"

#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Formats/Phase.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/TypeSwitch.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTLAUNCHESTOLLVM
#include "easyquant/Conversion/LaunchesToLLVM/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

namespace {

/// What the entry takes beside the step's own arguments, in its order.
struct EntryArguments {
  Value weights, arena, cache, threads;
  std::array<Value, 2> host, marker; ///< function and context
};

class EntryEmitter {
public:
  EntryEmitter(func::FuncOp step, StringRef name, bool profile)
      : step(step), name(name), symbols(step->getParentOp()), b(step.getLoc(), step.getContext()) {
    if (profile)
      marks.emplace(symbols);
    hasHostCalls = !step.getOps<launch::HostOp>().empty();
  }

  LogicalResult run();

private:
  StringRef nameOf(unsigned argument) {
    auto name = step.getArgAttrOfType<StringAttr>(argument, launch::kArgumentAttr);
    return name ? name.getValue() : StringRef();
  }
  int64_t bytes(StringRef attribute) const {
    return step->getAttrOfType<IntegerAttr>(attribute).getInt();
  }
  Value index(int64_t value) { return arith::ConstantIndexOp::create(b, value); }
  /// constant + step * capacity
  Value affine(ArrayRef<int64_t> form, Value capacity) {
    return arith::AddIOp::create(b, index(form[0]),
                                 arith::MulIOp::create(b, capacity, index(form[1])));
  }
  Value view(Value memory, Value offset, Type type, ValueRange sizes = {}) {
    return memref::ViewOp::create(b, cast<MemRefType>(type), memory, offset, sizes);
  }

  void addArguments();
  LogicalResult emit(Operation &op);
  LogicalResult emitConstant(memref::GetGlobalOp op);
  void emitCache(launch::CacheOp op);
  void emitKernel(launch::KernelOp op);
  void emitHostCall(launch::HostOp op);
  SmallVector<Value, 4> hostOperand(Value operand);

  func::FuncOp step;
  StringRef name;
  SymbolTable symbols;
  ImplicitLocOpBuilder b;
  std::optional<Marks> marks;
  bool hasHostCalls = false;
  EntryArguments entry;
  IRMapping mapping;
};

} // namespace

void EntryEmitter::addArguments() {
  auto bytesType = MemRefType::get({ShapedType::kDynamic}, b.getI8Type());
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  SmallVector<Type> types(3, bytesType);
  SmallVector<unsigned> own, results;
  for (unsigned i = 0; i < step.getNumArguments(); ++i)
    if (nameOf(i) == "logits")
      results.push_back(i);
    else if (nameOf(i) != "cache" && nameOf(i) != "capacity")
      own.push_back(i);
  for (unsigned i : own)
    types.push_back(step.getArgument(i).getType());
  types.push_back(b.getIndexType());
  types.append((hasHostCalls ? 2 : 0) + (marks ? 2 : 0), pointer);
  for (unsigned i : results)
    types.push_back(step.getArgument(i).getType());

  auto function = func::FuncOp::create(b, name, b.getFunctionType(types, {}));
  function->setAttr("llvm.emit_c_interface", b.getUnitAttr());
  Block *body = function.addEntryBlock();
  b.setInsertionPointToStart(body);
  unsigned next = 0;
  auto take = [&]() -> Value { return body->getArgument(next++); };
  entry.weights = take();
  entry.arena = take();
  entry.cache = take();
  for (unsigned i : own)
    mapping.map(step.getArgument(i), take());
  entry.threads = take();
  if (hasHostCalls)
    entry.host = {take(), take()};
  if (marks)
    entry.marker = {take(), take()};
  for (unsigned i : results)
    mapping.map(step.getArgument(i), take());
  for (unsigned i = 0; i < step.getNumArguments(); ++i) {
    if (nameOf(i) == "cache")
      mapping.map(step.getArgument(i), entry.cache);
    if (nameOf(i) != "capacity")
      continue;
    auto cache = step->getParentOfType<ModuleOp>()->getAttrOfType<DictionaryAttr>(launch::kCacheAttr);
    auto fixed = cache.getAs<IntegerAttr>("bytes"), perToken = cache.getAs<IntegerAttr>(
                                                        "bytes_per_token");
    Value tokens = arith::SubIOp::create(b, memref::DimOp::create(b, entry.cache, 0),
                                         index(fixed.getInt()));
    mapping.map(step.getArgument(i),
                arith::DivUIOp::create(b, tokens, index(perToken.getInt())).getResult());
  }
}

LogicalResult EntryEmitter::emitConstant(memref::GetGlobalOp op) {
  auto global = symbols.lookup<memref::GlobalOp>(op.getName());
  auto offset = global ? global->getAttrOfType<IntegerAttr>(launch::kOffsetAttr) : IntegerAttr();
  if (!offset)
    return op.emitOpError() << "@" << op.getName() << " has no place in the weights";
  mapping.map(op.getResult(), view(entry.weights, index(offset.getInt()), op.getType()));
  return success();
}

void EntryEmitter::emitCache(launch::CacheOp op) {
  Value capacity = mapping.lookup(op.getCapacity());
  auto type = cast<MemRefType>(op.getMemory().getType());
  Value bytes = affine(op.getSize(), capacity);
  Value elements = arith::DivUIOp::create(b, bytes, index(type.getElementTypeBitWidth() / 8));
  mapping.map(op.getMemory(), view(mapping.lookup(op.getCache()),
                                   affine(op.getOffset(), capacity), type, elements));
}

void EntryEmitter::emitKernel(launch::KernelOp op) {
  if (marks) {
    const auto *phase = llvm::find(formats::kPhaseNames, op.getPhase());
    marks->emit(b, entry.marker[0], entry.marker[1], phase - std::begin(formats::kPhaseNames),
                op.getSite());
  }
  auto kernel = symbols.lookup<func::FuncOp>(op.getKernel().getRootReference());
  SmallVector<Value> operands;
  for (Value operand : op.getArguments())
    operands.push_back(mapping.lookup(operand));
  if (kernel.getNumArguments() > operands.size())
    operands.push_back(entry.threads);
  for (auto [operand, type] : llvm::zip_equal(operands, kernel.getArgumentTypes()))
    if (operand.getType() != type)
      operand = memref::CastOp::create(b, type, operand);
  func::CallOp::create(b, kernel, operands);
}

/// The fields of a HostOperand.
SmallVector<Value, 4> EntryEmitter::hostOperand(Value operand) {
  auto integer = [&](Value index) -> Value {
    return arith::IndexCastOp::create(b, b.getI64Type(), index);
  };
  Value none = integer(index(0));
  auto type = dyn_cast<MemRefType>(operand.getType());
  if (!type)
    return {none, integer(operand), none, none};
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

void EntryEmitter::emitHostCall(launch::HostOp op) {
  SmallVector<Value> fields;
  for (Value operand : op.getArguments())
    llvm::append_range(fields, hostOperand(mapping.lookup(operand)));
  auto pointer = LLVM::LLVMPointerType::get(b.getContext());
  auto integer = [&](int64_t value) -> Value {
    return LLVM::ConstantOp::create(b, b.getI64Type(), value);
  };
  Value array = LLVM::AllocaOp::create(b, pointer, b.getI64Type(),
                                       integer(static_cast<int64_t>(fields.size())));
  for (auto [i, field] : llvm::enumerate(fields)) {
    LLVM::GEPArg at(static_cast<int32_t>(i));
    LLVM::StoreOp::create(b, field, LLVM::GEPOp::create(b, pointer, b.getI64Type(), array, at));
  }
  SmallVector<Value> arguments = {entry.host[0], entry.host[1],
                                  integer(static_cast<int64_t>(op.getCall())), array};
  SmallVector<Type> types(llvm::drop_begin(ValueRange(arguments).getTypes()));
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), types);
  LLVM::CallOp::create(b, type, arguments);
}

LogicalResult EntryEmitter::emit(Operation &op) {
  b.setLoc(op.getLoc());
  return llvm::TypeSwitch<Operation *, LogicalResult>(&op)
      .Case([&](memref::GetGlobalOp op) { return emitConstant(op); })
      .Case([&](launch::BufferOp op) -> LogicalResult {
        if (!op.getOffset()) // nothing uses it
          return success();
        mapping.map(op.getMemory(), view(entry.arena, index(static_cast<int64_t>(*op.getOffset())),
                                         op.getMemory().getType(), mapping.lookup(op.getRows())));
        return success();
      })
      .Case([&](launch::ScratchOp op) {
        Value size = arith::MulIOp::create(b, entry.threads,
                                           index(static_cast<int64_t>(op.getBytes())));
        mapping.map(op.getMemory(), view(entry.arena, index(bytes(launch::kArenaBytesAttr)),
                                         op.getMemory().getType(), size));
        return success();
      })
      .Case([&](launch::CacheOp op) {
        emitCache(op);
        return success();
      })
      .Case([&](launch::KernelOp op) {
        emitKernel(op);
        return success();
      })
      .Case([&](launch::HostOp op) {
        emitHostCall(op);
        return success();
      })
      .Case([&](launch::CountersOp op) {
        return op.emitOpError("kernels on CPUs have no counters");
      })
      .Default([&](Operation *op) {
        b.clone(*op, mapping);
        return success();
      });
}

LogicalResult EntryEmitter::run() {
  b.setInsertionPoint(step);
  addArguments();
  for (Operation &op : step.front())
    if (failed(emit(op)))
      return failure();
  return success();
}

namespace {

struct ConvertLaunchesToLLVM
    : public easyquant::impl::ConvertLaunchesToLLVMBase<ConvertLaunchesToLLVM> {
  using ConvertLaunchesToLLVMBase::ConvertLaunchesToLLVMBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto step = module.lookupSymbol<func::FuncOp>(launch::kForward);
    auto target = module->getAttrOfType<StringAttr>(launch::kTargetAttr);
    if (!step || !target || !step->hasAttr(launch::kArenaBytesAttr)) {
      module.emitError("expected a step @") << launch::kForward << " whose buffers are placed: run "
                                            << "convert-equant-to-launches and "
                                               "launch-place-buffers first";
      return signalPassFailure();
    }
    std::string name = "easyquant_forward_" + target.getValue().str();
    if (failed(EntryEmitter(step, name, profile).run()))
      return signalPassFailure();
    describe(module, step, name);
    step.erase();
    for (auto global : llvm::make_early_inc_range(module.getOps<memref::GlobalOp>()))
      global.erase();
  }

  /// What the runtime must know to call the entry.
  static void describe(ModuleOp module, func::FuncOp step, StringRef name) {
    Builder b(module.getContext());
    auto cache = module->getAttrOfType<DictionaryAttr>(launch::kCacheAttr);
    auto ofCache = [&](StringRef key, Attribute missing) {
      return cache ? cache.get(key) : missing;
    };
    Attribute none = b.getI64IntegerAttr(0);
    module->setAttr(
        kProgramAttr,
        b.getDictionaryAttr({
            b.getNamedAttr("entry", b.getStringAttr(name)),
            b.getNamedAttr("max_rows", step->getAttr(launch::kMaxRowsAttr)),
            b.getNamedAttr("arena_bytes", step->getAttr(launch::kArenaBytesAttr)),
            b.getNamedAttr("arena_bytes_per_thread", step->getAttr(launch::kScratchBytesAttr)),
            b.getNamedAttr("cache_bytes", ofCache("bytes", none)),
            b.getNamedAttr("cache_bytes_per_token", ofCache("bytes_per_token", none)),
            b.getNamedAttr("cache_scheme", ofCache("scheme", b.getUnitAttr())),
            b.getNamedAttr("cache_type", ofCache("type", b.getStringAttr("f32"))),
        }));
  }
};

} // namespace
