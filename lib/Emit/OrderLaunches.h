//===- OrderLaunches.h - When a kernel begins -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A chip that overlaps launches begins a kernel while the one launched before it still runs: its
// blocks are placed, constants are fetched, and then griddepcontrol.wait holds it until that
// one has ended and what it wrote can be seen. As every kernel waits so, one that has ended was
// preceded by all before it.
//
// No load of anything else may move before the wait. Kernels make their pointers to it behind the
// wait, which holds LLVM; ptxas moves loads of memory that is said to stay as it is (ld.global.nc)
// even over griddepcontrol, so that nothing is said of what is behind.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EMIT_ORDERLAUNCHES_H
#define EASYQUANT_LIB_EMIT_ORDERLAUNCHES_H

#include "mlir/Pass/Pass.h"

#include <memory>

namespace easyquant::gpu {

/// On a gpu.module whose target is known. Where that chip overlaps launches, loads by pointers that
/// are made behind the wait are ordinary ones. Elsewhere the wait goes.
std::unique_ptr<mlir::Pass> createOrderLaunchesPass();

} // namespace easyquant::gpu

#endif // EASYQUANT_LIB_EMIT_ORDERLAUNCHES_H
