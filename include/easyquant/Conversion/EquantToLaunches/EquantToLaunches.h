//===- EquantToLaunches.h - Models to launches ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOLAUNCHES_EQUANTTOLAUNCHES_H
#define EASYQUANT_CONVERSION_EQUANTTOLAUNCHES_EQUANTTOLAUNCHES_H

#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "mlir/Pass/Pass.h"

namespace easyquant {

/// Is the op computed by the program's caller (LaunchesToLLVM/HostCalls.h)?
bool isHostCall(mlir::Operation *op);

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Conversion/EquantToLaunches/Passes.h.inc"

/// From a model on materialized weights to steps whose buffers are placed: layers in the place of
/// their calls, activations legalized, kernels fused, launches.
void buildLaunchesPipeline(mlir::OpPassManager &pm,
                           const ConvertEquantToLaunchesOptions &options = {});

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOLAUNCHES_EQUANTTOLAUNCHES_H
