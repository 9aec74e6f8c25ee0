//===- FitBasis.cpp - Rotated blocks that no rank shares ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ShardDegrees.h"

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Numerics/Hadamard.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_FITBASIS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct FitBasis : equant::impl::FitBasisBase<FitBasis> {
  using FitBasisBase::FitBasisBase;

  void runOnOperation() override {
    FailureOr<Sharing> sharing = checkDegree(getOperation(), degree);
    if (failed(sharing))
      return signalPassFailure();
    auto fitted = getOperation().walk([&](QuantizableOpInterface op) -> WalkResult {
      PlanAttr plan = getPlan(op);
      const int64_t block = plan ? plan.getWeight().getHadamard() : 0;
      if (block == 0 || sharing->linears.lookup(op) != Split::Rows)
        return WalkResult::advance();
      const int64_t columns = lm::columns(op.getActivationOperand().get()) / degree;
      const int64_t fitting = numerics::hadamardBlock(columns, block);
      if (fitting != block && isKept(op, plan))
        return emitError(op.getLoc())
               << "site '" << op.getSite() << "': its codes are rotated in blocks of " << block
               << " columns, and the " << columns << " that a rank has are no whole blocks; "
               << "compile it for fewer ranks, or give a scheme that quantizes anew";
      if (fitting == 0)
        emitRemark(op.getLoc()) << "site '" << op.getSite() << "' stays in the plain basis: the "
                                << columns << " columns that a rank has of it are no whole blocks "
                                << "of " << numerics::kLeastHadamard;
      op->setAttr(kPlanAttr, plan.inBasis(fitting));
      return WalkResult::advance();
    });
    if (fitted.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace
