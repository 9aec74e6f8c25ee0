//===- HostCalls.h - What a program asks of its caller ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Some ops of a subgraph of calibration are no kernels: equant.observe hands activations back, and
// the gradients that are products of matrices are computed by lib/Numerics. Such a program calls
// one function that it is given, behind the team, with a context of its own, in one thread while
// the others wait:
//
//      function(context, call, operands)
//
// `call` counts these ops in the order of the module; `operands` are those of the op, then its
// results, whose memory the function writes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_LAUNCHESTOLLVM_HOSTCALLS_H
#define EASYQUANT_CONVERSION_LAUNCHESTOLLVM_HOSTCALLS_H

#include <cstdint>

namespace easyquant {

/// A matrix of f32, or of i32 where the op has tokens or a batch (a row for each eq_sequence); a
/// vector is one row.
struct HostOperand {
  void *data;
  int64_t rows, columns, stride;
};

using HostFunction = void (*)(void *context, int64_t call, const HostOperand *operands);

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_LAUNCHESTOLLVM_HOSTCALLS_H
