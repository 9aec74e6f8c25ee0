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

/// What `cpu` names is what the machine that compiles is, whichever that be.
static std::vector<targets::TargetGroup> groups() {
  std::vector<targets::TargetGroup> groups = {
      {cpu::kFamily.str(), "CPUs like those of the machine that compiles",
       formats::instructionSetsOf(formats::hostProcessor())}};
  for (const formats::Processor &processor : formats::kProcessors) {
    std::vector<std::string> sets = formats::instructionSetsOf(processor);
    std::string title =
        "CPUs with " + llvm::join(sets, " or ") + (sets.size() > 1 ? ", in one program" : "");
    groups.push_back({std::string(processor.name), title, std::move(sets)});
  }
  return groups;
}

static std::vector<std::string> allNames() {
  std::vector<std::string> names;
  for (cpu::Isa isa : cpu::kIsas)
    names.push_back(cpu::nameOf(isa).str());
  return names;
}

namespace {
struct CPUFamily final : Family {
  CPUFamily()
      : Family({.name = cpu::kFamily.str(),
                .title = "CPUs",
                .names = allNames(),
                .groups = ::groups(),
                .file = {.stem = formats::kWeightsStem},
                .fusions = {},
                .expertUnits = {.packed = numerics::kPanelRows}}) {}

  LayoutAttr layoutFor(SchemeAttr weight, Readers) const override {
    return LayoutAttr::get(weight.getContext(), numerics::kPanelLayout);
  }
  ActivationForm activationForm(SchemeAttr, SchemeAttr input, StringRef) const override {
    if (!input)
      return ActivationForm::AsIs;
    if (!input.isInteger())
      return ActivationForm::Rounded;
    return input.getBits() == 8 ? ActivationForm::Codes : ActivationForm::AsIs;
  }
  // Kernels correct for the offset of their unsigned codes.
  bool readsSums(SchemeAttr) const override { return true; }

  std::optional<std::string> checkOptions(const recipe::OptionValues &options,
                                          ArrayRef<std::string> targets, StringRef) const override {
    const std::vector<std::string> &isas = options[recipe::option::isas];
    for (const std::string &isa : isas) {
      if (!has(isa))
        return "unknown instruction set '" + isa + "'; expected " + llvm::join(names, " or ");
      if (!llvm::is_contained(targets, isa))
        return "instruction set '" + isa + "' goes with --target " +
               std::string(formats::findInstructionSet(isa)->processor->name);
    }
    for (const formats::Processor &processor : formats::kProcessors) {
      auto isOf = [&](const std::string &isa) {
        return formats::findInstructionSet(isa)->processor == &processor;
      };
      if (!isas.empty() && llvm::any_of(targets, isOf) && llvm::none_of(isas, isOf))
        return "--isa " + llvm::join(isas, ",") + ": expected one of " +
               std::string(processor.name) +
               ", too: " + llvm::join(formats::instructionSetsOf(processor), " or ");
    }
    return std::nullopt;
  }
  FailureOr<KernelLibrary> kernels(LaunchModule &program, StringRef target,
                                   StringRef kvCache) const override {
    const bool isHalf = isHalfCache(program.module, kvCache);
    program.cacheType = isHalf ? "f16" : "f32";
    return cpuKernels(program.module, {cpu::isaOf(target)}, isHalf);
  }
  void addProgramPass(OpPassManager &pm, ArrayRef<std::string> targets,
                      const recipe::OptionValues &options, StringRef output) const override {
    auto program = recipe::passOptions<EmitProgramOptions>(options);
    if (program.isas.empty())
      program.isas.assign(targets.begin(), targets.end());
    program.output = output.str();
    pm.addPass(createEmitProgram(program));
  }
};
} // namespace

void easyquant::cpu::registerTarget() { targets::registerFamily<CPUFamily>(); }
