//===- KernelTimes.h - What formats take to decode --------------*- C++ -*-===//
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

/// Fills the milliseconds of a space: of each candidate those of its sites' kernels for one token
/// on this machine's CPU, and those of the planned linears that are not searched. Kernels of equal
/// shape and scheme are measured once. With a run the times go into a file of its work folder, from
/// which a later one with the same kernels takes them, so that it chooses the same; of several
/// ranks the first one measures. `progress` is called with the number of kernels done and of all.
/// Fails with a diagnostic.
mlir::LogicalResult
measureKernelTimes(mlir::ModuleOp module, SearchSpace &space, unsigned threads,
                   const methods::MethodRun *run,
                   llvm::function_ref<void(int64_t done, int64_t all)> progress);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_KERNELTIMES_H
