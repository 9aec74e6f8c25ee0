//===- PrintPlans.cpp - What would become of each site --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttributeJSON.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Pipelines/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/DenseSet.h"
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

static int64_t bytesOf(RankedTensorType type) {
  return llvm::divideCeil(type.getNumElements() * type.getElementTypeBitWidth(), 8);
}

/// Bytes of a weight as materialization will store it: with the sums of its codes where the zero
/// points of inputs must be corrected.
static int64_t storedBytes(RankedTensorType weight, equant::SchemeAttr scheme,
                           equant::SchemeAttr input) {
  if (!scheme)
    return weight.getNumElements() * static_cast<int64_t>(sizeof(float));
  int64_t rows = weight.getDimSize(0), columns = weight.getDimSize(1);
  auto layout = equant::LayoutAttr::panel(weight.getContext());
  using numerics::WeightTensor;
  int64_t bytes = 0;
  for (WeightTensor tensor :
       {WeightTensor::Codes, WeightTensor::Scales, WeightTensor::ZeroPoints, WeightTensor::Outer})
    if (RankedTensorType packed = layout.getPackedType(tensor, scheme, rows, columns))
      bytes += bytesOf(packed);
  if (input && !input.getSymmetric())
    bytes += bytesOf(layout.getPackedType(WeightTensor::Sums, scheme, rows, columns));
  return bytes;
}

/// A scheme in the words of the manifest; null for float.
static Json describe(equant::SchemeAttr scheme, bool isWeight) {
  if (!scheme)
    return Json();
  Json::Object members = toJson(scheme).members();
  if (isWeight)
    members.erase("dynamic");
  else
    members.erase("scale_type");
  if (!isWeight && scheme.getGranularity() != equant::Granularity::Group)
    members.erase("group_size");
  return Json(std::move(members));
}

static Json describe(StringRef site, RankedTensorType weight, equant::PlanAttr plan,
                     const std::string &reason) {
  equant::SchemeAttr scheme = plan ? plan.getWeight() : equant::SchemeAttr();
  equant::SchemeAttr input = plan ? plan.getInput() : equant::SchemeAttr();
  return Json(Json::Object{
      {"name", Json(site.str())},
      {"out_features", Json(weight.getDimSize(0))},
      {"in_features", Json(weight.getDimSize(1))},
      {"weight", describe(scheme, /*isWeight=*/true)},
      {"input", describe(input, /*isWeight=*/false)},
      {"methods", plan && plan.getMethods() ? toJson(plan.getMethods()) : Json(Json::Array())},
      {"bytes", Json(storedBytes(weight, scheme, input))},
      {"reason", reason.empty() ? Json() : Json(reason)}});
}

static Json describe(QuantizableOpInterface op) {
  equant::PlanAttr plan = equant::getPlan(op);
  std::string reason = plan ? equant::whyNotQuantizable(op, plan) : "";
  return describe(op.getSite(), cast<RankedTensorType>(op.getWeightOperand().get().getType()),
                  reason.empty() ? plan : equant::PlanAttr(), reason);
}

void PrintPlans::runOnOperation() {
  ModuleOp module = getOperation();
  Json::Array sites;
  llvm::DenseSet<Attribute> quantized; // globals that are stored as codes, or counted
  module.walk([&](QuantizableOpInterface op) {
    sites.push_back(describe(op));
    if (auto load = op.getWeightOperand().get().getDefiningOp<GlobalLoadConstOp>())
      quantized.insert(load.getGlobalAttr());
  });
  module.walk([&](lm::EmbeddingOp op) {
    if (equant::PlanAttr plan = equant::getPlan(op)) {
      sites.push_back(describe(equant::embeddingSite(op.getTable()),
                               cast<RankedTensorType>(op.getTable().getType()), plan, ""));
      quantized.insert(op.getTable().getDefiningOp<GlobalLoadConstOp>().getGlobalAttr());
    }
  });
  int64_t others = 0, largestLayer = 0;
  module.walk([&](func::FuncOp function) {
    int64_t floats = 0;
    function.walk([&](GlobalLoadConstOp load) {
      auto type = dyn_cast<RankedTensorType>(load.getType());
      if (!type || !type.hasStaticShape()) // no weight
        return;
      floats += type.getNumElements();
      if (quantized.insert(load.getGlobalAttr()).second)
        others += type.getNumElements() * static_cast<int64_t>(sizeof(float));
    });
    if (function.isPrivate())
      largestLayer = std::max(largestLayer, floats);
  });
  Json plans(Json::Object{{"sites", Json(std::move(sites))},
                          {"other_bytes", Json(others)},
                          {"layer_floats", Json(largestLayer)},
                          {"recipe", toJson(module->getAttr(equant::kRecipeAttr))},
                          {"model", toJson(module->getAttr(lm::kModelAttr))}});
  llvm::outs() << plans.document();
  markAllAnalysesPreserved();
}
