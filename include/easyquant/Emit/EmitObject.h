//===- EmitObject.h - Kernel-level IR to machine code of CPUs ---*- C++ -*-===//
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

/// Makes the dialect translations that kernels need known to the context.
void registerTranslations(mlir::DialectRegistry &registry);

using Object = llvm::SmallVector<char, 0>;

/// A kernel with all that it calls, public under a name of its own.
struct KernelModule {
  std::string symbol;
  mlir::ModuleOp module; ///< at the end of the one that it was taken from
};

/// Leaves declarations in the place of the kernels that functions of `module` call, in the order of
/// their calls. Their names end with that of the target, since forms of a kernel are linked
/// together. Programs of a model share most of their kernels, and kernels are compiled beside each
/// other.
llvm::SmallVector<KernelModule> takeKernelsApart(mlir::ModuleOp module, const Target &target);

/// Runs buildLowerToLLVMPipeline on a module.
using Lower = llvm::function_ref<mlir::LogicalResult(mlir::ModuleOp)>;

/// Compiles a kernel to a relocatable object, once for all programs of the process that have it.
/// `lower` is not called for code that is kept ($EASYQUANT_CODE_CACHE, docs/guide/compile.md).
/// Errors are diagnostics at the module.
mlir::FailureOr<Object> emitKernel(const KernelModule &kernel, const Target &target, Lower lower);
/// Erases the kernels' modules and compiles the rest of the one that they were taken from.
mlir::FailureOr<Object> emitCallers(mlir::ModuleOp module, llvm::ArrayRef<KernelModule> kernels,
                                    const Target &target, Lower lower);

/// Does all of it, one kernel after the other.
mlir::FailureOr<llvm::SmallVector<Object>> emitObjects(mlir::ModuleOp module, const Target &target,
                                                       Lower lower);

/// Links objects into the shared object `output`. Nothing but LLVM's OpenMP runtime may be left
/// undefined; it is resolved when the artifact is loaded. Errors are diagnostics at `loc`.
mlir::LogicalResult linkSharedObject(mlir::Location loc, llvm::ArrayRef<Object> objects,
                                     llvm::StringRef output);

} // namespace easyquant::cpu

#endif // EASYQUANT_EMIT_EMITOBJECT_H
