//===- AbsMax.cpp - Round to nearest with absmax scales -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/Analysis/SitePatterns.h"
#include "easyquant/Dialect/Equant/Transforms/Passes.h"

#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/IR/Builders.h"

namespace easyquant::equant {
#define GEN_PASS_DEF_ABSMAX
#include "easyquant/Dialect/Equant/Transforms/Passes.h.inc"
} // namespace easyquant::equant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

namespace {

/// The site of the output head in every architecture.
constexpr StringLiteral kHeadSite = "lm_head";
constexpr int64_t kDefaultGroupSize = 128;

/// What the options ask for. Null attributes: float.
struct Recipe {
  SchemeAttr weight, head, input;
  int64_t groupSize = 0;
  StringRef headName;
};

struct AbsMax : equant::impl::AbsMaxBase<AbsMax> {
  using AbsMaxBase::AbsMaxBase;

  void runOnOperation() override;

private:
  FailureOr<Recipe> getRecipe();
  LogicalResult quantizeSite(QuantizableOpInterface op, SchemeAttr weight, SchemeAttr input);
};

} // namespace

FailureOr<Recipe> AbsMax::getRecipe() {
  ModuleOp module = getOperation();
  struct Named {
    StringLiteral name;
    unsigned weightBits;
    bool quantizedInput;
  };
  static constexpr Named kSchemes[] = {{"W8A8", 8, true},
                                       {"W8A16", 8, false},
                                       {"W4A16", 4, false},
                                       {"W4A8", 4, true},
                                       {"none", 0, false}};
  const Named *named = llvm::find_if(kSchemes, [&](const Named &s) { return s.name == scheme; });
  if (named == std::end(kSchemes))
    return emitError(module.getLoc()) << "unknown scheme '" << scheme.getValue()
                                      << "'; legal are W8A8, W8A16, W4A16, W4A8 and none";

  Recipe recipe;
  if (head != "" && head != "int8" && head != "float")
    return emitError(module.getLoc())
           << "unknown head '" << head.getValue() << "'; legal are int8 and float";
  bool isFloat = named->weightBits == 0;
  if (isFloat && head == "int8")
    return emitError(module.getLoc())
           << "head=int8 needs a scheme that quantizes, but scheme is none";
  recipe.headName = isFloat || head == "float" ? "float" : "int8";

  recipe.groupSize = groupSize;
  if (groupSize == -1)
    recipe.groupSize = named->weightBits == 4 ? kDefaultGroupSize : 0;
  if (isFloat && recipe.groupSize != 0)
    return emitError(module.getLoc())
           << "group size " << groupSize.getValue() << " needs a scheme, but scheme is none";
  if (named->weightBits == 4 && recipe.groupSize == 0)
    return emitError(module.getLoc())
           << "scheme " << scheme.getValue()
           << " needs groups: give a group size that is a positive multiple of 8";
  if (recipe.groupSize < 0 || recipe.groupSize % 8 != 0)
    return emitError(module.getLoc())
           << "group size must be a positive multiple of 8"
           << (named->weightBits == 8 ? ", or 0 for a scale per channel" : "") << "; found "
           << groupSize.getValue();
  if (isFloat)
    return recipe;

  MLIRContext *context = &getContext();
  recipe.weight = recipe.groupSize == 0
                      ? SchemeAttr::perChannel(context, named->weightBits)
                      : SchemeAttr::perGroup(context, named->weightBits, recipe.groupSize);
  if (recipe.headName == "int8")
    recipe.head = SchemeAttr::perChannel(context, 8);
  if (named->quantizedInput)
    recipe.input = SchemeAttr::perToken(context, 8);
  return recipe;
}

/// The scales and codes of a constant weight.
static std::pair<Value, Value> quantizeWeight(OpBuilder &builder, Location loc, Value weight,
                                              SchemeAttr scheme) {
  auto qparams = ChooseQParamsOp::create(builder, loc, weight, ScaleRule::AbsMax, scheme);
  auto codes = QuantizeOp::create(builder, loc, weight, qparams.getScale(), qparams.getZeroPoint(),
                                  /*rounded=*/Value(), scheme);
  return {qparams.getScale(), codes.getCodes()};
}

