//===- ConvertLaunchesToLLVM.cpp - Steps to programs for CPUs -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StepBody.h"

#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/AttributeJson.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/OpenMP/OpenMPDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Verifier.h"

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
    // Nothing below knows what a launch may do, and the pass manager may verify nothing.
    if (failed(verify(getOperation())) || failed(convert(getOperation())))
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
    const formats::InstructionSet *set = formats::findInstructionSet(target.str());
    if (!set)
      return module.emitError("is for '")
             << target.getValue() << "', which is no instruction set of a CPU: convert to launches "
             << "for one";
    const cpu::Target compiled{cpu::isaOf(target)};
    std::vector<formats::Collective> collectives;
    for (auto op : source.getOps<launch::CollectiveOp>())
      if (failed(launch::addCollective(op, collectives)))
        return failure();
    const std::string name = (step ? "easyquant_step_" : "easyquant_forward_") + set->symbol();
    FailureOr<formats::Manifest::Program> program = emit(source, compiled, name);
    if (failed(program))
      return failure();
    program->entries = {{target.str(), name}};
    if (auto draft = module.lookupSymbol<func::FuncOp>(lm::kDraft); draft && step) {
      const std::string draftName = "easyquant_draft_" + set->symbol();
      FailureOr<formats::Manifest::Program> beside = emit(draft, compiled, draftName);
      if (failed(beside))
        return failure();
      program->draftEntries = {{target.str(), draftName}};
      if (module->hasAttr(lm::kAssistantAttr))
        program->fixedDraftPosition = true;
      program->arenaBytes = std::max(program->arenaBytes, beside->arenaBytes);
      program->arenaBytesPerThread =
          std::max(program->arenaBytesPerThread, beside->arenaBytesPerThread);
    }
    if (auto grid = module.lookupSymbol<shard::GridOp>(equant::kGrid)) {
      program->tensorParallel = {equant::degreeOf(module), std::move(collectives)};
      grid.erase();
    }
    module->setAttr(kProgramAttr, toAttribute(module.getContext(), formats::partJson(*program)));
    for (auto global : llvm::make_early_inc_range(module.getOps<memref::GlobalOp>()))
      global.erase();
    return success();
  }

  /// Makes the entry `name` of a step, which is gone then: what it needs.
  FailureOr<formats::Manifest::Program> emit(func::FuncOp source, const cpu::Target &target,
                                             const std::string &name) {
    for (StringRef attribute :
         {launch::kMaxRowsAttr, launch::kScratchBytesAttr, launch::kCacheAttr})
      if (!source->hasAttr(attribute))
        return source.emitOpError("expected ")
               << attribute
               << ", which convert-equant-to-launches and launch-place-buffers give a step";
    FailureOr<StepBody> body = emitStepBody(source, target, step);
    if (failed(body))
      return failure();
    if (!step)
      emitCallEntry(*body, name);
    else if (failed(emitStepEntry(*body, name)))
      return failure();
    formats::Manifest::Program program = describe(source);
    source.erase();
    return program;
  }

  static formats::Manifest::Program describe(func::FuncOp source) {
    auto integer = [&](StringRef name) {
      return source->getAttrOfType<IntegerAttr>(name).getInt();
    };
    return {
        .entries = {},
        .draftEntries = {},
        .fixedDraftPosition = std::nullopt,
        .maxRows = integer(launch::kMaxRowsAttr),
        .arenaBytes = integer(launch::kArenaBytesAttr),
        .arenaBytesPerThread = integer(launch::kScratchBytesAttr),
        .cache = *launch::cacheOf(source->getAttr(launch::kCacheAttr)),
        .recurrentValues = launch::recurrentValuesOf(source),
        .tensorParallel = std::nullopt,
    };
  }
};

} // namespace
