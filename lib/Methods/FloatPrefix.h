//===- FloatPrefix.h - Layers trained on what the float model has them see -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Methods that train a layer see activations of the float model, and those behind a layer are what
// it is to give: the hidden states before and after it are all that they need. Private to
// lib/Methods.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_FLOATPREFIX_H
#define EASYQUANT_LIB_CALIBRATION_FLOATPREFIX_H

#include "easyquant/Methods/MethodRun.h"
#include "easyquant/Methods/RoundedSites.h"
#include "easyquant/Numerics/Lkd.h"

namespace easyquant::methods {

using namespace execution;

/// Trains the weights of a layer: what distill and learnRounding do.
using LayerTrainer = llvm::function_ref<Result<numerics::TrainedWeights>(
    numerics::DifferentiableLayer &layer, std::span<const numerics::TrainedSite> sites,
    std::span<const numerics::ConstMatrix> targets)>;

/// Trains the sites of all layers whose plans name `method`, those of an earlier run left out, and
/// writes and declares what comes of it. A remark says by how much the error of each layer's output
/// fell. Fails with a diagnostic.
mlir::LogicalResult trainLayers(mlir::ModuleOp module, MethodRun &run, llvm::StringRef method,
                                LayerTrainer train);

} // namespace easyquant::methods

#endif // EASYQUANT_LIB_CALIBRATION_FLOATPREFIX_H
