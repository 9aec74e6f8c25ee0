//===- Passes.h - Passes over steps -----------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LAUNCH_TRANSFORMS_PASSES_H
#define EASYQUANT_DIALECT_LAUNCH_TRANSFORMS_PASSES_H

#include "easyquant/Dialect/Launch/IR/Launch.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

namespace easyquant::launch {

#define GEN_PASS_DECL
#include "easyquant/Dialect/Launch/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "easyquant/Dialect/Launch/Transforms/Passes.h.inc"

} // namespace easyquant::launch

#endif // EASYQUANT_DIALECT_LAUNCH_TRANSFORMS_PASSES_H
