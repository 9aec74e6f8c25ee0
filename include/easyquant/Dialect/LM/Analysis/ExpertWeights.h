//===- ExpertWeights.h - What weighs experts --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_ANALYSIS_EXPERTWEIGHTS_H
#define EASYQUANT_DIALECT_LM_ANALYSIS_EXPERTWEIGHTS_H

#include "mlir/IR/Value.h"

namespace easyquant::lm {

/// Are these the numbers by which rows choose experts, perhaps times another, or gates of a shared
/// one?
bool weighExperts(mlir::Value numbers);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_ANALYSIS_EXPERTWEIGHTS_H
