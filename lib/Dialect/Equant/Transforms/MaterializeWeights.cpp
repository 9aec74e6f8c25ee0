//===- MaterializeWeights.cpp - Quantized weights on disk -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The IR says which tensors there are and how they are made. This pass has them made, one at a
// time, and keeps of the IR only where they lie.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/FileTensors.h"
#include "easyquant/Weights/WeightGlobals.h"
#include "easyquant/Weights/WeightReport.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/Threads.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_MATERIALIZEWEIGHTS
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

struct MaterializeWeights : equant::impl::MaterializeWeightsBase<MaterializeWeights> {
  using MaterializeWeightsBase::MaterializeWeightsBase;
  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

private:
  LogicalResult run();
  InFlightDiagnostic fail() { return emitError(getOperation().getLoc()); }
};

} // namespace

/// Adds those of another rank, which has the same weights in the same order.
static void addErrors(TargetWeights &to, const TargetWeights &from) {
  for (const auto &[weight, other] : llvm::zip_equal(to.weights.packed(), from.weights.packed()))
    for (auto [error, more] : llvm::zip_equal(to.errors[&weight], from.errors.at(&other)))
      error.add(more);
}

/// What the manifest says of how the model was quantized; unit, its null, where it was not.
static Attribute describeQuantization(ModuleOp module) {
  auto recipe = module->getAttrOfType<DictionaryAttr>(kRecipeAttr);
  if (!recipe)
    return UnitAttr::get(module.getContext());
  NamedAttrList quantization(recipe);
  if (!quantization.get("group_size")) // of a mix, whose rules have theirs
    quantization.set("group_size", Builder(module.getContext()).getI64IntegerAttr(0));
  for (auto [name, attribute] : {std::pair<StringRef, StringRef>("fallbacks", kFallbacksAttr),
                                 {"transforms", kTransformsAttr},
                                 {"calibration", kCalibrationAttr}})
    if (Attribute value = module->getAttr(attribute))
      quantization.set(name, value);
  return quantization.getDictionary(module.getContext());
}

LogicalResult MaterializeWeights::run() {
  ModuleOp module = getOperation();
  if (output.empty())
    return fail() << "option output is missing: the folder to write weights to";
  if (auto chosen = chooseThreads(threads); !chosen)
    return fail() << chosen.error().message;
  auto chosen = targets::findFamilies(kernelTargets);
  if (!chosen)
    return fail() << chosen.error().message;
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return failure();
  std::deque<TargetWeights> models;
  int64_t tensors = 0;
  const int64_t ranks = degreeOf(module);
  if (auto grid = module.lookupSymbol<shard::GridOp>(kGrid); grid && ranks == 1)
    return fail() << "shard.grid @" << kGrid << ": expected one axis of 2 to " << kMaxRanks
                  << " ranks";
  for (auto [family, inner] : llvm::zip_equal(*chosen, splitTargets(module, *chosen))) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      TargetWeights &model = models.emplace_back(
          *family, inner, formats::weightsStem(family->file.stem.c_str(), rank, ranks));
      if (failed(model.weights.collect(inner, rank)) || failed(model.weights.check(inner, *reader)))
        return failure();
      model.tensors = fileTensors(model);
      tensors += std::ssize(model.tensors);
    }
  }
  Result<DictionaryAttr> source = describeSource(&getContext(), reader->source());
  if (!source)
    return fail() << source.error().message;
  std::filesystem::path folder = output.getValue();
  if (Result<void> made = makeFolders(folder); !made)
    return fail() << made.error().message;
  auto progress = [&](int64_t done) {
    ProgressAction::report(&getContext(), "materialize", done, tensors);
  };
  if (auto written = writeWeights(folder, maxShardBytes, models, *reader, threads, progress);
      !written)
    return fail() << written.error().message;

  // One program reads the weights of each rank at the same places; errors are those of all ranks.
  for (size_t i = 0; i < models.size(); i += ranks) {
    for (int64_t rank = 1; rank < ranks; ++rank)
      addErrors(models[i], models[i + rank]);
    readFromFile(models[i]);
  }
  module->removeAttr(kWorkAttr);
  NamedAttrList report;
  report.set("source", *source);
  report.set("quantization", describeQuantization(module));
  report.set("sites", describeSites(models.front()));
  module->setAttr(kReportAttr, report.getDictionary(&getContext()));
  return success();
}
