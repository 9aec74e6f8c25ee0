//===- PrintPlans.cpp - What would become of each site --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/CPU/Kernels.h"
#include "easyquant/Dialect/Equant/Analysis/CheckpointSites.h"
#include "easyquant/Dialect/Equant/Analysis/FloatByDefault.h"
#include "easyquant/Dialect/Equant/Analysis/StoredBytes.h"
#include "easyquant/Dialect/LM/Analysis/Calls.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Execution/LayerSites.h"
#include "easyquant/Formats/ModelTensors.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Target/CPU/CPUTarget.h"
#include "easyquant/Weights/WeightReport.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/Support/raw_ostream.h"

namespace easyquant {
#define GEN_PASS_DEF_PRINTPLANS
#include "easyquant/Pipelines/Passes.h.inc"
} // namespace easyquant

#include <map>

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

namespace {
/// Where the weights would be: in the files of all families, or in a checkpoint.
struct Destination {
  std::vector<const targets::Family *> families;
  const formats::CheckpointFormat *format = nullptr;

  int64_t bytesOf(Operation *reader, StringRef site, RankedTensorType weight,
                  equant::SchemeAttr scheme, equant::SchemeAttr input, bool isKept) const {
    if (format)
      return equant::checkpointBytes(*format, site, weight, scheme, input, isKept);
    int64_t bytes = 0;
    for (const targets::Family *family : families)
      bytes += equant::storedBytes(reader, weight, scheme, input, *family);
    return bytes;
  }
  /// Bytes of all else; floats of checkpoints are halves, but for graphs.
  int64_t otherBytes(ModuleOp module) const {
    if (!format)
      return equant::otherBytes(module) * std::ssize(families);
    return format->isGraph() ? equant::otherBytes(module, equant::Holder::Graph)
                             : equant::otherBytes(module, equant::Holder::Checkpoint) / 2;
  }
};
} // namespace

static Json describe(Operation *op, StringRef site, RankedTensorType weight, equant::PlanAttr plan,
                     const std::string &reason, const Destination &destination) {
  equant::SchemeAttr scheme = plan ? plan.getWeight() : equant::SchemeAttr();
  equant::SchemeAttr input = plan ? plan.getInput() : equant::SchemeAttr();
  return Json::Object{
      {"name", site},
      {"out_features", weight.getDimSize(0)},
      {"in_features", weight.getDimSize(1)},
      {"weight", toJson(equant::describeScheme(weight.getContext(), scheme, /*isWeight=*/true))},
      {"input", toJson(equant::describeScheme(weight.getContext(), input, /*isWeight=*/false))},
      {"methods", plan && plan.getMethods() ? toJson(plan.getMethods()) : Json(Json::Array())},
      {"bytes",
       destination.bytesOf(op, site, weight, scheme, input, plan && equant::isKept(op, plan))},
      {"reason", reason.empty() ? Json() : Json(reason)}};
}

static Json describe(QuantizableOpInterface op, const Destination &destination) {
  equant::PlanAttr plan = equant::getPlan(op);
  std::string reason = plan ? equant::whyNotQuantizable(op, plan) : "";
  const auto [n, k] = op.getFeatures();
  Json site = describe(op, op.getSite(),
                       RankedTensorType::get({n, k}, Builder(op.getContext()).getF32Type()),
                       reason.empty() ? plan : equant::PlanAttr(), reason, destination);
  Json::Object described(site.members().begin(), site.members().end());
  if (StringRef why = equant::whyFloatByDefault(op); !plan && !why.empty())
    described["float_by_default"] = why;
  if (lm::isOfDraft(op->getParentOfType<func::FuncOp>()))
    described["draft"] = true;
  auto linear = dyn_cast<lm::LinearOp>(op.getOperation());
  Value offsets = linear ? linear.getExperts() : Value();
  if (auto route = offsets ? offsets.getDefiningOp<lm::RouteOp>() : lm::RouteOp()) {
    described["experts"] = lm::expertCount(offsets);
    described["experts_per_row"] = static_cast<int64_t>(route.getTopK());
    // Several experts may read one row of tokens, which text passes then keep once.
    const bool isRotated = plan && plan.getWeight() && plan.getWeight().getHadamard() != 0;
    described["input_rows"] =
        execution::gatheredTokens(linear) && !isRotated ? 1 : static_cast<int64_t>(route.getTopK());
  }
  return described;
}

