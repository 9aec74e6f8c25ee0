//===- GenerateCode.h - What LLVM makes of generated kernels ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Emit.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EMIT_GENERATECODE_H
#define EASYQUANT_LIB_EMIT_GENERATECODE_H

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CodeGen.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace easyquant {

/// Optimizes the kernels of a module and returns their machine code or assembly text.
///
/// If $EASYQUANT_CODE_CACHE names a folder, code is kept there by the content of the module, and
/// is not generated again; llvm::pruneCache removes what was not used for a week. A damaged file
/// is replaced. Errors are diagnostics at `loc`: a target that lacks this kind of code, a folder
/// that cannot be written.
mlir::FailureOr<llvm::SmallVector<char, 0>> generateCode(mlir::Location loc, llvm::Module &module,
                                                         llvm::TargetMachine &machine,
                                                         llvm::CodeGenFileType type);

} // namespace easyquant

#endif // EASYQUANT_LIB_EMIT_GENERATECODE_H
