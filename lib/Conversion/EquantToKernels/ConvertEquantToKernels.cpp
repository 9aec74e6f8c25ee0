//===- ConvertEquantToKernels.cpp - Models to kernel calls ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Entries.h"

#include "easyquant/Conversion/EquantToKernels/EquantToKernels.h"
#include "easyquant/Conversion/EquantToKernels/HostCalls.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTEQUANTTOKERNELS
#include "easyquant/Conversion/EquantToKernels/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

static constexpr StringLiteral kEntry = "forward";

/// rows<C>, the kernels' view of a matrix.
static MemRefType rowsType(RankedTensorType type) {
  auto layout =
      StridedLayoutAttr::get(type.getContext(), ShapedType::kDynamic, {ShapedType::kDynamic, 1});
  return MemRefType::get(type.getShape(), type.getElementType(), layout);
}

/// (weights, arena, cache, pages, window, held, the model's own arguments, the team, function and
/// context if the program calls its caller, marking function and context if it is called with a
/// step, results of @forward)
/// -> whether the team was stopped, if it can be.
static FunctionType kernelFunctionType(Program &program, func::FuncOp source, bool isEntry) {
  SmallVector<Type> types = program.fixedArguments();
  for (Type type : source.getArgumentTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    if (isa<lm::KVCacheType>(type))
      continue;
    if (!tensor)
      types.push_back(type);
    else if (tensor.getRank() == 2)
      types.push_back(rowsType(tensor));
    else
      types.push_back(Program::memref(tensor.getShape(), tensor.getElementType()));
  }
  cpu::Team::appendTypes(program.context(), types);
  if (!program.hostCalls.empty())
    types.append(2, LLVM::LLVMPointerType::get(program.context()));
  if (program.marks)
    types.append(2, LLVM::LLVMPointerType::get(program.context()));
  if (isEntry)
    for (Type type : source.getResultTypes()) {
      auto tensor = cast<RankedTensorType>(type);
      types.push_back(tensor.getRank() == 2
                          ? rowsType(tensor)
                          : Program::memref(tensor.getShape(), tensor.getElementType()));
    }
  SmallVector<Type> results;
  if (program.marks)
    results.push_back(IntegerType::get(program.context(), 1));
  return FunctionType::get(program.context(), types, results);
}

namespace {

struct ConvertEquantToKernels
    : public easyquant::impl::ConvertEquantToKernelsBase<ConvertEquantToKernels> {
  using ConvertEquantToKernelsBase::ConvertEquantToKernelsBase;

  void runOnOperation() override {
    if (failed(convert()))
      signalPassFailure();
  }

  LogicalResult convert();
  LogicalResult planCache(Program &program);
};

} // namespace

/// Every layer's cache is alike: as its first attention says, and all others must agree.
LogicalResult ConvertEquantToKernels::planCache(Program &program) {
  bool quantized = false;
  SmallVector<Operation *> attentions;
  getOperation().walk([&](Operation *op) {
    quantized |= llvm::isa<equant::LinearOp, equant::AttentionOp>(op);
    if (llvm::isa<lm::AttentionOp, equant::AttentionOp>(op))
      attentions.push_back(op);
  });
  program.halfCache = kvCache == "f16" || (kvCache == "auto" && quantized);
  for (Operation *op : attentions) {
    cpu::AttentionSpec spec = attentionSpec(op, program.halfCache);
    cpu::CacheBytes bytes = cpu::cacheBytes(spec);
    auto kvScheme = op->getAttrOfType<equant::KVSchemeAttr>("kv_scheme");
    bool rotates = spec.kv && spec.kv->ropePositions > 0;
    if (op == attentions.front()) {
      auto cache = cast<lm::KVCacheType>(op->getOperand(3).getType());
      program.layerCache = bytes;
      if (failed(verifyCacheBytes(op, cache.getLayers(), bytes.page, bytes.window)))
        return failure();
      program.cacheBytes = {bytes.pageTokens, cache.getLayers() * bytes.page,
                            cache.getLayers() * bytes.window};
      program.kvScheme = kvScheme;
      program.rotatesKeys = rotates;
    } else if (kvScheme != program.kvScheme || rotates != program.rotatesKeys ||
               bytes.page != program.layerCache.page) {
      return op->emitOpError("has a cache unlike that of the first layer; all layers need the same "
                             "KV scheme, place of keys, heads and dimensions");
    }
  }
  return success();
}

/// Activations, or gradients that sum over tokens: what is written straight to the caller's memory.
static bool returnsResults(func::FuncOp entry) {
  if (!llvm::hasSingleElement(entry.getBody()) ||
      !isa<func::ReturnOp>(entry.front().getTerminator()))
    return llvm::all_of(entry.getResultTypes(), isActivationType);
  return llvm::all_of(entry.front().getTerminator()->getOperands(), [](Value value) {
    Operation *op = value.getDefiningOp();
    return isActivationType(value.getType()) ||
           (op && op->hasTrait<OpTrait::HostOp>() && value.hasOneUse());
  });
}

