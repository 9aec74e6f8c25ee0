//===- EmitObject.h - Kernel-level IR to x86-64 machine code ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EMIT_EMITOBJECT_H
#define EASYQUANT_EMIT_EMITOBJECT_H

#include "easyquant/Codegen/CPU/Kernels.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/SmallVector.h"

namespace easyquant::cpu {

/// func, scf, memref, vector and arith to the LLVM dialect; scf.parallel becomes an OpenMP region.
void buildLowerToLLVMPipeline(mlir::OpPassManager &pm);

/// Makes the dialect translations that emitObject needs known to the context.
void registerTranslations(mlir::DialectRegistry &registry);

/// How the kernels of a program are compiled.
enum class Kernels {
  /// With what calls them, which LLVM makes use of: in programs that are kept.
  Together,
  /// Each by itself, once for all programs of the process that have it: in those that run once.
  Apart,
};

/// Compiles a module to relocatable objects for `target`: one, or one of each kernel that its
/// functions call and one of the rest. `lower` runs buildLowerToLLVMPipeline on a module, which may
/// be within this one; it is not called for code that is kept ($EASYQUANT_CODE_CACHE,
/// docs/guide/compile.md). Errors are diagnostics at the module.
mlir::FailureOr<llvm::SmallVector<llvm::SmallVector<char, 0>>>
emitObjects(mlir::ModuleOp module, const Target &target, Kernels how,
            llvm::function_ref<mlir::LogicalResult(mlir::ModuleOp)> lower);

/// Links objects into the shared object `output`. Nothing but LLVM's OpenMP runtime may be left
/// undefined; it is resolved when the artifact is loaded. Errors are diagnostics at `loc`.
mlir::LogicalResult linkSharedObject(mlir::Location loc,
                                     llvm::ArrayRef<llvm::SmallVector<char, 0>> objects,
                                     llvm::StringRef output);

} // namespace easyquant::cpu

#endif // EASYQUANT_EMIT_EMITOBJECT_H
