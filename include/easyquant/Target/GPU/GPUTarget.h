//===- GPUTarget.h - The target family of GPUs ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TARGET_GPU_GPUTARGET_H
#define EASYQUANT_TARGET_GPU_GPUTARGET_H

#include "llvm/ADT/StringRef.h"

namespace easyquant::gpu {

/// The name of the family, and of the module that holds its model where there are several.
inline constexpr llvm::StringLiteral kFamily = "gpu";

/// Adds the family to the registry of targets (easyquant/Target/Target.h).
void registerTarget();

} // namespace easyquant::gpu

#endif // EASYQUANT_TARGET_GPU_GPUTARGET_H
