//===- KernelTimes.h - What formats take of time ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_KERNELTIMES_H
#define EASYQUANT_LIB_SEARCH_KERNELTIMES_H

#include "SearchSpace.h"

#include "easyquant/Methods/MethodRun.h"

namespace easyquant::search {

/// Whether the target is code for this machine's processor. What is timed then is the best
/// instruction set that the CPU has.
bool canTimeKernels(const targets::Family &family, llvm::StringRef target);

/// Fills the milliseconds of these stages of a space. A candidate takes as long as the kernels of
/// its sites do on this machine's CPU, sites that become one linear as one; so do the planned
/// linears that are not searched. A prefill asks the output head for one row. Equal kernels are
/// measured once. With a run the times of each stage go into a file of its work folder. A later run
/// with the same kernels takes them from there, so that it chooses the same. The first of several
/// ranks measures. `progress` gets the numbers of kernels done and of all kernels. Fails with a
/// diagnostic.
mlir::LogicalResult
measureKernelTimes(mlir::ModuleOp module, SearchSpace &space,
                   llvm::ArrayRef<numerics::Stage> stages, unsigned threads,
                   const methods::MethodRun *run,
                   llvm::function_ref<void(int64_t done, int64_t all)> progress);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_KERNELTIMES_H
