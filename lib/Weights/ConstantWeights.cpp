//===- ConstantWeights.cpp - Quantized constants --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/ConstantWeights.h"

using namespace mlir;
using namespace easyquant::equant;

std::string WeightPart::key() const {
  std::string text = weight.key();
  for (const std::optional<ConstantTensor> *computed : {&scale, &zeroPoint, &codes})
    text += '\4' + (*computed ? (*computed)->key() : "");
  return text;
}

namespace {
/// One match; remembers what to say on failure.
struct Matcher {
  const ConstantMatcher &constants;
  Location loc;
  StringRef site;

  LogicalResult fail(const Twine &expected, Value found) const {
    InFlightDiagnostic diagnostic =
        emitError(loc) << "site '" << site << "': its weight is not a quantized constant: expected "
                       << expected << ", found ";
    if (Operation *op = found.getDefiningOp())
      diagnostic << op->getName();
    else
      diagnostic << "a block argument";
    return diagnostic;
  }

  FailureOr<WeightPart> matchPart(QuantizeOp quantize, Value scale) const;
  FailureOr<std::optional<ConstantTensor>> matchComputed(Value value) const;
};
} // namespace

/// A computed global, or nothing for a null value.
FailureOr<std::optional<ConstantTensor>> Matcher::matchComputed(Value value) const {
  if (!value)
    return std::optional<ConstantTensor>();
  FailureOr<ConstantTensor> tensor = constants.match(loc, site, value);
  if (failed(tensor))
    return failure();
  if (!tensor->isComputed() || !tensor->steps.empty())
    return emitError(loc) << "site '" << site << "': global '" << tensor->global
                          << "' must be a computed tensor: it has no " << kFileAttr;
  return std::optional<ConstantTensor>(std::move(*tensor));
}

FailureOr<WeightPart> Matcher::matchPart(QuantizeOp quantize, Value scale) const {
  if (quantize.getScale() != scale)
    return fail("the scale that equant.quantize used", scale);
  auto qparams = scale.getDefiningOp<ChooseQParamsOp>();
  if (qparams &&
      (qparams.getInput() != quantize.getInput() || qparams.getScheme() != quantize.getScheme() ||
       qparams.getZeroPoint() != quantize.getZeroPoint()))
    return fail("equant.choose_qparams of the same weight in the same scheme", scale);
  if (!qparams && !constants.getExternGlobal(scale))
    return fail("the scale that equant.quantize used, from equant.choose_qparams of the same "
                "weight in the same scheme, or computed by a method",
                scale);
  FailureOr<ConstantTensor> tensor = constants.match(loc, site, quantize.getInput());
  if (failed(tensor))
    return failure();
  auto computedScale = matchComputed(qparams ? Value() : scale);
  auto computedZeroPoint = matchComputed(qparams ? Value() : quantize.getZeroPoint());
  auto computedCodes = matchComputed(quantize.getRounded());
  if (failed(computedScale) || failed(computedZeroPoint) || failed(computedCodes))
    return failure();
  WeightPart part;
  part.rows = tensor->shape.front();
  part.weight = std::move(*tensor);
  part.site = site.str();
  part.scale = std::move(*computedScale);
  part.zeroPoint = std::move(*computedZeroPoint);
  part.codes = std::move(*computedCodes);
  return part;
}

FailureOr<ConstantWeight> easyquant::equant::matchConstantWeight(const ConstantMatcher &constants,
                                                                 Location loc,
                                                                 ArrayRef<StringRef> sites,
                                                                 Value codes, Value scales,
                                                                 Value zeroPoints) {
  Matcher whole{constants, loc, sites.front()};
  auto pack = codes.getDefiningOp<PackOp>();
  if (!pack)
    return whole.fail("codes from equant.pack", codes);
  auto packScales = scales.getDefiningOp<PackScalesOp>();
  if (!packScales || packScales.getLayout() != pack.getLayout())
    return whole.fail("scales from equant.pack_scales in the layout of the codes", scales);
  SmallVector<Value> codeLeaves = concatenated(pack.getCodes());
  SmallVector<Value> scaleLeaves = concatenated(packScales.getScale());
  if (codeLeaves.size() != scaleLeaves.size())
    return whole.fail("as many scales as codes to be concatenated", packScales.getScale());
  SmallVector<Value> zeroLeaves(codeLeaves.size());
  if (zeroPoints)
    zeroLeaves = concatenated(zeroPoints);
  if (codeLeaves.size() != zeroLeaves.size())
    return whole.fail("as many zero points as codes to be concatenated", zeroPoints);
  if (codeLeaves.size() != sites.size())
    return emitError(loc) << "site '" << sites.front() << "': " << sites.size()
                          << " sites are named, but the weight is made of " << codeLeaves.size();

  ConstantWeight weight;
  weight.layout = pack.getLayout();
  ChooseQParamsOp rule; // of the parts whose scales are not computed
  for (auto [codeLeaf, scaleLeaf, zeroLeaf, site] :
       llvm::zip_equal(codeLeaves, scaleLeaves, zeroLeaves, sites)) {
    Matcher matcher{constants, loc, site};
    auto quantize = codeLeaf.getDefiningOp<QuantizeOp>();
    if (!quantize)
      return matcher.fail("codes from equant.quantize", codeLeaf);
    if (quantize.getZeroPoint() != zeroLeaf)
      return matcher.fail("the zero points that equant.quantize used", codeLeaf);
    FailureOr<WeightPart> part = matcher.matchPart(quantize, scaleLeaf);
    if (failed(part))
      return failure();
    if (auto qparams = scaleLeaf.getDefiningOp<ChooseQParamsOp>()) {
      if (rule && (rule.getRule() != qparams.getRule() ||
                   rule.getPercentileAttr() != qparams.getPercentileAttr()))
        return matcher.fail("one rule for all rows", codeLeaf);
      rule = qparams;
      weight.rule = toNumerics(rule.getRule(), rule.getPercentileAttr());
    }
    if (!weight.parts.empty() && weight.scheme != quantize.getScheme())
      return matcher.fail("one scheme for all rows", codeLeaf);
    weight.scheme = quantize.getScheme();
    weight.rows += part->rows;
    weight.columns = part->weight.columns();
    weight.parts.push_back(std::move(*part));
  }
  return weight;
}
