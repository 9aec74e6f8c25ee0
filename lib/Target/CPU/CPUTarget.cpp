//===- CPUTarget.cpp - The target family of CPUs --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Target/CPU/CPUTarget.h"

#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/KernelLibrary/KernelLibrary.h"
#include "easyquant/Numerics/Packing.h"
#include "easyquant/Recipe/PassOptions.h"
#include "easyquant/Target/CPU/Passes.h"
#include "easyquant/Target/Target.h"

#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace easyquant;
using equant::LayoutAttr;
using equant::SchemeAttr;
using targets::ActivationForm;
using targets::Family;
using targets::Readers;

/// Floats in the cache have half precision beside quantized weights, unless f32 is asked for.
static bool isHalfCache(ModuleOp module, StringRef kvCache) {
  if (kvCache != "auto")
    return kvCache == "f16";
  return module
      .walk([](Operation *op) {
        return isa<equant::PackedLinearOp, equant::AttentionOp>(op) ? WalkResult::interrupt()
                                                                    : WalkResult::advance();
      })
      .wasInterrupted();
}

namespace {
struct CPUFamily final : Family {
  CPUFamily()
      : Family({.name = cpu::kFamily.str(),
                .title = "CPUs",
                .names = formats::instructionSetsOf(formats::hostProcessor()),
                .isAskedForWhole = true,
                .runsHere = true,
                .hasRecurrentState = true,
                .hasSinkLogits = true,
                .hasUnlikeHeads = true,
                .hasDraftHead = true,
                .file = {.stem = formats::kWeightsStem},
                .fusions = {},
                .expertUnit = numerics::kPanelRows}) {}

  LayoutAttr layoutFor(SchemeAttr weight, Readers) const override {
    return LayoutAttr::get(weight.getContext(), numerics::kPanelLayout);
  }
  ActivationForm activationForm(SchemeAttr input) const override {
    if (!input)
      return ActivationForm::AsIs;
    if (!input.isInteger())
      return ActivationForm::Rounded;
    return input.getBits() == 8 ? ActivationForm::Codes : ActivationForm::AsIs;
  }
  // Kernels correct for the offset of their unsigned codes.
  bool readsSums(SchemeAttr) const override { return true; }

  std::optional<std::string> checkOptions(const recipe::OptionValues &options,
                                          StringRef) const override {
    for (const std::string &isa : options[recipe::option::isas])
      if (!has(isa))
        return "unknown instruction set '" + isa + "'; expected " + llvm::join(names, " or ");
    return std::nullopt;
  }
  FailureOr<KernelLibrary> kernels(LaunchModule &program, StringRef target,
                                   StringRef kvCache) const override {
    const bool isHalf = isHalfCache(program.module, kvCache);
    program.cacheType = isHalf ? "f16" : "f32";
    return cpuKernels(program.module, {cpu::isaOf(target)}, isHalf);
  }
  void addProgramPass(OpPassManager &pm, ArrayRef<std::string>, const recipe::OptionValues &options,
                      StringRef output) const override {
    auto program = recipe::passOptions<EmitProgramOptions>(options);
    program.output = output.str();
    pm.addPass(createEmitProgram(program));
  }
};
} // namespace

void easyquant::cpu::registerTarget() { targets::registerFamily<CPUFamily>(); }
