//===- Passes.h - Quantization passes ---------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Passes.td documents them; docs/Passes.md is made from it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES_H
#define EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Support/Real.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace easyquant::equant {

#define GEN_PASS_DECL
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"

#define GEN_PASS_REGISTRATION
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_TRANSFORMS_PASSES_H
