//===- HostOperations.h - Ops that lib/Numerics computes --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_HOSTOPERATIONS_H
#define EASYQUANT_LIB_CALIBRATION_HOSTOPERATIONS_H

#include "easyquant/Calibration/Subgraph.h"

namespace easyquant::calibration {

/// What the op computes, on its operands and results as HostCalls.h lays them out.
HostOperation hostOperation(mlir::Operation *op);

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_HOSTOPERATIONS_H
