//===- InsertObservers.cpp - Observe what quantizable ops read ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/SitePatterns.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Dialect/LM/Analysis/Calls.h"
#include "easyquant/Numerics/SiteStatistics.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_INSERTOBSERVERS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {
struct InsertObservers : equant::impl::InsertObserversBase<InsertObservers> {
  using InsertObserversBase::InsertObserversBase;
  void runOnOperation() override;
};
} // namespace

void InsertObservers::runOnOperation() {
  ModuleOp module = getOperation();
  auto onModule = [&] { return emitError(module.getLoc()); };
  SmallVector<StringRef> names;
  for (const std::string &name : *statistics) {
    if (!numerics::isStatistic(name)) {
      onModule() << "unknown statistic '" << name << "'; legal are "
                 << numerics::SiteStatistics::names();
      return signalPassFailure();
    }
    if (!llvm::is_contained(names, name))
      names.push_back(name);
  }
  if (names.empty())
    names = {"absmax", "minmax"};

  SmallVector<QuantizableOpInterface> ops;
  SmallVector<StringRef> known;
  bool observed = false;
  module.walk([&](Operation *op) {
    observed |= isa<ObserveOp>(op);
    // Others are of no model that text could be run through.
    if (auto site = dyn_cast<QuantizableOpInterface>(op);
        site && isa<lm::LinearOp>(op) && !lm::isOfDraft(op->getParentOfType<func::FuncOp>())) {
      ops.push_back(site);
      known.push_back(site.getSite());
    }
  });
  if (observed) {
    onModule() << "module is observed already: it has equant.observe ops";
    return signalPassFailure();
  }
  FailureOr<SitePatterns> chosen = SitePatterns::get(*sites, known, "sites", onModule);
  if (failed(chosen))
    return signalPassFailure();

  OpBuilder builder(&getContext());
  for (QuantizableOpInterface op : ops) {
    SmallVector<QuantizableOpInterface> sharers = getInputSharers(op);
    if (sharers.front() != op)
      continue; // the first of them speaks for all
    SmallVector<StringRef> observing;
    for (QuantizableOpInterface sharer : sharers)
      if (sites.empty() || chosen->contains(sharer.getSite()))
        observing.push_back(sharer.getSite());
    if (observing.empty())
      continue;
    Value offsets = cast<lm::LinearOp>(op.getOperation()).getExperts();
    SmallVector<StringRef> asked = names;
    if (offsets)
      llvm::erase_if(asked, [](StringRef name) { return !numerics::isOfExperts(name); });
    if (asked.empty())
      continue;
    Value order = lm::rowOrder(offsets);
    if (offsets && !order) {
      emitError(op.getLoc()) << "site '" << op.getSite()
                             << "': its experts cannot be observed: no lm.route gives their rows";
      return signalPassFailure();
    }
    builder.setInsertionPoint(op);
    ObserveOp::create(builder, op.getLoc(), op.getActivationOperand().get(), order, offsets,
                      builder.getStrArrayAttr(observing), builder.getStrArrayAttr(asked));
  }
}
