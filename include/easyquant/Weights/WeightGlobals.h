//===- WeightGlobals.h - Globals of the artifact's tensors ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_WEIGHTGLOBALS_H
#define EASYQUANT_WEIGHTS_WEIGHTGLOBALS_H

#include "easyquant/Weights/WeightFile.h"

namespace easyquant::equant {

/// Lets the module read its constants from the files that were written: a global a tensor with its
/// place, read where the constant was. What made the constants, and the globals of the model, are
/// erased. `files` had `tensors`, of `weights`.
void readFromFiles(mlir::ModuleOp module, const ModelWeights &weights,
                   llvm::ArrayRef<FileTensor> tensors, WeightFiles files,
                   const WrittenWeights &written);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTGLOBALS_H
