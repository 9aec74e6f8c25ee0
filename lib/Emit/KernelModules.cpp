//===- KernelModules.cpp - Kernels apart from what calls them -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Launch/IR/Launch.h"
#include "easyquant/Emit/EmitObject.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace easyquant::cpu {

static bool isKernel(func::FuncOp function) {
  return function.isPrivate() && !function.isExternal() &&
         function->hasAttr(launch::kParametersAttr);
}

/// The functions and constants that a kernel uses, itself first.
static llvm::SetVector<Operation *> closureOf(func::FuncOp kernel, const SymbolTable &symbols) {
  llvm::SetVector<Operation *> closure;
  closure.insert(kernel);
  for (size_t next = 0; next < closure.size(); ++next)
    if (auto uses = SymbolTable::getSymbolUses(closure[next]))
      for (const SymbolTable::SymbolUse &use : *uses)
        if (Operation *used = symbols.lookup(use.getSymbolRef().getRootReference()))
          closure.insert(used);
  return closure;
}

/// What only kernels called.
static void eraseUnusedFunctions(ModuleOp module) {
  bool erased = true;
  while (erased) {
    erased = false;
    for (auto function : llvm::make_early_inc_range(module.getOps<func::FuncOp>()))
      if (function.isPrivate() && SymbolTable::symbolKnownUseEmpty(function, module)) {
        function.erase();
        erased = true;
      }
  }
}

SmallVector<KernelModule> takeKernelsApart(ModuleOp module, const Target &target) {
  SymbolTable symbols(module);
  llvm::SetVector<func::FuncOp> kernels;
  for (auto caller : module.getOps<func::FuncOp>())
    if (!isKernel(caller))
      caller.walk([&](func::CallOp call) {
        auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
        if (callee && isKernel(callee))
          kernels.insert(callee);
      });
  SmallVector<KernelModule> taken;
  for (func::FuncOp kernel : kernels) {
    OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
    KernelModule own{(kernel.getName() + "." + target.name()).str(),
                     ModuleOp::create(builder, kernel.getLoc())};
    builder.setInsertionPointToEnd(own.module.getBody());
    for (Operation *op : closureOf(kernel, symbols))
      builder.clone(*op);
    auto first = cast<func::FuncOp>(own.module.getBody()->front());
    first.setName(own.symbol);
    first.setPublic();
    taken.push_back(std::move(own));
  }
  for (auto [original, own] : llvm::zip_equal(kernels, taken)) {
    func::FuncOp kernel = original;
    for (auto caller : module.getOps<func::FuncOp>())
      (void)SymbolTable::replaceAllSymbolUses(
          kernel.getNameAttr(), StringAttr::get(module.getContext(), own.symbol), caller);
    kernel.setName(own.symbol);
    kernel.eraseBody();
  }
  eraseUnusedFunctions(module);
  return taken;
}

} // namespace easyquant::cpu
