//===- GPUTarget.cpp - The target family of GPUs --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Target/GPU/GPUTarget.h"

#include "easyquant/Codegen/GPU/BlockScaled.h"
#include "easyquant/Codegen/GPU/Experts.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/KernelLibrary/KernelLibrary.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Recipe/PassOptions.h"
#include "easyquant/Target/GPU/Passes.h"
#include "easyquant/Target/Target.h"

using namespace mlir;
using namespace easyquant;
using equant::LayoutAttr;
using equant::SchemeAttr;
using numerics::FragmentOrder;
using targets::ActivationForm;
using targets::Family;
using targets::Readers;
namespace option = recipe::option;

static std::vector<std::string> chipNames() {
  std::vector<std::string> names;
  for (const easyquant::gpu::Chip &chip : easyquant::gpu::chips())
    names.emplace_back(chip.name);
  return names;
}

namespace {
struct GPUFamily final : Family {
  GPUFamily()
      : Family({.name = easyquant::gpu::kFamily.str(),
                .title = "GPUs",
                .names = chipNames(),
                .groups = {},
                .file = {.stem = formats::kGpuWeightsStem, .bf16Floats = true, .wholeLines = true},
                .fusions = {.bf16Results = true,
                            .rotations = true,
                            .splitAttention = true,
                            .attentionCodes = true,
                            .keyBasis = true},
                .expertUnits = {.packed = easyquant::gpu::kExpertUnit,
                                .floats = easyquant::gpu::kExpertFloatUnit}}) {}

  LayoutAttr layoutFor(SchemeAttr weight, Readers readers) const override {
    // What nobody multiplies with may lie in either order, but that of bytes has not all schemes.
    const numerics::Scheme scheme = weight.toNumerics();
    const bool areBytes =
        scheme.hasIntegerValues() && scheme.groupSize % numerics::kFragmentColumns == 0;
    const bool areFloats = readers.floats || (!readers.codes && !areBytes);
    return LayoutAttr::get(
        weight.getContext(),
        numerics::nameOf(areFloats ? FragmentOrder::M16N8K16 : FragmentOrder::M16N8K32));
  }
  ActivationForm activationForm(SchemeAttr weight, SchemeAttr input,
                                StringRef target) const override {
    if (!input)
      return ActivationForm::BF16;
    if (easyquant::gpu::isBlockScaled(weight.toNumerics(), input.toNumerics())) {
      Result<easyquant::gpu::Chip> chip = easyquant::gpu::findChip(target.str());
      return chip && chip->multipliesFP4() ? ActivationForm::Codes : ActivationForm::Rounded;
    }
    if (!input.isInteger())
      return targets::multipliesCodes(weight, input) ? ActivationForm::Codes
                                                     : ActivationForm::Rounded;
    return input.getBits() == 8 ? ActivationForm::Codes : ActivationForm::AsIs;
  }
  bool readsSums(SchemeAttr weight) const override { return !weight.getSymmetric(); }

  std::optional<std::string> checkOptions(const recipe::OptionValues &options,
                                          ArrayRef<std::string>, StringRef) const override {
    return checkCache(options[option::kvCache]);
  }
  FailureOr<KernelLibrary> kernels(LaunchModule &program, StringRef target,
                                   StringRef kvCache) const override {
    if (std::optional<std::string> problem = checkCache(kvCache))
      return program.module.emitError() << *problem;
    program.rowPadding = 16;
    program.cacheType = "f16";
    program.stridedArguments = false;
    OpBuilder b(program.module.getBodyRegion());
    auto kernels = mlir::gpu::GPUModuleOp::create(b, program.module.getLoc(), launch::kKernels);
    return gpuKernels(kernels, easyquant::gpu::chip(easyquant::gpu::findChip(target)->id));
  }
  void addProgramPass(OpPassManager &pm, ArrayRef<std::string> chips,
                      const recipe::OptionValues &options, StringRef output) const override {
    auto program = recipe::passOptions<EmitGPUProgramOptions>(options);
    program.output = output.str();
    program.chips.assign(chips.begin(), chips.end());
    pm.addPass(createEmitGPUProgram(program));
  }

private:
  static std::optional<std::string> checkCache(StringRef kvCache) {
    if (kvCache != "f32")
      return std::nullopt;
    return "kv-cache type 'f32': GPU kernels keep keys and values in f16; expected f16 or auto";
  }
};
} // namespace

void easyquant::gpu::registerTarget() { targets::registerFamily<GPUFamily>(); }
