//===- GPUProgram.h - A model as a list of launches -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// On a GPU the host's part of a model is data: which kernels are launched, in which order, with
// which arguments. Nothing in it depends on a step but the number of rows, so that a decode step
// can be captured once and replayed. docs/Architecture.md describes it as program.gpu.json.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_GPUKERNELS_GPUPROGRAM_H
#define EASYQUANT_CONVERSION_GPUKERNELS_GPUPROGRAM_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Conversion/EquantToKernels/KernelCalls.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/JSON.h"

namespace easyquant {

/// Where an argument of a kernel comes from.
struct GPUArgument {
  enum Kind {
    Weights,   ///< offset into the data of the weights for GPUs
    Arena,     ///< offset, and `step` bytes for every row before the first logit
    Cache,     ///< offset, and `step` bytes for every token of the capacity
    State,     ///< offset into memory that is zero when a session begins
    Constants, ///< offset into GPUProgram::constants
    Tokens,    ///< ids of this call
    Position,  ///< one int32: tokens before this call
    Held,      ///< one int32: tokens that the session held before it went back to `position`
    Logits,    ///< rows from the first logit on
    Rows,      ///< the number of rows of the launch
    Capacity,  ///< of the cache, in tokens
    Integer,   ///< `integer`
    Scratch,   ///< offset behind the arena's buffers; only while a program is built
  };
  Kind kind = Integer;
  int64_t offset = 0, step = 0;
  int64_t integer = 0;
};

struct GPULaunch {
  std::string site;
  KernelPhase phase = KernelPhase::Other;
  size_t kernel = 0;     ///< of GPUProgram::kernels
  bool lastRows = false; ///< over the rows whose logits are asked for; else all rows of the call
  int64_t minRows = 1;   ///< it happens for so many rows of its own and more,
  int64_t maxRows = 0;   ///< and up to so many; 0: any number
  std::vector<GPUArgument> arguments;
};

struct GPUProgram {
  int64_t maxRows = 0; ///< of one call
  int64_t arenaBytes = 0, stateBytes = 0;
  int64_t cacheBytes = 0, cacheBytesPerToken = 0;
  equant::KVSchemeAttr kvScheme; ///< null: the cache is float
  bool rotatesKeys = false;      ///< as it reads them
  std::vector<uint8_t> constants;
  std::vector<gpu::Description> kernels;
  std::vector<GPULaunch> launches;
  std::vector<GPULaunch> restore; ///< when a session goes back to an earlier position
};

/// The program of a model on weights materialized for GPUs, for calls of at most `maxRows` rows.
/// The kernels that it launches are added to `kernels`. An op without a GPU kernel is an error
/// naming the site.
mlir::FailureOr<GPUProgram> buildGPUProgram(mlir::ModuleOp model, const gpu::Chip &chip,
                                            int64_t maxRows, mlir::gpu::GPUModuleOp kernels);

llvm::json::Object toJSON(const GPUProgram &program);

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_GPUKERNELS_GPUPROGRAM_H
