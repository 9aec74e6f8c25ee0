//===- NothingToDo.h - Methods that find no site ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_NOTHINGTODO_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_NOTHINGTODO_H

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::equant {

/// What the pass of a method says when it leaves the module as it is: what it looked for, and what
/// there is. A warning; with the option require-sites an error, and then failure.
mlir::LogicalResult reportNothingToDo(mlir::ModuleOp module, const mlir::Twine &pass,
                                      const mlir::Twine &lookedFor, bool requireSites);

/// The same of a pass that works at the sites whose plan names `method`.
mlir::LogicalResult reportNotPlanned(mlir::ModuleOp module, llvm::StringRef pass,
                                     llvm::StringRef method, bool requireSites);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_NOTHINGTODO_H
