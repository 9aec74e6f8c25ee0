//===- InPlace.h - What may be overwritten ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_ANALYSIS_INPLACE_H
#define EASYQUANT_DIALECT_LM_ANALYSIS_INPLACE_H

#include "mlir/IR/Operation.h"

namespace easyquant::lm {

/// May `op` leave a result in the memory of `value`, which it reads? Not where `value` is an
/// argument of the function, whose memory is the caller's, and not where anything behind `op` in
/// its block reads `value` or what it shares memory with through views.
bool mayOverwrite(mlir::Operation *op, mlir::Value value);

/// Are the two parts of one split, or updates of such parts in place, of which `behind` is the one
/// behind `value`?
bool areSideBySide(mlir::Value value, mlir::Value behind);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_ANALYSIS_INPLACE_H
