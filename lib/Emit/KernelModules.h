//===- KernelModules.h - Kernels apart from what calls them -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Subgraphs of a model share most of their kernels. Each kernel in a module of its own is compiled
// once for all of them. Private to lib/Emit.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_EMIT_KERNELMODULES_H
#define EASYQUANT_LIB_EMIT_KERNELMODULES_H

#include "mlir/IR/BuiltinOps.h"

namespace easyquant::cpu {

/// A kernel with all that it calls, public under a name of its own.
struct KernelModule {
  std::string symbol;
  mlir::ModuleOp module; ///< at the end of the one that it was taken from
};

/// Leaves declarations in the place of the kernels that functions of `module` call, in the order of
/// their calls. Names end with `suffix`, since forms of a kernel are linked together.
llvm::SmallVector<KernelModule> takeKernelsApart(mlir::ModuleOp module, llvm::StringRef suffix);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_EMIT_KERNELMODULES_H
