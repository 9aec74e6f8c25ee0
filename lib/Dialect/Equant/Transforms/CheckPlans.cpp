//===- CheckPlans.cpp - Can anybody read what is planned? -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptSites.h"
#include "ShardDegrees.h"

#include "easyquant/Dialect/Equant/Analysis/CheckpointSites.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/Codecs/OnnxWeight.h"
#include "easyquant/Target/Target.h"

#include <fmt/format.h>

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
    floats.clear();
    if (failed(findReaders()))
      return signalPassFailure();
    if (degree > 1) {
      FailureOr<Sharing> found = checkDegree(getOperation(), degree);
      if (failed(found))
        return signalPassFailure();
      sharing = std::move(*found);
    }
    auto checked = getOperation().walk([&](Operation *op) {
      if (auto linear = dyn_cast<lm::LinearOp>(op);
          linear && linear.getExperts() && checkExperts(linear).wasInterrupted())
        return WalkResult::interrupt();
      if (auto site = dyn_cast<QuantizableOpInterface>(op)) {
        PlanAttr plan = getPlan(site);
        if (plan && whyNotQuantizable(site, plan).empty())
          return check(op, site.getSite(), site.getFeatures(), plan);
      } else if (auto embedding = dyn_cast<lm::EmbeddingOp>(op)) {
        if (PlanAttr plan = getPlan(embedding))
          return check(op, embeddingSite(embedding.getTable()), shapeOf(embedding.getTable()),
                       plan);
      }
      return WalkResult::advance();
    });
    if (checked.wasInterrupted())
      return signalPassFailure();
    reportDequantized(getOperation(), floats, "a target has no kernel for");
  }

private:
  LogicalResult findReaders() {
    if (!exportFormat.empty()) {
      auto found = formats::findCheckpointFormat(exportFormat.getValue());
      if (!found)
        return getOperation().emitError() << found.error().message;
      format = *found;
      return success();
    }
    auto found = targets::findFamilies(kernelTargets);
    if (!found)
      return getOperation().emitError() << found.error().message;
    families = std::move(*found);
    return success();
  }

  /// Why checkpoints do not hold the plan; empty if they do.
  std::string whyNotStored(Operation *op, StringRef site, int64_t n, int64_t k, PlanAttr plan) {
    if (isa<lm::EmbeddingOp>(op) && !format->isGGUF())
      return whyNoEmbedding(*format);
    if (op->hasAttr(kColumnOrderAttr))
      return "its columns are not in the order of their groups (act-order without static groups), "
             "and " +
             format->name + " is written in that order alone; give a scheme that quantizes anew";
    auto stored = checkpointSite(*format, site, n, k, plan.getWeight(), plan.getInput(),
                                 isKept(op, plan) && !format->isGraph());
    if (!stored)
      return stored.error().message;
    if (!format->isGraph() || opset < 0)
      return "";
    auto said = formats::checkOpset(opset, stored->site);
    return said ? "" : said.error().message;
  }

  static Features shapeOf(Value table) {
    auto type = cast<RankedTensorType>(table.getType());
    return {type.getDimSize(0), type.getDimSize(1)};
  }

  /// Linears of experts, planned or not.
  WalkResult checkExperts(lm::LinearOp op) {
    const bool isPacked = bool(getPlan(cast<QuantizableOpInterface>(op.getOperation())));
    const bool isShared = degree > 1 && sharing.linears.lookup(op) == Split::Columns;
    const int64_t outputs = lm::columns(op.getOutput()) / (isShared ? degree : 1);
    for (const targets::Family *family : families) {
      std::string reason = targets::whyNoExperts(*family, outputs, isPacked);
      if (reason.empty())
        continue;
      emitError(op.getLoc()) << "site '" << op.getSite()
                             << "': " << (isShared ? fmt::format("of {} ranks each: ", degree) : "")
                             << reason;
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  }

  /// Is it to be float where its codes are not taken?
  static bool leaveFloat(Operation *op) {
    if (!op->hasAttr(kIfPossibleAttr))
      return false;
    op->removeAttr(kPlanAttr);
    op->removeAttr(kIfPossibleAttr);
    return true;
  }

  WalkResult check(Operation *op, StringRef site, Features weight, PlanAttr plan) {
    const auto [n, k] = weight;
    if (format) {
      std::string reason = whyNotStored(op, site, n, k, plan);
      if (reason.empty() || leaveFloat(op))
        return WalkResult::advance();
      emitError(op->getLoc()) << "site '" << site << "': " << reason;
      return WalkResult::interrupt();
    }
    for (const targets::Family *family : families) {
      std::string reason = targets::whyNoKernel(*family, n, k, plan.getWeight(), plan.getInput());
      if (reason.empty())
        continue;
      if (leaveFloat(op))
        break;
      if (dequantize && isKept(op, plan)) {
        floats.push_back(site.str());
        for (StringRef planned :
             {kPlanAttr, kInputScaleAttr, kInputZeroPointAttr, kColumnOrderAttr})
          op->removeAttr(planned);
        break;
      }
      emitError(op->getLoc()) << "site '" << site << "': " << reason
                              << targets::otherFamily(*family, n, k, plan.getWeight(),
                                                      plan.getInput())
                              << (isKept(op, plan) ? "; --dequantize makes such sites float" : "");
      return WalkResult::interrupt();
    }
    return WalkResult::advance();
  }

  // One of the two.
  std::vector<const targets::Family *> families;
  const formats::CheckpointFormat *format = nullptr;
  Sharing sharing;                 ///< by several ranks
  SmallVector<std::string> floats; ///< kept sites that have become so
};
} // namespace
