//===- Passes.h - Passes that run the model ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_METHODS_PASSES_H
#define EASYQUANT_METHODS_PASSES_H

#include "easyquant/Support/Real.h"

#include "mlir/Pass/Pass.h"

namespace easyquant::methods {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Methods/Passes.h.inc"

} // namespace easyquant::methods

#endif // EASYQUANT_METHODS_PASSES_H
