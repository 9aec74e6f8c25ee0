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

#include "mlir/IR/Operation.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/CodeGen.h"

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace easyquant {

using Code = llvm::SmallVector<char, 0>;

/// What LLVM does before it selects instructions: clean up, as CPU kernels need it, or all of -O2
/// but for vectorizing and unrolling.
enum class Passes { CleanUp, Default };

/// Optimizes the kernels of a module and returns their machine code or assembly text. A target that
/// lacks this kind of code is a diagnostic at `loc`.
mlir::FailureOr<Code> generateCode(mlir::Location loc, llvm::Module &module,
                                   llvm::TargetMachine &machine, Passes passes,
                                   llvm::CodeGenFileType type);

/// Where code is kept: in the folder of $EASYQUANT_CODE_CACHE alone, or in this process, too.
enum class Keep { InFolder, InProcess };

/// What `generate` makes of `module`, which depends on the ops in it and on `target` alone.
///
/// If $EASYQUANT_CODE_CACHE names a folder, code is kept there, and is not generated again.
/// Code of a program that was built again since is not found. llvm::pruneCache removes what was not
/// used for a week. A damaged file is replaced. A folder that cannot be written is a diagnostic at
/// `module`.
mlir::FailureOr<Code> keptCode(mlir::Operation *module, const llvm::Twine &target, Keep keep,
                               llvm::function_ref<mlir::FailureOr<Code>()> generate);

} // namespace easyquant

#endif // EASYQUANT_LIB_EMIT_GENERATECODE_H
