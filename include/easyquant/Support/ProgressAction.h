//===- ProgressAction.h - How passes say how far they are -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A long pass announces its steps as MLIR actions. Its driver may listen
// (MLIRContext::registerActionHandler); passes know nothing of bars and terminals.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_PROGRESSACTION_H
#define EASYQUANT_SUPPORT_PROGRESSACTION_H

#include "mlir/IR/Action.h"
#include "mlir/IR/MLIRContext.h"

#include <cstdint>
#include <string>

namespace easyquant {

class ProgressAction : public mlir::tracing::ActionImpl<ProgressAction> {
public:
  ProgressAction(llvm::ArrayRef<mlir::IRUnit> units, std::string phase, int64_t done, int64_t total)
      : ActionImpl(units), phase(std::move(phase)), done(done), total(total) {}
  static constexpr llvm::StringLiteral tag = "easyquant-progress";
  static constexpr llvm::StringLiteral desc = "a step of a long pass";

  /// `done` of `total` steps of `phase` are finished.
  static void report(mlir::MLIRContext *context, llvm::StringRef phase, int64_t done,
                     int64_t total) {
    context->executeAction<ProgressAction>([] {}, {}, phase.str(), done, total);
  }

  std::string phase;
  int64_t done, total;
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_PROGRESSACTION_H
