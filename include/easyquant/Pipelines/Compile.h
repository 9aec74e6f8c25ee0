//===- Compile.h - The pipeline behind easyquant-compile --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What easyquant-compile does to an imported model is a pass pipeline. --dump-pipeline prints the
// very pass manager that the driver runs, so nothing can hide in it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PIPELINES_COMPILE_H
#define EASYQUANT_PIPELINES_COMPILE_H

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Recipe/OptionValues.h"

#include "mlir/Pass/PassManager.h"

namespace easyquant {

/// Takes from the recipe file, if the options name one, the options of methods and of the KV cache
/// that were not given. Says what is wrong with it, if anything.
std::optional<std::string> takeFromRecipe(recipe::OptionValues &options);
/// Without a recipe, gives options the defaults that they have where there is calibration text
/// (option tokensFile, or withText of a dry run): mixes the method awq+signround, the weight
/// observer hessian-diagonal for integers in groups or beside float activations that are rounded to
/// nearest, by gptq or by signround, awq or nothing having transformed them; and for
/// NVFP4A16 to nearest.
void takeCalibratedDefaults(recipe::OptionValues &options);
/// With a format of checkpoints to export, gives options that were not given values that all of its
/// clients take: W4A16, the plain basis, a float head, f16 scales beside float activations; where
/// it is GGUF, Q4_0 and a head of Q8_0. A recipe says these itself. To be called before
/// takeCalibratedDefaults.
void takeExportDefaults(recipe::OptionValues &options);
/// Gives a group size that was not given one that divides what the model's linears read, where a
/// checkpoint is exported. Says what the format does not hold of this model, if anything.
std::optional<std::string> fitExport(recipe::OptionValues &options,
                                     const formats::ModelConfig &config);
/// What is wrong with the values, the method, the recipe file or the target, if anything. What
/// depends on the model is the passes' own to check.
std::optional<std::string> checkOptions(const recipe::OptionValues &options);
/// What needs calibration text while there is none, if anything, and the option that gives it,
/// `remedy`. This function and all below take options that checkOptions has nothing to say about.
std::optional<std::string> checkTokens(const recipe::OptionValues &options, llvm::StringRef remedy);
/// Why what is compiled goes without the head that drafts tokens; empty: it does not.
std::string whyNoDraftHead(const recipe::OptionValues &options);
/// recipe::choicesOf, and the names of targets.
std::vector<std::string> legalNames(const recipe::OptionInfo &option);

/// Calibrates, plans, and quantizes.
void buildQuantizePipeline(mlir::OpPassManager &pm, const recipe::OptionValues &options);
/// Writes the weights into the folder `output`.
void buildMaterializePipeline(mlir::OpPassManager &pm, const recipe::OptionValues &options,
                              llvm::StringRef output);
/// Writes the programs, for CPUs and for GPUs.
void buildProgramPipeline(mlir::OpPassManager &pm, const recipe::OptionValues &options,
                          llvm::StringRef output);
/// The two before, and the manifest: what is behind quantization. Or the checkpoint that is to be
/// exported.
void buildArtifactPipeline(mlir::OpPassManager &pm, const recipe::OptionValues &options,
                           llvm::StringRef output);
/// All of these: what is after import.
void buildCompilePipeline(mlir::OpPassManager &pm, const recipe::OptionValues &options,
                          llvm::StringRef output);
/// Up to and with the phase after which the IR is to be seen (option emitIRAfter).
void buildPipelineUntilPhase(mlir::OpPassManager &pm, const recipe::OptionValues &options,
                             llvm::StringRef output);
/// Plans, transforms weights, and searches formats: `search` are the options of
/// equant-search-bitwidths. Fails with a diagnostic on one that it has not.
mlir::LogicalResult buildSearchPipeline(mlir::OpPassManager &pm,
                                        const recipe::OptionValues &options,
                                        llvm::StringRef search);
/// Plans the sites and prints what would become of them, and by which passes; nothing is computed
/// or written.
void buildDryRunPipeline(mlir::OpPassManager &pm, const recipe::OptionValues &options);

} // namespace easyquant

#endif // EASYQUANT_PIPELINES_COMPILE_H