/// Bytes of the tables of which a step reads a row a token, and no more: embeddings that no linear
/// multiplies with, learned positions, angles.
static int64_t gatheredBytes(ModuleOp module, const Destination &destination) {
  llvm::DenseSet<Attribute> seen; // globals
  module.walk([&](QuantizableOpInterface op) {
    if (auto load = op.getWeightOperand().get().getDefiningOp<GlobalLoadConstOp>())
      seen.insert(load.getGlobalAttr());
  });
  int64_t bytes = 0;
  auto add = [&](Value table, equant::SchemeAttr scheme, bool isStored) {
    auto load = table.getDefiningOp<GlobalLoadConstOp>();
    auto type = dyn_cast<RankedTensorType>(table.getType());
    if (load && !seen.insert(load.getGlobalAttr()).second)
      return;
    if (type && type.hasStaticShape() && isStored)
      bytes += scheme ? destination.bytesOf(load, "", type, scheme, equant::SchemeAttr(), false)
                      : type.getNumElements() *
                            (load ? equant::floatBytes(load) : int64_t(sizeof(float)));
  };
  module.walk([&](lm::EmbeddingOp op) {
    equant::PlanAttr plan = equant::getPlan(op);
    add(op.getTable(), plan ? plan.getWeight() : equant::SchemeAttr(), true);
  });
  module.walk([&](lm::PositionEmbeddingOp op) { add(op.getTable(), equant::SchemeAttr(), true); });
  module.walk([&](lm::RopeOp op) { add(op.getTable(), equant::SchemeAttr(), true); });
  return bytes;
}

/// What CPUs keep of keys and values: the bytes of all layers, as in the manifest. GPUs keep f16.
/// `read` is what a step reads of a page, by window of attention; the head that drafts has steps of
/// its own.
static Json describeCache(ModuleOp module, const Destination &destination, StringRef type) {
  const bool hasCodes =
      module.walk([](equant::AttentionOp) { return WalkResult::interrupt(); }).wasInterrupted();
  bool isQuantized = hasCodes;
  module.walk([&](QuantizableOpInterface op) {
    equant::PlanAttr plan = equant::getPlan(op);
    isQuantized |= plan && plan.getWeight() && equant::whyNotQuantizable(op, plan).empty();
  });
  const bool isForCPU = llvm::any_of(destination.families, [](const targets::Family *family) {
    return family->name == cpu::kFamily;
  });
  formats::CacheSizes sizes;
  std::map<int64_t, int64_t> read;
  auto add = [&](auto op, std::optional<cpu::KVQuantization> codes, bool isOfOther) {
    cpu::AttentionSpec spec;
    spec.heads = op.getNumHeads();
    spec.kvHeads = op.getNumKvHeads();
    spec.headDim = op.getHeadDim();
    spec.halfCache = !isForCPU || (type == "auto" ? isQuantized : type == "f16");
    spec.kv = codes;
    const cpu::CacheBytes layer = cpu::cacheBytes(spec);
    if (!lm::isOfDraft(op->template getParentOfType<func::FuncOp>()))
      read[op.getWindow()] += layer.page;
    if (isOfOther)
      return;
    sizes.pageTokens = layer.pageTokens;
    sizes.windowBytes += layer.window;
    if (const int64_t window = op.getWindow(); isForCPU && window > 0) {
      if (!sizes.sliding)
        sizes.sliding.emplace();
      sizes.sliding->window = std::max(sizes.sliding->window, window);
      sizes.sliding->pageBytes += layer.page;
    } else {
      sizes.pageBytes += layer.page;
    }
  };
  module.walk([&](lm::AttentionOp op) { add(op, std::nullopt, op.getAppended()); });
  module.walk([&](equant::AttentionOp op) {
    equant::KVSchemeAttr scheme = op.getKvScheme();
    add(op,
        cpu::KVQuantization{.bits = static_cast<int>(scheme.getCode().getWidth()),
                            .group = scheme.getGroup(),
                            .residual = scheme.getResidual(),
                            .sinks = scheme.getSinks(),
                            .keysPerToken = scheme.getKeys() == equant::Granularity::Token,
                            .hadamard = scheme.getHadamard()},
        /*isOfOther=*/false);
  });
  Json::Array parts;
  for (auto [window, bytes] : read)
    parts.push_back(Json::Object{{"window", window}, {"page_bytes", bytes}});
  Json::Object described = {{"page_tokens", sizes.pageTokens},
                            {"page_bytes", sizes.pageBytes},
                            {"window_bytes", sizes.windowBytes},
                            {"read", std::move(parts)}};
  if (sizes.sliding)
    described["sliding"] =
        Json::Object{{"window", sizes.sliding->window}, {"page_bytes", sizes.sliding->pageBytes}};
  return described;
}

