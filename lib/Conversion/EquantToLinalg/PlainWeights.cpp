//===- PlainWeights.cpp - Constants as plain tensors ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Numerics/PlainPacking.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/Threads.h"
#include "easyquant/Weights/FileTensors.h"
#include "easyquant/Weights/WeightGlobals.h"

namespace easyquant {
#define GEN_PASS_DEF_PLAINWEIGHTS
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

/// Who reads plain weights asks for no order of bytes.
struct PlainForm final : targets::WeightForm {
  PlainForm() : WeightForm("upstream ops", {.stem = formats::kWeightsStem, .plain = true}) {}

  LayoutAttr layoutFor(SchemeAttr weight, targets::Readers) const override {
    return LayoutAttr::get(weight.getContext(), numerics::kPlainLayout);
  }
};

struct PlainWeights : easyquant::impl::PlainWeightsBase<PlainWeights> {
  using PlainWeightsBase::PlainWeightsBase;

  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
  }

private:
  LogicalResult run();
  InFlightDiagnostic fail() { return emitError(getOperation().getLoc()); }
};

} // namespace

/// Names of the file instead of places in it.
static void nameTensors(TargetWeights &target) {
  llvm::DenseMap<int64_t, StringRef> nameAt;
  for (auto [tensor, offset] : llvm::zip_equal(target.tensors, target.offsets))
    nameAt[offset] = tensor.name;
  Builder b(target.module.getContext());
  ModuleOp module = target.module;
  for (auto global : module.getOps<ml_program::GlobalOp>()) {
    auto offsets = dyn_cast_or_null<DenseI64ArrayAttr>(global->removeAttr(kOffsetAttr));
    if (!offsets)
      continue; // a float, whose name is that of the global
    auto names = llvm::map_to_vector(offsets.asArrayRef(),
                                     [&](int64_t offset) { return nameAt.lookup(offset); });
    global->setAttr(kTensorsAttr, b.getStrArrayAttr(names));
  }
}

LogicalResult PlainWeights::run() {
  ModuleOp module = getOperation();
  if (output.empty())
    return fail() << "option output is missing: the folder to write weights to";
  if (auto chosen = chooseThreads(threads); !chosen)
    return fail() << chosen.error().message;
  if (module.lookupSymbol(kGrid))
    return fail() << "the model is shared among ranks; compile without --tensor-parallel";
  // Nothing is written for a program that there cannot be.
  WalkResult checked = module.walk([](Operation *op) -> WalkResult {
    std::string reason = linalgform::whyNotEquant(op) + linalgform::whyNotModel(op);
    return reason.empty() ? WalkResult::advance() : WalkResult(op->emitOpError(reason));
  });
  if (checked.wasInterrupted())
    return failure();
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return failure();
  const PlainForm form;
  std::deque<TargetWeights> targets;
  TargetWeights &target = targets.emplace_back(form, module, form.file.stem);
  if (failed(target.weights.collect(module, /*rank=*/0)) ||
      failed(target.weights.check(module, *reader)))
    return failure();
  target.tensors = fileTensors(target);
  const std::filesystem::path folder = output.getValue();
  if (Result<void> made = makeFolders(folder); !made)
    return fail() << made.error().message;
  auto progress = [&](int64_t done) {
    ProgressAction::report(&getContext(), "plain weights", done, std::ssize(target.tensors));
  };
  // One file, whatever its size.
  constexpr int64_t noLimit = std::numeric_limits<int64_t>::max();
  if (auto written = writeWeights(folder, noLimit, targets, *reader, threads, progress); !written)
    return fail() << written.error().message;
  readFromFile(target);
  nameTensors(target);
  module->removeAttr(kWeightsBytesAttr);
  return success();
}
