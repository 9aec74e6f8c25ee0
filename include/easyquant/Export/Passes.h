//===- Passes.h - Checkpoints for others ------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXPORT_PASSES_H
#define EASYQUANT_EXPORT_PASSES_H

#include "mlir/Pass/Pass.h"

namespace easyquant {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Export/Passes.h.inc"

} // namespace easyquant

#endif // EASYQUANT_EXPORT_PASSES_H
