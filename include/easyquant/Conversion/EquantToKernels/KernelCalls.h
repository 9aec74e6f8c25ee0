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

#include "mlir/IR/Operation.h"

#include <string>

namespace easyquant {

/// The numbers are those of the program ABI (docs/Architecture.md). Phases without kernels, loading
/// and waiting, are the runtime's.
enum class KernelPhase { Quantize = 1, Gemm = 2, Attention = 3, Other = 6 };

/// The site of an op, "a.q_proj+k_proj" where linears were fused; of an op that is no site its name
/// in the checkpoint, or else that of its kind, "lm.add".
std::string siteOf(mlir::Operation *op);

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOKERNELS_KERNELCALLS_H
