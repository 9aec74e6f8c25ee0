//===- Entries.h - How programs are called ----------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An entry opens the one parallel region of a call, in which every thread runs the function that
// was emitted of @forward.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_ENTRIES_H
#define EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_ENTRIES_H

#include "FunctionEmitter.h"

namespace easyquant {

/// name(step: !llvm.ptr) -> i32, of easyquant/Formats/Step.h. Fails with a diagnostic where
/// @forward is not (tokens, position, first row of the logits, cache) -> logits, or a part of that.
mlir::LogicalResult emitStepEntry(Program &program, mlir::func::FuncOp source,
                                  mlir::func::FuncOp body, llvm::StringRef name);

/// name(arguments of `body`, with the number of threads in place of the team), with a C interface.
void emitCallEntry(Program &program, mlir::func::FuncOp body, int64_t teamAt, llvm::StringRef name);

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_EQUANTTOKERNELS_ENTRIES_H
