//===- Quantize.cpp - From plans to quantized linears ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SettleScales.h"
#include "StaticInputs.h"

#include "easyquant/Dialect/Equant/Analysis/NothingToDo.h"
#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_QUANTIZE
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;

namespace {

/// A site that stays float against its plan.
struct Fallback {
  std::string site, reason;
};

struct Quantize : equant::impl::QuantizeBase<Quantize> {
  using QuantizeBase::QuantizeBase;

  void runOnOperation() override;

private:
  /// With `isOrdered` the columns of the codes are not those of the float weight.
  FailureOr<Value> quantizeWeight(OpBuilder &builder, Location loc, StringRef site, Value weight,
                                  PlanAttr plan, bool isOrdered);
  FailureOr<Value> gather(QuantizableOpInterface op, FlatSymbolRefAttr order);
  FailureOr<Value> load(OpBuilder &builder, Location loc, StringRef site, FlatSymbolRefAttr name,
                        RankedTensorType type);
  FailureOr<std::optional<StaticInputs>> openStaticInputs();
  LogicalResult quantizeSite(QuantizableOpInterface op, PlanAttr plan,
                             const std::optional<StaticInputs> &staticInputs);
  LogicalResult quantizeEmbedding(lm::EmbeddingOp op, PlanAttr plan);
  LogicalResult reportFallbacks(ArrayRef<Fallback> fallbacks);

  llvm::DenseMap<std::pair<Value, Attribute>, Value> gathered; ///< activations, by their order
};

} // namespace

/// Do static scales of the site's activations follow from calibration?
static bool isCalibrated(QuantizableOpInterface op, PlanAttr plan) {
  return plan.getInput() && plan.getInput().isCalibrated() && !op->hasAttr(kInputScaleAttr);
}

/// A computed tensor that the plan names; null if it names none.
FailureOr<Value> Quantize::load(OpBuilder &builder, Location loc, StringRef site,
                                FlatSymbolRefAttr name, RankedTensorType type) {
  if (!name)
    return Value();
  auto global = getOperation().lookupSymbol<GlobalOp>(name.getAttr());
  if (!global)
    return emitError(loc) << "site '" << site << "': its plan names " << name
                          << ", but there is no such global";
  if (global.getType() != type)
    return emitError(loc) << "site '" << site << "': global " << name << " must be " << type
                          << " for its plan, found " << global.getType();
  return loadGlobal(builder, loc, global);
}

FailureOr<Value> Quantize::quantizeWeight(OpBuilder &builder, Location loc, StringRef site,
                                          Value weight, PlanAttr plan, bool isOrdered) {
  if (CodebookAttr codebook = plan.getWeight().getCodebook();
      codebook && codebook.toNumerics()->isToBeLearned())
    return emitError(loc) << "site '" << site
                          << "': its table is still to be learned: run equant-learn-tables before";
  if (!plan.getScale() && plan.getRule() == ScaleRule::HessianDiagonal)
    return emitError(loc) << "site '" << site
                          << "': its ranges follow from calibration text by rule hessian-diagonal, "
                             "and have not been chosen: run equant-choose-ranges before, or take "
                             "another weight observer";
  if (const int64_t block = plan.getWeight().getHadamard(); block != rotationOf(weight))
    return emitError(loc) << "site '" << site << "': its plan has weights rotated in blocks of "
                          << block << " columns, and they are in blocks of " << rotationOf(weight)
                          << " (0: plain): run equant-rotate before, once";
  ArrayRef<int64_t> shape = cast<RankedTensorType>(weight.getType()).getShape();
  auto type = WeightType::get(shape[0], shape[1], plan.getWeight());
  auto part = [&](FlatSymbolRefAttr name, numerics::WeightTensor part) {
    return load(builder, loc, site, name, type.getPart(part));
  };
  using numerics::WeightTensor;
  FailureOr<Value> scale = part(plan.getScale(), WeightTensor::Scales),
                   zeroPoint = part(plan.getZeroPoint(), WeightTensor::ZeroPoints),
                   minimum = part(plan.getMinimum(), WeightTensor::Minima),
                   outer = part(plan.getOuter(), WeightTensor::Outer),
                   codes = part(plan.getCodes(), WeightTensor::Codes);
  if (failed(scale) || failed(zeroPoint) || failed(minimum) || failed(outer) || failed(codes))
    return failure();
  if (isOrdered && *codes)
    return FromCodesOp::create(builder, loc, type, *codes, *scale, *zeroPoint, *minimum, *outer)
        .getWeight();
  auto quantized = QuantizeOp::create(
      builder, loc, type, weight, *scale, *zeroPoint, *minimum, *outer, *codes,
      *scale ? ScaleRuleAttr() : ScaleRuleAttr::get(&getContext(), plan.getRule()),
      *scale ? FloatAttr() : plan.getPercentile());
  return quantized.getWeight();
}

