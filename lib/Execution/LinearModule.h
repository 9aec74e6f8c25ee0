//===- LinearModule.h - A module of one linear ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Execution and its tests.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXECUTION_LINEARMODULE_H
#define EASYQUANT_LIB_EXECUTION_LINEARMODULE_H

#include "easyquant/Execution/LinearTimer.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace easyquant::execution {

/// As equant-materialize-weights leaves it: a function @forward on a packed weight, whose parts lie
/// one after the other in `weightBytes`. From here on it is compiled as models are.
struct LinearModule {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  int64_t weightBytes = 0;

  static LinearModule of(mlir::Location loc, const TimedLinear &timed);
};

} // namespace easyquant::execution

#endif // EASYQUANT_LIB_EXECUTION_LINEARMODULE_H
