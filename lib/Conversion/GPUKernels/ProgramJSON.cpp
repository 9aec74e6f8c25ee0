//===- ProgramJSON.cpp - Launch lists as JSON -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What lib/Runtime/GpuProgram.cpp reads; docs/Architecture.md describes it.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/GPUKernels/GPUProgram.h"

#include "llvm/ADT/StringExtras.h"

using namespace easyquant;
namespace json = llvm::json;

static llvm::StringRef nameOf(GPUArgument::Kind kind) {
  switch (kind) {
  case GPUArgument::Weights:
    return "weights";
  case GPUArgument::Arena:
  case GPUArgument::Scratch:
    return "arena";
  case GPUArgument::Cache:
    return "cache";
  case GPUArgument::State:
    return "state";
  case GPUArgument::Constants:
    return "constants";
  case GPUArgument::Tokens:
    return "tokens";
  case GPUArgument::Position:
    return "position";
  case GPUArgument::Held:
    return "held";
  case GPUArgument::Logits:
    return "logits";
  case GPUArgument::Rows:
    return "rows";
  case GPUArgument::Capacity:
    return "capacity";
  case GPUArgument::Integer:
    return "i32";
  }
  llvm_unreachable("every kind is named");
}

static llvm::StringRef nameOf(KernelPhase phase) {
  switch (phase) {
  case KernelPhase::Quantize:
    return "quantize";
  case KernelPhase::Gemm:
    return "gemm";
  case KernelPhase::Attention:
    return "attention";
  case KernelPhase::Other:
    return "other";
  }
  llvm_unreachable("every phase is named");
}

/// ["arena", offset, step]; zeros at the end are left out.
static json::Value toJSON(const GPUArgument &argument) {
  json::Array value{nameOf(argument.kind)};
  if (argument.kind == GPUArgument::Integer)
    value.push_back(argument.integer);
  if (argument.offset != 0 || argument.step != 0)
    value.push_back(argument.offset);
  if (argument.step != 0)
    value.push_back(argument.step);
  return value;
}

static json::Value toJSON(const easyquant::gpu::Description &kernel) {
  json::Array parameters, grid;
  for (const easyquant::gpu::Parameter &parameter : kernel.parameters)
    parameters.push_back(parameter.kind == easyquant::gpu::Parameter::Pointer ? "pointer"
                         : parameter.kind == easyquant::gpu::Parameter::I32   ? "i32"
                                                                              : "f32");
  for (const easyquant::gpu::Extent &extent : kernel.grid)
    grid.push_back(json::Array{extent.factor, extent.rowsPerBlock});
  return json::Object{{"name", kernel.name},
                      {"parameters", std::move(parameters)},
                      {"grid", std::move(grid)},
                      {"threads", static_cast<int64_t>(kernel.threads)},
                      {"shared_bytes", kernel.sharedBytes}};
}

static json::Value toJSON(const std::vector<GPULaunch> &launches) {
  json::Array list;
  for (const GPULaunch &launch : launches) {
    json::Array arguments;
    for (const GPUArgument &argument : launch.arguments)
      arguments.push_back(toJSON(argument));
    list.push_back(json::Object{{"site", launch.site},
                                {"phase", nameOf(launch.phase)},
                                {"kernel", static_cast<int64_t>(launch.kernel)},
                                {"last_rows", launch.lastRows},
                                {"min_rows", launch.minRows},
                                {"max_rows", launch.maxRows},
                                {"arguments", std::move(arguments)}});
  }
  return list;
}

json::Object easyquant::toJSON(const GPUProgram &program) {
  json::Array kernels;
  for (const easyquant::gpu::Description &kernel : program.kernels)
    kernels.push_back(::toJSON(kernel));
  return json::Object{
      {"max_rows", program.maxRows},
      {"arena_bytes", program.arenaBytes},
      {"state_bytes", program.stateBytes},
      {"cache_bytes", program.cacheBytes},
      {"cache_bytes_per_token", program.cacheBytesPerToken},
      {"constants", llvm::toHex(llvm::ArrayRef(program.constants), /*LowerCase=*/true)},
      {"kernels", std::move(kernels)},
      {"launches", ::toJSON(program.launches)},
      {"restore", ::toJSON(program.restore)},
  };
}