/// Bytes of the recurrent state of a sequence; 0: no layer has one.
static int64_t stateBytes(ModuleOp module) {
  int64_t values = 0;
  module.walk([&](func::FuncOp function) {
    for (Type type : function.getArgumentTypes())
      if (auto state = dyn_cast<lm::RecurrentType>(type))
        values = state.getValues();
  });
  return values * static_cast<int64_t>(sizeof(float));
}

/// Fails with a diagnostic on a name that there is not.
static FailureOr<Destination> findDestination(ModuleOp module, ArrayRef<std::string> families,
                                              StringRef format) {
  Destination destination;
  std::optional<Error> problem;
  if (format.empty()) {
    if (auto found = targets::findFamilies(families))
      destination.families = std::move(*found);
    else
      problem = found.error();
  } else if (auto found = formats::findCheckpointFormat(format)) {
    destination.format = *found;
  } else {
    problem = found.error();
  }
  if (problem)
    return module.emitError() << problem->message;
  return destination;
}

void PrintPlans::runOnOperation() {
  ModuleOp module = getOperation();
  FailureOr<Destination> destination =
      findDestination(module, kernelTargets, exportFormat.getValue());
  if (failed(destination))
    return signalPassFailure();
  Json::Array sites;
  module.walk([&](QuantizableOpInterface op) {
    if (op.getSite() == formats::kHeadModule && lm::isOfDraft(op->getParentOfType<func::FuncOp>()))
      return; // the model's, which is there already
    sites.push_back(describe(op, *destination));
  });
  module.walk([&](lm::EmbeddingOp op) {
    if (equant::PlanAttr plan = equant::getPlan(op))
      sites.push_back(describe(op, equant::embeddingSite(op.getTable()),
                               cast<RankedTensorType>(op.getTable().getType()), plan, "",
                               *destination));
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
  const int64_t headers = destination->format ? 1 : std::ssize(destination->families);
  const Json plans =
      Json::Object{{"sites", std::move(sites)},
                   {"passes", Json::Array(passes.begin(), passes.end())},
                   {"other_bytes", destination->otherBytes(module)},
                   {"header_bytes", equant::headerBytes(module) * headers},
                   {"gathered_bytes", gatheredBytes(module, *destination)},
                   {"cache", describeCache(module, *destination, kvCache.getValue())},
                   {"state_bytes", stateBytes(module)},
                   {"layer_floats", largestLayer},
                   {"recipe", toJson(module->getAttr(equant::kRecipeAttr))},
                   {"model", toJson(module->getAttr(lm::kModelAttr))}};
  llvm::outs() << plans.document();
  markAllAnalysesPreserved();
}
