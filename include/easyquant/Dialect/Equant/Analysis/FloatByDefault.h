//===- FloatByDefault.h - Sites that a scheme leaves alone ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_FLOATBYDEFAULT_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_FLOATBYDEFAULT_H

#include "easyquant/Dialect/Equant/IR/Equant.h"

namespace easyquant::equant {

/// What the site does, for which it stays float unless a rule or `targets` names it; empty for
/// others.
llvm::StringRef whyFloatByDefault(QuantizableOpInterface op);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_FLOATBYDEFAULT_H
