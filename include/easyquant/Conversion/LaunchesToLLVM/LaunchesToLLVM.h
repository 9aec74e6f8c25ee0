//===- LaunchesToLLVM.h - Steps to programs for CPUs ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_LAUNCHESTOLLVM_LAUNCHESTOLLVM_H
#define EASYQUANT_CONVERSION_LAUNCHESTOLLVM_LAUNCHESTOLLVM_H

#include "mlir/Pass/Pass.h"

namespace easyquant {

/// On a converted module: what the runtime must know to call it, a formats::Manifest::Program.
inline constexpr llvm::StringLiteral kProgramAttr = "equant.program";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Conversion/LaunchesToLLVM/Passes.h.inc"

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_LAUNCHESTOLLVM_LAUNCHESTOLLVM_H
