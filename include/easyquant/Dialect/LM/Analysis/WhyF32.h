//===- WhyF32.h - Linears that decide -------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_ANALYSIS_WHYF32_H
#define EASYQUANT_DIALECT_LM_ANALYSIS_WHYF32_H

#include "mlir/IR/Operation.h"

namespace easyquant::lm {

/// What a linear does for which even 16 bits are few: it decides something, or its errors add up
/// along a text; empty for others. A router in codes sends rows to other experts, as that of
/// clusters does to other tokens.
llvm::StringRef whyF32(mlir::Operation *op);

} // namespace easyquant::lm

#endif // EASYQUANT_DIALECT_LM_ANALYSIS_WHYF32_H
