//===- ProfilerHook.h - Announcing kernel calls to a profiler ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A program that is compiled to be measured calls a function that it is given before every kernel,
// with the phase and the site that the kernel is for (docs/Architecture.md, "The program ABI"). A
// program that is given none pays a branch a kernel.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_LAUNCHESTOLLVM_PROFILERHOOK_H
#define EASYQUANT_LIB_CONVERSION_LAUNCHESTOLLVM_PROFILERHOOK_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/StringMap.h"

namespace easyquant {

/// The calls of the hook in one module.
class ProfilerHook {
public:
  explicit ProfilerHook(mlir::SymbolTable &symbols) : symbols(symbols) {}

  /// Emits function(context, phase, site) unless `function` is null when the program runs.
  void emit(mlir::ImplicitLocOpBuilder &b, mlir::Value function, mlir::Value context, int64_t phase,
            llvm::StringRef site);

private:
  mlir::func::FuncOp getOrEmitCall(mlir::ImplicitLocOpBuilder &b);
  /// A constant of the module that ends with a zero byte; one for each site.
  mlir::LLVM::GlobalOp getOrEmitText(mlir::ImplicitLocOpBuilder &b, llvm::StringRef site);

  mlir::SymbolTable &symbols;
  mlir::func::FuncOp callee;
  llvm::StringMap<mlir::LLVM::GlobalOp> texts;
};

} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_LAUNCHESTOLLVM_PROFILERHOOK_H