LogicalResult AbsMax::quantizeSite(QuantizableOpInterface op, SchemeAttr weight, SchemeAttr input) {
  Value activation = op.getActivationOperand().get(), matrix = op.getWeightOperand().get();
  if (op.getContractionAxis() != 1)
    return emitError(op.getLoc()) << "site '" << op.getSite() << "' sums over axis "
                                  << op.getContractionAxis()
                                  << " of its weight, expected 1 (weights are out x in features)";
  if (input) {
    // Codes are packed later, and then offset: check now, while the site has a name to complain
    // with.
    int64_t products = accumulatedProducts(weight, lm::columns(activation));
    int64_t limit = maxAccumulatedProducts(weight, input, /*packed=*/true);
    if (products > limit)
      return emitError(op.getLoc())
             << "site '" << op.getSite() << "' sums " << products
             << " products, but an int32 accumulator holds " << limit << " of " << weight << " by "
             << input << "; give a group size, leave activations float (A16) or ignore the site";
  }
  OpBuilder builder(op);
  auto [scale, codes] = quantizeWeight(builder, op.getLoc(), matrix, weight);
  auto linear = equant::LinearOp::create(builder, op.getLoc(), op->getResult(0).getType(),
                                         activation, codes, scale,
                                         /*zero_point=*/Value(), op.getBiasValue(),
                                         builder.getStrArrayAttr({op.getSite()}), weight, input,
                                         /*layout=*/LayoutAttr());
  op->getResult(0).replaceAllUsesWith(linear);
  op->erase();
  return success();
}

/// The global that a value is loaded from, or null.
static FlatSymbolRefAttr loadedGlobal(Value value) {
  auto load = value.getDefiningOp<ml_program::GlobalLoadConstOp>();
  return load ? dyn_cast<FlatSymbolRefAttr>(load.getGlobal()) : FlatSymbolRefAttr();
}

static void quantizeEmbedding(lm::EmbeddingOp op, SchemeAttr scheme) {
  OpBuilder builder(op);
  auto [scale, codes] = quantizeWeight(builder, op.getLoc(), op.getTable(), scheme);
  auto embedding = equant::EmbeddingOp::create(
      builder, op.getLoc(), op.getType(), op.getTokens(), codes, scale, /*zero_point=*/Value(),
      cast<RankedTensorType>(op.getTable().getType()).getDimSize(0), scheme,
      /*layout=*/LayoutAttr());
  op.replaceAllUsesWith(embedding.getOutput());
  op.erase();
}

void AbsMax::runOnOperation() {
  ModuleOp module = getOperation();
  auto onModule = [&] { return emitError(module.getLoc()); };
  if (module->hasAttr(kRecipeAttr)) {
    onModule() << "module is quantized already: it has " << kRecipeAttr;
    return signalPassFailure();
  }
  FailureOr<Recipe> recipe = getRecipe();
  if (failed(recipe))
    return signalPassFailure();

  SmallVector<QuantizableOpInterface> ops;
  SmallVector<StringRef> sites;
  module.walk([&](QuantizableOpInterface op) {
    ops.push_back(op);
    sites.push_back(op.getSite());
  });
  FailureOr<SitePatterns> ignored = SitePatterns::get(*ignore, sites, "ignore", onModule);
  FailureOr<SitePatterns> targeted = SitePatterns::get(*targets, sites, "targets", onModule);
  if (failed(ignored) || failed(targeted))
    return signalPassFailure();

  llvm::SmallDenseSet<Attribute> heads; // globals of quantized heads
  for (QuantizableOpInterface op : ops) {
    StringRef site = op.getSite();
    bool isHead = site == kHeadSite;
    SchemeAttr weight = isHead ? recipe->head : recipe->weight;
    if (!weight || ignored->contains(site) || (!targets.empty() && !targeted->contains(site)))
      continue;
    if (FlatSymbolRefAttr global = loadedGlobal(op.getWeightOperand().get()); isHead && global)
      heads.insert(global);
    if (failed(quantizeSite(op, weight, recipe->input)))
      return signalPassFailure();
  }
  SmallVector<lm::EmbeddingOp> tied;
  module.walk([&](lm::EmbeddingOp op) {
    if (FlatSymbolRefAttr global = loadedGlobal(op.getTable()); global && heads.contains(global))
      tied.push_back(op);
  });
  for (lm::EmbeddingOp op : tied)
    quantizeEmbedding(op, recipe->head);

  Builder builder(&getContext());
  auto strings = [&](ArrayRef<std::string> list) {
    return builder.getStrArrayAttr(SmallVector<StringRef>(list.begin(), list.end()));
  };
  module->setAttr(
      kRecipeAttr,
      builder.getDictionaryAttr(
          {builder.getNamedAttr("method", builder.getStringAttr("absmax")),
           builder.getNamedAttr("scheme", builder.getStringAttr(scheme)),
           builder.getNamedAttr("group_size", builder.getI64IntegerAttr(recipe->groupSize)),
           builder.getNamedAttr("head", builder.getStringAttr(recipe->headName)),
           builder.getNamedAttr("ignore", strings(*ignore)),
           builder.getNamedAttr("targets", strings(*targets))}));
}
