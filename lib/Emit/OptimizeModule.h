//===- OptimizeModule.h - What LLVM does to generated kernels --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Codegen.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_TARGET_OPTIMIZEMODULE_H
#define EASYQUANT_LIB_TARGET_OPTIMIZEMODULE_H

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace easyquant {

/// The kernels are already tiled, unrolled and vectorized: what is left for LLVM is to clean up,
/// keep values in registers and hoist addresses. Its own vectorizers and unrollers would only
/// cost time and undo register tiles.
void optimizeModule(llvm::Module &module, llvm::TargetMachine &machine);

} // namespace easyquant

#endif // EASYQUANT_LIB_TARGET_OPTIMIZEMODULE_H
