//===- PlanWeightFile.h - Which tensors the artifact has --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_WEIGHTS_PLANWEIGHTFILE_H
#define EASYQUANT_WEIGHTS_PLANWEIGHTFILE_H

#include "easyquant/Weights/WeightFile.h"

namespace easyquant::equant {

/// The tensors of the files in their order: that of the module's globals, as far as alignment
/// allows (sortForAlignment), and what GPUs alone read behind them. Names are those of the globals;
/// of two that would have the same, the second gets a number. They point into `weights`.
std::vector<FileTensor> planTensors(mlir::ModuleOp module, const ModelWeights &weights,
                                    WeightFiles files);

} // namespace easyquant::equant

#endif // EASYQUANT_WEIGHTS_PLANWEIGHTFILE_H
