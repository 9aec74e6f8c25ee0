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

/// Lets the target's module read its constants from the file that was written: a global a tensor
/// with its type and place, read where the constant was, by ops that say the layout. What made the
/// constants, and the globals of the model, are erased.
void readFromFile(TargetWeights &target);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_WEIGHTGLOBALS_H
