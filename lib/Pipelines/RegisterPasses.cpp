//===- RegisterPasses.cpp - Every dialect and pass ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/RegisterPasses.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Conversion/EquantToLaunches/EquantToLaunches.h"
#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"
#include "easyquant/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Conversion/LinalgToLM/LinalgToLM.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Transforms/Passes.h"
#include "easyquant/Dialect/Launch/Transforms/Passes.h"
#include "easyquant/Emit/EmitObject.h"
#include "easyquant/Export/Passes.h"
#include "easyquant/Methods/Passes.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Search/Passes.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Target/CPU/Passes.h"
#include "easyquant/Target/GPU/GPUTarget.h"
#include "easyquant/Target/GPU/Passes.h"
#include "easyquant/Target/Target.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Shard/IR/ShardDialect.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace easyquant {

void registerDialects(DialectRegistry &registry) {
  registry
      .insert<arith::ArithDialect, equant::EquantDialect, func::FuncDialect, launch::LaunchDialect,
              lm::LMDialect, ml_program::MLProgramDialect, shard::ShardDialect>();
  cpu::registerTranslations(registry);
  registerLinalgModels(registry);
}

namespace {
/// The options of convert-equant-to-launches.
struct LaunchesOptions : PassPipelineOptions<LaunchesOptions> {
  const ConvertEquantToLaunchesOptions defaults;
  Option<std::string> target{
      *this, "target",
      llvm::cl::desc("instruction set or chip; docs/Targets.md lists them (default: avx2)"),
      llvm::cl::init(defaults.target)};
  Option<int64_t> maxRows{*this, "max-rows",
                          llvm::cl::desc("most tokens of one call (default: 512)"),
                          llvm::cl::init(defaults.maxRows)};
  Option<std::string> kvCache{*this, "kv-cache",
                              llvm::cl::desc("element type of the KV cache (default: auto)"),
                              llvm::cl::init(defaults.kvCache)};
};

struct GPUPipelineOptions : PassPipelineOptions<GPUPipelineOptions> {
  Option<std::string> target{*this, "target",
                             llvm::cl::desc("chip; docs/Targets.md lists them (default: sm_80)"),
                             llvm::cl::init("sm_80")};
};

struct LinalgOptions : PassPipelineOptions<LinalgOptions> {
  Option<std::string> output{*this, "output",
                             llvm::cl::desc("folder that weights.safetensors is written into"),
                             llvm::cl::init("")};
  Option<std::string> weights{
      *this, "weights",
      llvm::cl::desc("what weights are: arguments, constants or iree (default: arguments)"),
      llvm::cl::init("arguments")};
};
} // namespace

void registerPasses() {
  cpu::registerTarget();
  gpu::registerTarget();
  PassPipelineRegistration<LaunchesOptions>(
      "easyquant-launches", "Turn a model on materialized weights into launches, step by step",
      [](OpPassManager &pm, const LaunchesOptions &options) {
        buildLaunchesPipeline(pm, {options.target, options.maxRows, options.kvCache});
      });
  PassPipelineRegistration<GPUPipelineOptions>(
      "easyquant-gpu-pipeline", "Generate the GPU kernels of a model's ops and lower them to NVVM",
      [](OpPassManager &pm, const GPUPipelineOptions &options) {
        buildLaunchesPipeline(pm, {.target = options.target});
        pm.addPass(createLowerToNVVM({options.target}));
      });
  PassPipelineRegistration<LinalgOptions>(
      "easyquant-linalg", "Turn a quantized model into upstream ops and a weights file",
      [](OpPassManager &pm, const LinalgOptions &options) {
        buildLinalgPipeline(pm, options.output, options.weights);
      });

  equant::registerEquantPasses();
  calibration::registerCalibrationPasses();
  methods::registerMethodsPasses();
  registerEquantToLaunchesPasses();
  registerEquantToLinalgPasses();
  registerLinalgToLMPasses();
  registerLaunchesToLLVMPasses();
  launch::registerLaunchPasses();
  mlir::registerInlinerPass();
  registerGPUToNVVMPasses();
  lm::registerLMPasses();
  registerCPUTargetPasses();
  registerGPUTargetPasses();
  registerExportPasses();
  registerPipelinesPasses();
  search::registerSearchPasses();
}

} // namespace easyquant
