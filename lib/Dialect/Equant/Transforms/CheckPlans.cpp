//===- CheckPlans.cpp - Do targets have kernels for plans? ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Target/Target.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_CHECKPLANS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct CheckPlans : equant::impl::CheckPlansBase<CheckPlans> {
  using CheckPlansBase::CheckPlansBase;

  void runOnOperation() override {
    Result<std::vector<const targets::Family *>> found = targets::findFamilies(kernelTargets);
    if (!found) {
      getOperation().emitError() << found.error().message;
      return signalPassFailure();
    }
    families = std::move(*found);
    auto checked = getOperation().walk([&](Operation *op) {
      if (auto site = dyn_cast<QuantizableOpInterface>(op)) {
        PlanAttr plan = getPlan(site);
        if (plan && whyNotQuantizable(site, plan).empty())
          return check(op, site.getSite(), site.getWeightOperand().get(), plan);
      } else if (auto embedding = dyn_cast<lm::EmbeddingOp>(op)) {
        if (PlanAttr plan = getPlan(embedding))
          return check(op, embeddingSite(embedding.getTable()), embedding.getTable(), plan);
      }
      return WalkResult::advance();
    });
    if (checked.wasInterrupted())
      signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  WalkResult check(Operation *op, StringRef site, Value weight, PlanAttr plan) {
    auto type = cast<RankedTensorType>(weight.getType());
    const int64_t n = type.getDimSize(0), k = type.getDimSize(1);
    for (const targets::Family *family : families) {
      std::string reason = targets::whyNoKernel(*family, n, k, plan.getWeight(), plan.getInput());
      if (reason.empty())
        continue;
      emitError(op->getLoc()) << "site '" << site << "': " << reason
                              << targets::otherFamily(*family, n, k, plan.getWeight(),
                                                      plan.getInput());
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  }

  std::vector<const targets::Family *> families;
};
} // namespace
