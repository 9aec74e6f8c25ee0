//===- ConvertLaunchesToLLVM.cpp - Steps to programs for CPUs -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepBody.h"

#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTLAUNCHESTOLLVM
#include "easyquant/Conversion/LaunchesToLLVM/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;

namespace {

struct ConvertLaunchesToLLVM
    : public easyquant::impl::ConvertLaunchesToLLVMBase<ConvertLaunchesToLLVM> {
  using ConvertLaunchesToLLVMBase::ConvertLaunchesToLLVMBase;

  void runOnOperation() override {
    if (failed(convert(getOperation())))
      signalPassFailure();
  }

private:
  LogicalResult convert(ModuleOp module) {
    auto source = module.lookupSymbol<func::FuncOp>(launch::kForward);
    auto target = module->getAttrOfType<StringAttr>(launch::kTargetAttr);
    if (!source || !target || !source->hasAttr(launch::kArenaBytesAttr))
      return module.emitError("expected a step @")
             << launch::kForward << " whose buffers are placed: run convert-equant-to-launches and "
             << "launch-place-buffers first";
    for (StringRef name : {launch::kMaxRowsAttr, launch::kScratchBytesAttr, launch::kCacheAttr})
      if (!source->hasAttr(name))
        return source.emitOpError("expected ")
               << name << ", which convert-equant-to-launches and launch-place-buffers give a step";
    FailureOr<ArrayAttr> collectives = describeCollectives(source);
    if (failed(collectives))
      return failure();
    FailureOr<StepBody> body = emitStepBody(source, step);
    if (failed(body))
      return failure();
    std::string name =
        ((step ? "easyquant_step_" : "easyquant_forward_") + target.getValue()).str();
    if (!step)
      emitCallEntry(*body, name);
    else if (failed(emitStepEntry(*body, name)))
      return failure();
    describe(module, source, name, *collectives);
    source.erase();
    for (auto global : llvm::make_early_inc_range(module.getOps<memref::GlobalOp>()))
      global.erase();
    return success();
  }

  /// What the runtime must know to call the entry.
  static void describe(ModuleOp module, func::FuncOp source, StringRef name,
                       ArrayAttr collectives) {
    Builder b(module.getContext());
    auto cache = source->getAttrOfType<DictionaryAttr>(launch::kCacheAttr);
    NamedAttrList program(b.getDictionaryAttr({
        b.getNamedAttr("entry", b.getStringAttr(name)),
        b.getNamedAttr("max_rows", source->getAttr(launch::kMaxRowsAttr)),
        b.getNamedAttr("arena_bytes", source->getAttr(launch::kArenaBytesAttr)),
        b.getNamedAttr("arena_bytes_per_thread", source->getAttr(launch::kScratchBytesAttr)),
        b.getNamedAttr("cache", cache.get("sizes")),
        b.getNamedAttr("cache_scheme", cache.get("scheme")),
        b.getNamedAttr("cache_type", cache.get("type")),
    }));
    if (auto grid = module.lookupSymbol<shard::GridOp>(equant::kGrid)) {
      program.set("tensor_parallel",
                  b.getDictionaryAttr(
                      {b.getNamedAttr("degree", b.getI64IntegerAttr(equant::degreeOf(module))),
                       b.getNamedAttr("collectives", collectives)}));
      grid.erase();
    }
    module->setAttr(kProgramAttr, program.getDictionary(module.getContext()));
  }

  /// By their numbers: what the runtime is to do when it is called to start them.
  static FailureOr<ArrayAttr> describeCollectives(func::FuncOp source) {
    Builder b(source.getContext());
    SmallVector<Attribute> collectives;
    for (auto op : source.getOps<launch::CollectiveOp>()) {
      if (op.getId() != collectives.size())
        return op.emitOpError("of site '") << op.getSite() << "' is number " << op.getId()
                                           << "; expected " << collectives.size();
      auto type = cast<MemRefType>(op.getMemory().getType());
      Attribute reduction = b.getUnitAttr();
      if (auto by = op.getReduction())
        reduction = b.getStringAttr(launch::stringifyReduction(*by));
      collectives.push_back(b.getDictionaryAttr(
          {b.getNamedAttr("call", b.getStringAttr(launch::stringifyCollectiveCall(op.getCall()))),
           b.getNamedAttr("reduction", reduction),
           b.getNamedAttr("type", b.getStringAttr(type.getElementType().isF32() ? "f32" : "i32")),
           b.getNamedAttr("columns",
                          b.getI64IntegerAttr(type.getRank() == 2 ? type.getDimSize(1) : 1)),
           b.getNamedAttr("site", op.getSiteAttr())}));
    }
    return b.getArrayAttr(collectives);
  }
};

} // namespace