/// What a site reads whose codes have their columns in this order: one value for all that have it.
FailureOr<Value> Quantize::gather(QuantizableOpInterface op, FlatSymbolRefAttr order) {
  Value input = op.getActivationOperand().get();
  Value &known = gathered[{input, order}];
  if (known)
    return known;
  OpBuilder builder(op.getContext());
  builder.setInsertionPointAfterValue(input);
  auto type = RankedTensorType::get({lm::columns(input)}, builder.getI32Type());
  FailureOr<Value> columns = load(builder, op.getLoc(), op.getSite(), order, type);
  if (failed(columns))
    return failure();
  known = GatherColumnsOp::create(builder, op.getLoc(), input.getType(), input, *columns);
  return known;
}

/// Opened if a plan asks for them.
FailureOr<std::optional<StaticInputs>> Quantize::openStaticInputs() {
  auto isAsked = [](QuantizableOpInterface op) {
    PlanAttr plan = getPlan(op);
    return plan && isCalibrated(op, plan) ? WalkResult::interrupt() : WalkResult::advance();
  };
  if (!getOperation().walk(isAsked).wasInterrupted())
    return std::optional<StaticInputs>();
  StaticObserver wanted{observer, {}};
  recipe::OptionValues recorded;
  recorded.set(recipe::option::observer, observer.getValue());
  if (observer == "percentile" ||
      observerPercentile != recorded[recipe::option::observerPercentile]) {
    wanted.percentile = observerPercentile;
    recorded.set(recipe::option::observerPercentile, double(observerPercentile));
  }
  recordOptions(getOperation(), recorded);
  FailureOr<StaticInputs> opened = StaticInputs::open(getOperation(), wanted);
  if (failed(opened))
    return failure();
  return std::optional<StaticInputs>(std::move(*opened));
}

LogicalResult Quantize::quantizeSite(QuantizableOpInterface op, PlanAttr plan,
                                     const std::optional<StaticInputs> &staticInputs) {
  OpBuilder builder(op);
  auto inputScale = op->getAttrOfType<FloatAttr>(kInputScaleAttr);
  auto inputZeroPoint = op->getAttrOfType<IntegerAttr>(kInputZeroPointAttr);
  if (isCalibrated(op, plan)) {
    Result<numerics::SliceParams> params = staticInputs->choose(op, plan);
    if (!params)
      return emitError(op.getLoc()) << params.error().message;
    inputScale = builder.getF32FloatAttr(params->scale);
    if (!plan.getInput().getSymmetric())
      inputZeroPoint = builder.getI32IntegerAttr(params->zeroPoint);
  }
  auto order = op->getAttrOfType<FlatSymbolRefAttr>(kColumnOrderAttr);
  if (order && !plan.getCodes())
    return emitError(op.getLoc()) << "site '" << op.getSite() << "': " << kColumnOrderAttr
                                  << " is of codes, and its plan has none";
  FailureOr<Value> weight =
      quantizeWeight(builder, op.getLoc(), op.getSite(), op.buildRows(builder), plan, bool(order));
  FailureOr<Value> input =
      order ? gather(op, order) : FailureOr<Value>(op.getActivationOperand().get());
  if (failed(weight) || failed(input))
    return failure();
  op.getActivationOperand().set(*input);
  op->getResult(0).replaceAllUsesWith(
      op.buildQuantized(builder, *weight, {plan.getInput(), inputScale, inputZeroPoint}));
  op->erase();
  return success();
}

LogicalResult Quantize::quantizeEmbedding(lm::EmbeddingOp op, PlanAttr plan) {
  OpBuilder builder(op);
  FailureOr<Value> table =
      quantizeWeight(builder, op.getLoc(), embeddingSite(op.getTable()), op.getTable(), plan,
                     /*isOrdered=*/false);
  if (failed(table))
    return failure();
  auto embedding = equant::EmbeddingOp::create(builder, op.getLoc(), op.getType(), op.getTokens(),
                                               *table, /*sharded=*/false);
  op.replaceAllUsesWith(embedding.getOutput());
  op.erase();
  return success();
}

