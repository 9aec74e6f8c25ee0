//===- SubgraphPass.h - Passes that run subgraphs of the model --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_SUBGRAPHPASS_H
#define EASYQUANT_EXECUTION_SUBGRAPHPASS_H

#include "easyquant/Execution/CompiledSubgraph.h"
#include "easyquant/Recipe/PassOptions.h"

#include "mlir/Pass/Pass.h"

namespace easyquant::execution {

/// A pass on top of the base that TableGen makes of its definition.
template <typename PassBase> class SubgraphPass : public recipe::WithOptionValues<PassBase> {
public:
  using recipe::WithOptionValues<PassBase>::WithOptionValues;

  void getDependentDialects(mlir::DialectRegistry &registry) const override {
    PassBase::getDependentDialects(registry);
    SubgraphCompiler::getDependentDialects(registry);
  }
  void runOnOperation() final {
    if (failed(run()))
      this->signalPassFailure();
  }

protected:
  /// Fails with a diagnostic.
  virtual mlir::LogicalResult run() = 0;
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_SUBGRAPHPASS_H
