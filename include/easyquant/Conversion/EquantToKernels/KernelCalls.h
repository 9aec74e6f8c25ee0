//===- KernelCalls.h - What the call of a kernel is for ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What `bench --breakdown` and profilers say of a call of a kernel, on CPUs and GPUs alike: the
// site that it is for, and the phase that it counts as.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOKERNELS_KERNELCALLS_H
#define EASYQUANT_CONVERSION_EQUANTTOKERNELS_KERNELCALLS_H

#include "easyquant/Formats/Phase.h"

#include "mlir/IR/Operation.h"

#include <string>

namespace easyquant {

using formats::Phase;

/// The site of an op, "a.q_proj+k_proj" where linears were fused; of an op that is no site its name
/// in the checkpoint, or else that of its kind, "lm.add".
std::string siteOf(mlir::Operation *op);

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOKERNELS_KERNELCALLS_H
