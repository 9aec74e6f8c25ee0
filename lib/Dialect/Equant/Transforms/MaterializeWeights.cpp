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

#include "easyquant/Weights/PlanWeightFile.h"
#include "easyquant/Weights/WeightGlobals.h"
#include "easyquant/Weights/WeightReport.h"

#include "easyquant/Dialect/Equant/Transforms/FoldScale.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"
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
  FailureOr<WeightFiles> chooseFiles();
  InFlightDiagnostic fail() { return emitError(getOperation().getLoc()); }
};

} // namespace

FailureOr<WeightFiles> MaterializeWeights::chooseFiles() {
  WeightFiles files{.cpu = packings.empty(), .gpu = false};
  for (const std::string &packing : packings) {
    if (packing != "cpu" && packing != "gpu")
      return fail() << "unknown packing '" << packing << "'; expected cpu or gpu";
    (packing == "cpu" ? files.cpu : files.gpu) = true;
  }
  return files;
}

/// What the manifest says of how the model was quantized; unit, its null, where it was not.
static Attribute describeQuantization(ModuleOp module) {
  auto recipe = module->getAttrOfType<DictionaryAttr>(kRecipeAttr);
  if (!recipe)
    return UnitAttr::get(module.getContext());
  NamedAttrList quantization(recipe);
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
  FailureOr<WeightFiles> files = chooseFiles();
  if (failed(files))
    return failure();
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return failure();
  ModelWeights weights;
  if (failed(weights.collect(module)) || failed(weights.check(module, *reader)))
    return failure();
  std::vector<FileTensor> tensors = planTensors(module, weights, *files);
  Result<DictionaryAttr> source = describeSource(&getContext(), reader->source());
  if (!source)
    return fail() << source.error().message;
  std::filesystem::path folder = output.getValue();
  if (Result<void> made = makeFolders(folder); !made)
    return fail() << made.error().message;
  auto progress = [&](int64_t done) {
    ProgressAction::report(&getContext(), "materialize", done, tensors.size());
  };
  Result<WrittenWeights> written =
      writeWeights(folder, maxShardBytes, *files, tensors, *reader, threads, progress);
  if (!written)
    return fail() << written.error().message;

  readFromFiles(module, weights, tensors, *files, *written);
  module->removeAttr(kWorkAttr);
  llvm::DenseMap<Operation *, const ConstantWeight *> weightOf;
  for (const WeightUse &use : weights.uses())
    weightOf[use.op] = use.weight;
  NamedAttrList report;
  report.set("source", *source);
  report.set("quantization", describeQuantization(module));
  report.set("sites", describeSites(module, weightOf, *written));
  module->setAttr(kReportAttr, report.getDictionary(&getContext()));
  return success();
}
