//===- NothingToDo.cpp - Methods that find no site ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"

using namespace mlir;
using namespace easyquant;

LogicalResult equant::reportNothingToDo(ModuleOp module, const Twine &pass, const Twine &lookedFor,
                                        bool requireSites) {
  int64_t sites = 0, planned = 0;
  module.walk([&](QuantizableOpInterface op) {
    ++sites;
    planned += bool(getPlan(op));
  });
  InFlightDiagnostic diagnostic =
      requireSites ? emitError(module.getLoc()) : emitWarning(module.getLoc());
  diagnostic << pass << ": nothing to do: expected " << lookedFor << "; found " << sites
             << " quantizable ops (lm.linear, and linalg ops that equant-name-sites has named), "
             << planned << " of them with a plan";
  return failure(requireSites);
}

LogicalResult equant::reportNotPlanned(ModuleOp module, StringRef pass, StringRef method,
                                       bool requireSites) {
  return reportNothingToDo(module, pass,
                           "a site whose equant.plan names '" + method +
                               "' (a plan pass before this one, with methods=" + method + ")",
                           requireSites);
}