LogicalResult Quantize::reportFallbacks(ArrayRef<Fallback> fallbacks) {
  Builder builder(&getContext());
  SmallVector<Attribute> entries;
  for (const Fallback &fallback : fallbacks)
    entries.push_back(builder.getDictionaryAttr(
        {builder.getNamedAttr("name", builder.getStringAttr(fallback.site)),
         builder.getNamedAttr("reason", builder.getStringAttr(fallback.reason))}));
  getOperation()->setAttr(kFallbacksAttr, builder.getArrayAttr(entries));
  if (int64_t(fallbacks.size()) <= maxFallback)
    return success();
  InFlightDiagnostic diagnostic = emitError(getOperation().getLoc());
  diagnostic << fallbacks.size() << (fallbacks.size() == 1 ? " site" : " sites")
             << " cannot be quantized as asked, and at most " << maxFallback.getValue()
             << " may stay float instead (max-fallback):";
  for (const Fallback &fallback : fallbacks)
    diagnostic << "\n  site '" << fallback.site << "' " << fallback.reason;
  return diagnostic;
}

/// The global that a value is loaded from, and perhaps rotated, or null.
static FlatSymbolRefAttr loadedGlobal(Value value) {
  if (auto hadamard = value.getDefiningOp<HadamardOp>())
    value = hadamard.getInput();
  auto load = value.getDefiningOp<GlobalLoadConstOp>();
  return load ? dyn_cast<FlatSymbolRefAttr>(load.getGlobal()) : FlatSymbolRefAttr();
}

void Quantize::runOnOperation() {
  ModuleOp module = getOperation();
  gathered.clear();
  if (maxFallback < 0) {
    emitError(module.getLoc()) << "max-fallback must not be negative, found "
                               << maxFallback.getValue();
    return signalPassFailure();
  }
  FailureOr<std::optional<StaticInputs>> staticInputs = openStaticInputs();
  if (failed(staticInputs))
    return signalPassFailure();
  // Weights by the global that they are, with their plans: what a tied embedding reads.
  llvm::MapVector<Attribute, PlanAttr> planOf;
  SmallVector<Fallback> fallbacks;
  SmallVector<QuantizableOpInterface> ops;
  module.walk([&](QuantizableOpInterface op) { ops.push_back(op); });
  SmallVector<lm::EmbeddingOp> embeddings;
  module.walk([&](lm::EmbeddingOp op) { embeddings.push_back(op); });
  // A module with a recipe was planned, be it that all of it stays float.
  if (!module->hasAttr(kRecipeAttr) && llvm::none_of(ops, [](auto op) { return getPlan(op); }) &&
      llvm::none_of(embeddings, [](auto op) { return getPlan(op); }))
    (void)reportNothingToDo(module, getArgument(),
                            "a site with an equant.plan (a plan pass before this one, such as "
                            "equant-absmax)",
                            /*requireSites=*/false);
  if (failed(settleScales(module, ops, embeddings)))
    return signalPassFailure();
  for (QuantizableOpInterface op : ops) {
    PlanAttr plan = getPlan(op);
    if (!plan)
      continue;
    // The head that drafts has the output head of the model, whose plan a method may have changed.
    FlatSymbolRefAttr global = loadedGlobal(op.getWeightOperand().get());
    if (PlanAttr first = planOf.lookup(global); global && first)
      plan = first;
    if (std::string reason = whyNotQuantizable(op, plan); !reason.empty()) {
      fallbacks.push_back({op.getSite().str(), reason});
      op->removeAttr(kPlanAttr);
      continue;
    }
    if (global)
      planOf.insert({global, plan});
    if (failed(quantizeSite(op, plan, *staticInputs)))
      return signalPassFailure();
  }
  for (lm::EmbeddingOp op : embeddings) {
    PlanAttr plan = getPlan(op);
    if (!plan)
      plan = planOf.lookup(loadedGlobal(op.getTable()));
    if (plan && failed(quantizeEmbedding(op, plan)))
      return signalPassFailure();
  }
  if (failed(reportFallbacks(fallbacks)))
    signalPassFailure();
}
