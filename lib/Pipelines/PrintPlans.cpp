//===- PrintPlans.cpp - What would become of each site --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/StoredBytes.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Weights/WeightReport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

namespace easyquant {
#define GEN_PASS_DEF_PRINTPLANS
#include "easyquant/Pipelines/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using equant::QuantizableOpInterface;
using ml_program::GlobalLoadConstOp;

namespace {
struct PrintPlans : public easyquant::impl::PrintPlansBase<PrintPlans> {
  using PrintPlansBase::PrintPlansBase;
  void runOnOperation() override;
};
} // namespace

/// Bytes of a weight in the files of all families.
static int64_t bytesFor(ArrayRef<const targets::Family *> families, RankedTensorType weight,
                        equant::SchemeAttr scheme, equant::SchemeAttr input) {
  int64_t bytes = 0;
  for (const targets::Family *family : families)
    bytes += equant::storedBytes(weight, scheme, input, *family);
  return bytes;
}

static Json describe(StringRef site, RankedTensorType weight, equant::PlanAttr plan,
                     const std::string &reason, ArrayRef<const targets::Family *> families) {
  equant::SchemeAttr scheme = plan ? plan.getWeight() : equant::SchemeAttr();
  equant::SchemeAttr input = plan ? plan.getInput() : equant::SchemeAttr();
  return Json::Object{
      {"name", site},
      {"out_features", weight.getDimSize(0)},
      {"in_features", weight.getDimSize(1)},
      {"weight", toJson(equant::describeScheme(weight.getContext(), scheme, /*isWeight=*/true))},
      {"input", toJson(equant::describeScheme(weight.getContext(), input, /*isWeight=*/false))},
      {"methods", plan && plan.getMethods() ? toJson(plan.getMethods()) : Json(Json::Array())},
      {"bytes", bytesFor(families, weight, scheme, input)},
      {"reason", reason.empty() ? Json() : Json(reason)}};
}

static Json describe(QuantizableOpInterface op, ArrayRef<const targets::Family *> families) {
  equant::PlanAttr plan = equant::getPlan(op);
  std::string reason = plan ? equant::whyNotQuantizable(op, plan) : "";
  return describe(op.getSite(), cast<RankedTensorType>(op.getWeightOperand().get().getType()),
                  reason.empty() ? plan : equant::PlanAttr(), reason, families);
}

void PrintPlans::runOnOperation() {
  ModuleOp module = getOperation();
  Result<std::vector<const targets::Family *>> families = targets::findFamilies(kernelTargets);
  if (!families) {
    module.emitError() << families.error().message;
    return signalPassFailure();
  }
  Json::Array sites;
  module.walk([&](QuantizableOpInterface op) { sites.push_back(describe(op, *families)); });
  module.walk([&](lm::EmbeddingOp op) {
    if (equant::PlanAttr plan = equant::getPlan(op))
      sites.push_back(describe(equant::embeddingSite(op.getTable()),
                               cast<RankedTensorType>(op.getTable().getType()), plan, "",
                               *families));
  });
  int64_t largestLayer = 0;
  module.walk([&](func::FuncOp function) {
    int64_t floats = 0;
    function.walk([&](GlobalLoadConstOp load) {
      auto type = dyn_cast<RankedTensorType>(load.getType());
      if (type && type.hasStaticShape()) // a weight
        floats += type.getNumElements();
    });
    if (function.isPrivate())
      largestLayer = std::max(largestLayer, floats);
  });
  const int64_t files = std::ssize(*families);
  const Json plans = Json::Object{{"sites", std::move(sites)},
                                  {"passes", Json::Array(passes.begin(), passes.end())},
                                  {"other_bytes", equant::otherBytes(module) * files},
                                  {"header_bytes", equant::headerBytes(module) * files},
                                  {"layer_floats", largestLayer},
                                  {"recipe", toJson(module->getAttr(equant::kRecipeAttr))},
                                  {"model", toJson(module->getAttr(lm::kModelAttr))}};
  llvm::outs() << plans.document();
  markAllAnalysesPreserved();
}
