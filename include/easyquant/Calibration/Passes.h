//===- Passes.h - Passes that run the model ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_PASSES_H
#define EASYQUANT_CALIBRATION_PASSES_H

#include "easyquant/Support/Real.h"

#include "mlir/Pass/Pass.h"

namespace easyquant::calibration {

/// The tokens file that equant-take-windows writes into the work folder.
inline constexpr llvm::StringLiteral kWindowsFile = "windows.safetensors";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Calibration/Passes.h.inc"

} // namespace easyquant::calibration

#endif // EASYQUANT_CALIBRATION_PASSES_H