Attribute easyquant::describeCache(Builder &b, equant::KVSchemeAttr scheme, bool rotatesKeys) {
  if (!scheme)
    return b.getUnitAttr();
  return b.getDictionaryAttr({
      b.getNamedAttr("bits", b.getI64IntegerAttr(scheme.getCode().getWidth())),
      b.getNamedAttr("group_size", b.getI64IntegerAttr(scheme.getGroup())),
      b.getNamedAttr("residual", b.getI64IntegerAttr(scheme.getResidual())),
      b.getNamedAttr("sinks", b.getI64IntegerAttr(scheme.getSinks())),
      b.getNamedAttr("keys", b.getStringAttr(rotatesKeys ? "pre-rope" : "post-rope")),
      b.getNamedAttr("key_scales", b.getStringAttr(equant::stringifyGranularity(scheme.getKeys()))),
  });
}

Attribute easyquant::describeCacheSizes(Builder &b, const formats::CacheSizes &sizes) {
  return b.getDictionaryAttr({
      b.getNamedAttr("page_tokens", b.getI64IntegerAttr(sizes.pageTokens)),
      b.getNamedAttr("page_bytes", b.getI64IntegerAttr(sizes.pageBytes)),
      b.getNamedAttr("window_bytes", b.getI64IntegerAttr(sizes.windowBytes)),
  });
}

LogicalResult ConvertEquantToKernels::convert() {
  ModuleOp module = getOperation();
  Program program(module);
  if (isa == "avx2")
    program.target.isa = cpu::Isa::AVX2;
  else if (isa == "avx512vnni")
    program.target.isa = cpu::Isa::AVX512VNNI;
  else
    return module.emitError() << "unknown instruction set '" << isa
                              << "'; expected avx2 or avx512vnni";
  program.maxRows = maxRows;
  if (step)
    program.marks.emplace(program.symbols);
  if (kvCache != "f32" && kvCache != "f16" && kvCache != "auto")
    return module.emitError() << "unknown kv-cache type '" << kvCache
                              << "'; expected f32, f16 or auto";
  if (failed(planCache(program)))
    return failure();

  auto entry = program.symbols.lookup<func::FuncOp>(kEntry);
  if (!entry || !returnsResults(entry))
    return module.emitError() << "expected a function @" << kEntry
                              << " that returns activations, such as the logits";
  module.walk([&](Operation *op) {
    if (isHostCall(op))
      program.hostCalls.insert({op, static_cast<int64_t>(program.hostCalls.size())});
  });

  SmallVector<func::FuncOp> sources(module.getOps<func::FuncOp>());
  FailureOr<ModelPlan> plan = ModelPlan::create(module, entry, maxRows);
  if (failed(plan))
    return failure();
  program.arenaBytes = plan->arenaBytes;

  // Declare all functions, then fill them in.
  OpBuilder builder(&getContext());
  builder.setInsertionPointToEnd(module.getBody());
  SmallVector<func::FuncOp> results;
  for (func::FuncOp source : sources) {
    std::string name = (source.getSymName() + ".kernels").str();
    auto result = func::FuncOp::create(builder, source.getLoc(), name,
                                       kernelFunctionType(program, source, source == entry));
    result.setPrivate();
    program.symbols.insert(result);
    results.push_back(result);
  }
  for (auto [source, result] : llvm::zip_equal(sources, results))
    if (failed(
            FunctionEmitter(program, plan->functions.find(source)->second, source, result).run()))
      return failure();
  auto body = program.symbols.lookup<func::FuncOp>((kEntry + ".kernels").str());
  std::string entryName =
      ((step ? "easyquant_step_" : "easyquant_forward_") + program.target.name()).str();
  if (!step) {
    int64_t own = llvm::count_if(entry.getArgumentTypes(),
                                 [](Type type) { return !llvm::isa<lm::KVCacheType>(type); });
    emitCallEntry(program, body, FunctionEmitter::kFixedArguments + own, entryName);
  } else if (!program.hostCalls.empty()) {
    return program.hostCalls.begin()->first->emitOpError(
        "calls the program's caller, which a step cannot do");
  } else if (failed(emitStepEntry(program, entry, body, entryName))) {
    return failure();
  }

  for (func::FuncOp source : sources)
    source.erase();
  for (auto global : llvm::make_early_inc_range(module.getOps<ml_program::GlobalOp>()))
    global.erase();
  module->setAttr(
      kProgramAttr,
      builder.getDictionaryAttr({
          builder.getNamedAttr("entry", builder.getStringAttr(entryName)),
          builder.getNamedAttr("max_rows", builder.getI64IntegerAttr(maxRows)),
          builder.getNamedAttr("arena_bytes", builder.getI64IntegerAttr(program.arenaBytes)),
          builder.getNamedAttr("arena_bytes_per_thread",
                               builder.getI64IntegerAttr(program.arenaBytesPerThread)),
          builder.getNamedAttr("cache", describeCacheSizes(builder, {program.cacheBytes.pageTokens,
                                                                     program.cacheBytes.page,
                                                                     program.cacheBytes.window})),
          builder.getNamedAttr("cache_scheme",
                               describeCache(builder, program.kvScheme, program.rotatesKeys)),
          builder.getNamedAttr("cache_type",
                               builder.getStringAttr(program.halfCache ? "f16" : "f32")),
      }));
  return success();
}
