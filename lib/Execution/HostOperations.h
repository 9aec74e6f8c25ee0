//===- HostOperations.h - Ops that lib/Numerics computes --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Execution.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EXECUTION_HOSTOPERATIONS_H
#define EASYQUANT_LIB_EXECUTION_HOSTOPERATIONS_H

#include "easyquant/Execution/Subgraph.h"

namespace easyquant::execution {

/// What the op computes, on its operands and results as HostCalls.h lays them out.
HostOperation hostOperation(mlir::Operation *op);

/// What an equant.round_activation computes by a scheme; null: it copies.
HostOperation roundingBy(equant::SchemeAttr scheme);

} // namespace easyquant::execution

#endif // EASYQUANT_LIB_EXECUTION_HOSTOPERATIONS_H
