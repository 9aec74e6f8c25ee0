//===- LinalgToLM.h - Upstream ops to models --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_LINALGTOLM_LINALGTOLM_H
#define EASYQUANT_CONVERSION_LINALGTOLM_LINALGTOLM_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/Pass.h"

namespace easyquant {

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Conversion/LinalgToLM/Passes.h.inc"

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_LINALGTOLM_LINALGTOLM_H
