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

#include "easyquant/Calibration/Passes.h"
#include "easyquant/Calibration/RoundedSites.h"
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

constexpr llvm::StringLiteral kMethod = "lkd";

struct Lkd : calibration::impl::LkdBase<Lkd> {
  using LkdBase::LkdBase;
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }
  LogicalResult run();
  void getDependentDialects(DialectRegistry &registry) const override {
    LkdBase::getDependentDialects(registry);
    SliceCompiler::getDependentDialects(registry);
  }
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
  bool isNamed = false;
  module.walk([&](equant::QuantizableOpInterface op) {
    equant::PlanAttr plan = equant::getPlan(op);
    isNamed |= plan && plan.names(kMethod);
  });
  if (!isNamed)
    return success();
  auto fail = [&](const Error &error) { return emitError(module.getLoc()) << error.message; };
  FailureOr<ModelConstants> constants = ModelConstants::open(module);
  FailureOr<std::string> folder = equant::getWorkFolder(module, workFolder);
  if (failed(constants) || failed(folder))
    return failure();
  if (tokensFile.empty())
    return emitError(module.getLoc()) << "equant-lkd needs calibration tokens: give tokens=FILE";
  auto tokens =
      CalibrationTokens::read(tokensFile.getValue(), constants->source().config().vocabSize);
  if (!tokens)
    return fail(tokens.error());
  EngineOptions engine;
  engine.threads = threads;
  FailureOr<LayerRunner> runner = LayerRunner::create(module, *tokens, engine);
  if (failed(runner) || failed(checkSitesAreInLayers(module, runner->layers(), kMethod)))
    return failure();

  const numerics::LkdOptions options{.epochs = epochs,
                                     .learningRate = learningRate,
                                     .skippedRows = tokens->skipped(),
                                     .threads = threads};
  FailureOr<std::string> stamp =
      methodStamp(*runner, module,
                  fmt::format("lkd 1 epochs={} learning-rate={:a}", epochs.getValue(),
                              learningRate.getValue()));
  if (failed(stamp))
    return failure();
  const ComputedConstants work(*folder);
  const int64_t layers = static_cast<int64_t>(runner->layers().size());
  std::vector<std::string> files, stamps;
  int64_t missing = 0; // layers up to the last one that is to be computed
  for (auto [i, layer] : llvm::enumerate(runner->layers())) {
    files.push_back("lkd_" + std::to_string(i) + ".safetensors");
    stamps.push_back(layerStamp(layer, stamps.empty() ? *stamp : stamps.back()));
    if (!sitesNaming(layer, kMethod).empty() && !work.has(files.back(), stamps.back()))
      missing = static_cast<int64_t>(i) + 1;
  }

  if (missing > 0) {
    FailureOr<HiddenStates> before = runner->embed(), after = runner->allocate();
    if (failed(before) || failed(after))
      return failure();
    for (int64_t i = 0; i < missing; ++i) {
      ProgressAction::report(&getContext(), "lkd", i, layers);
      func::FuncOp layer = runner->layers()[i];
      SmallVector<PlannedSite> sites = sitesNaming(layer, kMethod);
      numerics::Matrix in = before->all(), out = after->all();
      std::copy_n(in.data, in.rows * in.columns, out.data);
      if (failed(runner->runLayer(i, *after)))
        return failure();
      if (!sites.empty() && !work.has(files[i], stamps[i])) {
        QuantizedWeights codes;
        if (failed(distillLayer(*runner, layer, sites, *before, *after, options, codes)))
          return failure();
        if (auto done = writeRounded(work, files[i], stamps[i], sites, codes); !done)
          return fail(done.error());
      }
      std::swap(*before, *after);
    }
  }
  ProgressAction::report(&getContext(), "lkd", layers, layers);
  for (int64_t i = 0; i < layers; ++i)
    declareRounded(module, files[i], stamps[i], sitesNaming(runner->layers()[i], kMethod));
  return success();
}
