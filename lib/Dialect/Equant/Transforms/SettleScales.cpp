//===- SettleScales.cpp - Types of scales by the weights ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SettleScales.h"

#include "easyquant/Support/Parallel.h"
#include "easyquant/Weights/ConstantTensors.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

/// Floats that a thread reads at a time.
static constexpr int64_t kReadFloats = int64_t(1) << 18;

namespace {
/// A site whose scales are looked at.
struct Candidate {
  Operation *op;
  StringRef site;
  PlanAttr plan;
  ConstantTensor weight;
  Result<std::string> misfit = std::string(); ///< what f16 does not hold; empty: it holds all
};
} // namespace

/// What of the scales of all values f16 does not hold. A rule that searches finds smaller ones,
/// which evaluation checks.
static Result<std::string> findMisfit(const Candidate &site, const ConstantReader &reader,
                                      numerics::Scheme scheme) {
  if (auto ok = reader.check(site.weight); !ok)
    return Unexpected(ok.error());
  const int64_t rows = site.weight.shape.front(), columns = site.weight.columns();
  const int64_t step = std::clamp<int64_t>(kReadFloats / columns, 1, rows);
  std::vector<float> values;
  for (int64_t row = 0; row < rows; row += step) {
    const int64_t count = std::min(step, rows - row);
    values.resize(count * columns);
    if (auto done = reader.readRows(site.weight, row, count, values); !done)
      return Unexpected(done.error());
    auto params = numerics::chooseQParams(numerics::ConstMatrix(values.data(), count, columns),
                                          scheme, {numerics::extremesRule(scheme)});
    if (!params && params.error().code == ErrorCode::OutOfRange)
      return params.error().message;
    if (!params)
      return Unexpected(params.error());
  }
  return std::string();
}

LogicalResult easyquant::equant::settleScales(ModuleOp module, ArrayRef<QuantizableOpInterface> ops,
                                              ArrayRef<lm::EmbeddingOp> embeddings) {
  if (!module->hasAttr(lm::kSourceAttr))
    return success();
  ConstantMatcher matcher(module);
  std::vector<Candidate> candidates;
  auto add = [&](Operation *op, StringRef site, PlanAttr plan, Value constant) -> LogicalResult {
    if (!plan || !plan.mayWidenScales() ||
        plan.getScale()) // what is computed, methods have settled
      return success();
    FailureOr<ConstantTensor> weight = matcher.match(op->getLoc(), site, constant);
    if (failed(weight))
      return failure();
    candidates.push_back({op, site, plan, std::move(*weight)});
    return success();
  };
  for (QuantizableOpInterface op : ops)
    if (failed(add(op, op.getSite(), getPlan(op), op.getWeightOperand().get())))
      return failure();
  for (lm::EmbeddingOp op : embeddings)
    if (failed(add(op, embeddingSite(op.getTable()), getPlan(op), op.getTable())))
      return failure();
  if (candidates.empty())
    return success();
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return failure();
  parallelFor(std::ssize(candidates), /*threads=*/0, [&](int64_t i) {
    Candidate &site = candidates[i];
    site.misfit = findMisfit(site, *reader, site.plan.getWeight().toNumerics());
  });
  for (Candidate &site : candidates) {
    if (!site.misfit)
      return emitError(site.op->getLoc())
             << "site '" << site.site << "': " << site.misfit.error().message;
    if (site.misfit->empty())
      continue;
    emitRemark(site.op->getLoc()) << "site '" << site.site
                                  << "': its scales stay f32: " << *site.misfit;
    site.op->setAttr(kPlanAttr, site.plan.withWideScales());
  }
  return success();
}
