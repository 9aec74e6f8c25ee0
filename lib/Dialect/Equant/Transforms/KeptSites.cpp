//===- KeptSites.cpp - Sites with the codes of the source -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KeptSites.h"

#include "easyquant/Numerics/ScaleRules.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using numerics::WeightTensor;
namespace option = easyquant::recipe::option;

/// What is asked beside the codes, which are as they are; nothing if nothing is.
static std::string askedBeside(const recipe::SiteRequest &asked) {
  if (!asked.method.methods.empty())
    return "method " + asked.method.methods.front();
  if (asked.groupSize() != 0)
    return "group-size " + std::to_string(asked.groupSize());
  if (auto type = asked.options.get(option::scaleType))
    return "scale-type " + *type;
  if (asked.activations() != "dynamic")
    return "activations " + asked.activations();
  if (asked.isRotated())
    return "activation-basis hadamard";
  if (asked.options[option::weightObserver] != "absmax")
    return "weight-observer " + asked.options[option::weightObserver];
  return "";
}

/// The name of a weight without ".weight".
static std::string_view siteOfWeight(std::string_view name) {
  return name.ends_with(".weight") ? name.substr(0, name.size() - 7) : name;
}

/// The weight that a site reads has the name of its global: a tied head's is the embedding's.
static StringRef weightOf(QuantizableOpInterface op) {
  auto load = op.getWeightOperand().get().getDefiningOp<ml_program::GlobalLoadConstOp>();
  return load ? load.getGlobal().getLeafReference().getValue() : op.getSite();
}

LogicalResult KeptSites::openReader() {
  if (reader)
    return success();
  FailureOr<ConstantReader> opened = ConstantReader::open(module);
  if (failed(opened))
    return failure();
  reader = std::move(*opened);
  return success();
}

LogicalResult KeptSites::openSource() {
  if (failed(openReader()))
    return failure();
  if (llvm::any_of(reader->source().tensors(), [&](const formats::ModelTensor &tensor) {
        return reader->source().storedWeight(siteOfWeight(tensor.name));
      }))
    return success();
  return emitError(module.getLoc())
         << reader->source().path().string()
         << ": scheme keep keeps the codes of a checkpoint that is quantized, and this one has "
            "floats, or codes that no scheme has; give another scheme";
}

/// The scheme of a site's activations: the file's, or int8 where that is asked for and goes with
/// the weight; null: float.
static SchemeAttr inputOf(MLIRContext *context, const formats::QuantizedSite &site,
                          const recipe::SiteRequest &asked) {
  if (site.input)
    return SchemeAttr::get(context, *site.input);
  if (!asked.hasInt8Activations() || !site.weight.hasIntegerValues())
    return {};
  // Groups of 32, as llama.cpp has them: in the plain basis one scale a token loses more.
  int64_t group = asked.options.get(option::activationGroupSize).value_or(32);
  if (!numerics::fitsGroups(group, site.weight.groupSize))
    group = 0;
  return SchemeAttr::get(context, numerics::Scheme{.bits = 8,
                                                   .granularity = numerics::Granularity::Token,
                                                   .groupSize = group,
                                                   .dynamic = true,
                                                   .hadamard = site.weight.hadamard});
}

PlanAttr KeptSites::planOf(const formats::StoredWeight &stored, SchemeAttr input) {
  MLIRContext *context = module.getContext();
  const formats::QuantizedSite &site = stored.site();
  auto weight = SchemeAttr::get(context, site.weight);
  auto type = WeightType::get(site.rows, site.columns, weight);
  auto declare = [&](WeightTensor part) {
    RankedTensorType partType = type.getPart(part);
    if (!partType)
      return FlatSymbolRefAttr();
    auto global = declareStored(module, formats::partName(site.name, part), partType);
    return FlatSymbolRefAttr::get(global.getSymNameAttr());
  };
  const PlannedParts parts{declare(WeightTensor::Codes), declare(WeightTensor::Scales),
                           declare(WeightTensor::ZeroPoints), declare(WeightTensor::Minima),
                           declare(WeightTensor::Outer)};
  return PlanAttr::get(Builder(context).getStrArrayAttr({}),
                       static_cast<ScaleRule>(numerics::extremesRule(site.weight)), FloatAttr(),
                       weight, input, DictionaryAttr(), parts);
}

/// Why the codes are not kept; empty if they are.
static std::string whyNotKept(const formats::StoredWeight *stored,
                              const formats::ModelTensor *tensor, bool isTable) {
  if (!stored)
    return "no scheme has those of " + tensor->storedType;
  if (isTable && !stored->order().empty())
    return "its columns are not in the order of groups (act-order), and embeddings are read as "
           "they are";
  return stored->whyNotKept;
}

