//===- Calls.cpp - Who calls whom in a model ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/LM/Analysis/Calls.h"

#include "easyquant/Dialect/LM/IR/LM.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;
using namespace easyquant;

namespace {

class CallVerifier {
public:
  explicit CallVerifier(ModuleOp module) : symbols(module) {}

  /// Follows the calls of `root`, depth first; a chain of calls may be long, so not by recursion.
  LogicalResult visit(func::FuncOp root) {
    SmallVector<std::pair<func::FuncOp, SmallVector<func::CallOp>>> chain;
    auto enter = [&](func::FuncOp function) {
      SmallVector<func::CallOp> calls;
      function.walk([&](func::CallOp call) { calls.push_back(call); });
      chain.push_back({function, std::move(calls)});
    };
    if (!done.contains(root))
      enter(root);
    while (!chain.empty()) {
      auto &[function, calls] = chain.back();
      if (calls.empty()) {
        done.insert(function);
        chain.pop_back();
        continue;
      }
      func::CallOp call = calls.pop_back_val();
      auto callee = symbols.lookup<func::FuncOp>(call.getCallee());
      if (!callee || callee.isExternal())
        return call.emitOpError("calls @")
               << call.getCallee() << ", which is no function with a body in this module";
      auto caller = llvm::find_if(chain, [&](auto &link) { return link.first == callee; });
      if (caller != chain.end()) {
        InFlightDiagnostic diagnostic = call.emitOpError("makes a function call itself: ");
        for (auto &link : llvm::make_range(caller, chain.end()))
          diagnostic << "@" << link.first.getSymName() << " -> ";
        return diagnostic << "@" << callee.getSymName()
                          << "; expected @forward to call layers, and layers to call nothing that "
                             "calls them";
      }
      if (!done.contains(callee))
        enter(callee);
    }
    return success();
  }

private:
  SymbolTable symbols;
  llvm::DenseSet<Operation *> done;
};

} // namespace

LogicalResult lm::verifyCalls(ModuleOp module) {
  CallVerifier verifier(module);
  for (auto function : module.getOps<func::FuncOp>())
    if (failed(verifier.visit(function)))
      return failure();
  return success();
}

bool lm::isOfDraft(func::FuncOp function) {
  if (function.getSymName() == kDraft)
    return true;
  auto module = function->getParentOfType<ModuleOp>();
  auto draft = module ? module.lookupSymbol<func::FuncOp>(kDraft) : func::FuncOp();
  return draft && llvm::any_of(draft.getOps<func::CallOp>(), [&](func::CallOp call) {
           return call.getCallee() == function.getSymName();
         });
}
