//===- Passes.h - Passes over models ----------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES_H
#define EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES_H

#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace easyquant::lm {

#define GEN_PASS_DECL
#include "easyquant/Dialect/LM/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "easyquant/Dialect/LM/Transforms/Passes.h.inc"

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_TRANSFORMS_PASSES_H
