//===- Host.h - What the simulator takes of the machine it runs on - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_HOST_H
#define EASYQUANT_LIB_SIMT_HOST_H

// Each has a file of its own, which declares the same.
#if defined(__x86_64__)
#include "HostX86.h"
#elif defined(__aarch64__)
#include "HostAArch64.h"
#endif

#endif // EASYQUANT_LIB_SIMT_HOST_H
