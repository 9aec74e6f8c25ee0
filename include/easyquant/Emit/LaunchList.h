//===- LaunchList.h - Steps for GPUs as data --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EMIT_LAUNCHLIST_H
#define EASYQUANT_EMIT_LAUNCHLIST_H

#include "easyquant/Formats/LaunchList.h"

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::gpu {

/// The steps of a module that was converted to launches for a GPU, with their buffers placed, as
/// the runtime reads them. An operand that is nothing that a launch list can say is an error of its
/// launch.
mlir::FailureOr<formats::LaunchList> toLaunchList(mlir::ModuleOp module);

} // namespace easyquant::gpu

#endif // EASYQUANT_EMIT_LAUNCHLIST_H
