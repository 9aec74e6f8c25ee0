//===- Printf.h - printf and assert of device code ------------ -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_PRINTF_H
#define EASYQUANT_LIB_SIMT_PRINTF_H

#include "DecodedKernel.h"

namespace easyquant::simt {

/// A call of vprintf(format, arguments): one line of output a lane, in their order.
void printFormatted(Warp &, const Instruction &, Mask);
/// A call of __assertfail(condition, file, line, function, size): ends the launch.
void failAssertion(Warp &, const Instruction &, Mask);

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_PRINTF_H