FailureOr<const formats::StoredWeight *> KeptSites::find(Location loc, StringRef site,
                                                         StringRef weight, bool isTable) {
  if (failed(openSource()))
    return failure();
  const formats::StoredWeight *stored = reader->source().storedWeight(siteOfWeight(weight));
  const formats::ModelTensor *tensor = reader->source().find(std::string_view(weight));
  if (!stored && (!tensor || tensor->isFloat()))
    return static_cast<const formats::StoredWeight *>(nullptr);
  const std::string reason = whyNotKept(stored, tensor, isTable);
  if (reason.empty())
    return stored;
  if (!dequantize)
    return emitError(loc) << "site '" << site << "': its codes cannot be kept: " << reason
                          << "; --dequantize makes such sites float, and another scheme quantizes "
                             "anew";
  floats.push_back(site.str());
  return static_cast<const formats::StoredWeight *>(nullptr);
}

FailureOr<bool> KeptSites::plan(QuantizableOpInterface op, const recipe::SiteRequest &asked) {
  StringRef site = op.getSite();
  if (std::string beside = askedBeside(asked); !beside.empty())
    return emitError(op.getLoc()) << "site '" << site
                                  << "': scheme keep takes codes as they are, found " << beside
                                  << "; leave it out, or give another scheme";
  // A tied head reads the embedding's table.
  const bool isTable = StringRef(siteOfWeight(weightOf(op))) != site;
  auto found = find(op.getLoc(), site, weightOf(op), isTable);
  if (failed(found))
    return failure();
  const formats::StoredWeight *stored = *found;
  if (!stored)
    return false;
  op->setAttr(kPlanAttr, planOf(*stored, inputOf(module.getContext(), stored->site(), asked)));
  if (!stored->order().empty())
    op->setAttr(kColumnOrderAttr, orderOf(*stored));
  if (const auto &input = stored->site().input; input && (!input->dynamic || input->outer)) {
    Builder builder(module.getContext());
    op->setAttr(kInputScaleAttr, builder.getF32FloatAttr(stored->site().inputScale));
    if (!input->symmetric)
      op->setAttr(kInputZeroPointAttr, builder.getI32IntegerAttr(stored->site().inputZeroPoint));
  }
  return true;
}

FlatSymbolRefAttr KeptSites::orderOf(const formats::StoredWeight &stored) {
  std::span<const int32_t> order = stored.order();
  FlatSymbolRefAttr &known = orders[ArrayRef<int32_t>(order.data(), order.size())];
  if (!known) {
    auto type =
        RankedTensorType::get({stored.site().columns}, IntegerType::get(module.getContext(), 32));
    auto global = declareStored(module, formats::orderName(stored.site().name), type);
    known = FlatSymbolRefAttr::get(global.getSymNameAttr());
  }
  return known;
}

LogicalResult KeptSites::planEmbedding(lm::EmbeddingOp op) {
  auto load = op.getTable().getDefiningOp<ml_program::GlobalLoadConstOp>();
  auto found = find(op.getLoc(), embeddingSite(op.getTable()),
                    load ? load.getGlobal().getLeafReference().getValue() : StringRef(),
                    /*isTable=*/true);
  if (failed(found))
    return failure();
  if (*found)
    op->setAttr(kPlanAttr, planOf(**found, SchemeAttr()));
  return success();
}

LogicalResult KeptSites::keepEmbedding(lm::EmbeddingOp op) {
  auto load = op.getTable().getDefiningOp<ml_program::GlobalLoadConstOp>();
  if (!load || !module->hasAttr(lm::kSourceAttr))
    return success();
  if (failed(openReader()))
    return failure();
  StringRef weight = load.getGlobal().getLeafReference().getValue();
  const formats::StoredWeight *stored = reader->source().storedWeight(siteOfWeight(weight));
  if (!stored || !whyNotKept(stored, nullptr, /*isTable=*/true).empty())
    return success();
  op->setAttr(kPlanAttr, planOf(*stored, SchemeAttr()));
  op->setAttr(kIfPossibleAttr, UnitAttr::get(op.getContext()));
  return success();
}

void KeptSites::report() { reportDequantized(module, floats, "no scheme has"); }

void easyquant::equant::reportDequantized(ModuleOp module, ArrayRef<std::string> sites,
                                          StringRef why) {
  if (sites.empty())
    return;
  InFlightDiagnostic remark = emitRemark(module.getLoc());
  remark << "site '" << sites.front() << "'";
  if (sites.size() > 1)
    remark << " and " << sites.size() - 1 << " more";
  remark << (sites.size() > 1 ? " have" : " has") << " become float: " << why << " the codes";
}
