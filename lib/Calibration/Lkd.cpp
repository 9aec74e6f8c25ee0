//===- Lkd.cpp - Distill layer by layer -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layers see activations of the float model, and those behind a layer are what it is to give: the
// hidden states before and after it are all that distillation needs.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Lkd.h"

#include "DecoderMatch.h"
#include "MethodRun.h"
#include "SlicePass.h"

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Calibration/RoundedSites.h"
#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Support/ProgressAction.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"

namespace easyquant::calibration {
#define GEN_PASS_DEF_LKD
#include "easyquant/Calibration/Passes.h.inc"
} // namespace easyquant::calibration

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using formats::ComputedConstants;
using numerics::ConstMatrix;
using numerics::QuantizedMatrix;

namespace {

constexpr llvm::StringLiteral kLkd = "lkd";

struct Lkd : SlicePass<calibration::impl::LkdBase<Lkd>> {
  using SlicePass::SlicePass;
  LogicalResult run() override;
};

} // namespace

/// Puts what was trained for rows of a site below what was trained for those above.
static void append(QuantizedMatrix &site, QuantizedMatrix part) {
  if (site.rows == 0) {
    site = std::move(part);
    return;
  }
  site.rows += part.rows;
  site.params.rows += part.params.rows;
  llvm::append_range(site.codes, part.codes);
  llvm::append_range(site.params.scales, part.params.scales);
  llvm::append_range(site.params.zeroPoints, part.params.zeroPoints);
}

static LogicalResult distillLayer(LayerRunner &runner, func::FuncOp layer,
                                  ArrayRef<PlannedSite> sites, const HiddenStates &before,
                                  const HiddenStates &after, const numerics::LkdOptions &options,
                                  QuantizedWeights &codes) {
  FailureOr<DecoderMatch> match = matchDecoder(layer);
  if (failed(match))
    return failure();
  FailureOr<DecoderValues> values =
      DecoderValues::read(*match, runner.constants(), runner.tokens().maxLength());
  if (failed(values))
    return failure();
  std::vector<numerics::LkdSite> trained;
  SmallVector<PlannedSite> owners;
  for (auto [index, linear] : llvm::enumerate(match->linears))
    for (const PlannedSite &site : sites) {
      lm::LinearOp op = linear.op;
      if (!op || site.weight() != op.getWeight())
        continue;
      if (linear.rows != cast<RankedTensorType>(site.weight().getType()).getDimSize(0) &&
          site.scheme().granularity == numerics::Granularity::Tensor)
        return emitError(site.loc())
               << "site '" << site.name()
               << "' makes queries, keys and values, which are trained one by "
                  "one and cannot share a scale; ask for one per channel";
      trained.push_back({numerics::DecoderLinear(index), site.scheme(), site.rule()});
      owners.push_back(site);
    }
  std::vector<ConstMatrix> inputs, targets;
  for (int64_t i = 0; i < before.samples(); ++i) {
    inputs.push_back(before.sample(i));
    targets.push_back(after.sample(i));
  }
  auto result = numerics::distill(match->shape, values->weights, trained, inputs, targets, options);
  if (!result)
    return emitError(layer.getLoc())
           << "function '" << layer.getSymName() << "': " << result.error().message;
  emitRemark(layer.getLoc()) << "function '" << layer.getSymName()
                             << "': error of the output on held-out samples " << result->before
                             << " before, " << result->after << " after distillation";
  for (auto [site, weight] : llvm::zip_equal(owners, result->weights))
    append(codes[site.weight()], std::move(weight));
  return success();
}

LogicalResult Lkd::run() {
  ModuleOp module = getOperation();
  if (!isPlanned(module, kLkd))
    return equant::reportNotPlanned(module, getArgument(), kLkd, requireSites);
  FailureOr<MethodRun> opened =
      MethodRun::open(module, {kLkd,
                               fmt::format("lkd 2 epochs={} learning-rate={:a}", epochs.getValue(),
                                           learningRate.getValue()),
                               tokensFile, workFolder, threads});
  if (failed(opened))
    return failure();
  MethodRun &run = *opened;
  equant::recordOptions(module, optionValues(), kLkd);
  LayerRunner &runner = run.runner();
  const numerics::LkdOptions options{.epochs = epochs,
                                     .learningRate = learningRate,
                                     .skippedRows = runner.tokens().skipped(),
                                     .threads = threads};
  auto isDone = [&](int64_t i) { return sitesNaming(run.layer(i), kLkd).empty() || run.has(i); };

  if (int64_t missing = run.layersToRun(isDone)) {
    FailureOr<HiddenStates> before = runner.embed(), after = runner.allocate();
    if (failed(before) || failed(after))
      return failure();
    for (int64_t i = 0; i < missing; ++i) {
      ProgressAction::report(&getContext(), kLkd, i, run.layerCount());
      numerics::Matrix in = before->all(), out = after->all();
      std::copy_n(in.data, in.rows * in.columns, out.data);
      if (failed(runner.runLayer(i, *after)))
        return failure();
      if (!isDone(i)) {
        SmallVector<PlannedSite> sites = sitesNaming(run.layer(i), kLkd);
        QuantizedWeights codes;
        if (failed(distillLayer(runner, run.layer(i), sites, *before, *after, options, codes)))
          return failure();
        if (auto done = writeRounded(run.work(), run.file(i), run.stamp(i), sites, codes); !done)
          return run.fail(done.error());
      }
      std::swap(*before, *after);
    }
  }
  ProgressAction::report(&getContext(), kLkd, run.layerCount(), run.layerCount());
  for (int64_t i = 0; i < run.layerCount(); ++i)
    if (failed(declareRounded(module, run.work(), run.file(i), run.stamp(i),
                              sitesNaming(run.layer(i), kLkd))))
      return failure();
  return success();
}
