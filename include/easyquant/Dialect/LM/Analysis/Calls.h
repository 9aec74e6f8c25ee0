//===- Calls.h - Who calls whom in a model ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_ANALYSIS_CALLS_H
#define EASYQUANT_DIALECT_LM_ANALYSIS_CALLS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

namespace easyquant::lm {

/// What everybody asks first who follows the calls of a model: each is of a function of the module
/// that has a body, and none calls itself, directly or through others. Fails with a diagnostic.
mlir::LogicalResult verifyCalls(mlir::ModuleOp module);

/// Whether a function is of the head that drafts: @draft, or a layer that it calls.
bool isOfDraft(mlir::func::FuncOp function);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_ANALYSIS_CALLS_H
