//===- AvailableMemory.h - What a process can still get ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_AVAILABLEMEMORY_H
#define EASYQUANT_SUPPORT_AVAILABLEMEMORY_H

#include <cstdint>

namespace easyquant {

/// Bytes that can be had without swapping: what the machine has left, or the control group (v2) at
/// the root of what this process sees. 0: unknown.
int64_t availableMemory();

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_AVAILABLEMEMORY_H
