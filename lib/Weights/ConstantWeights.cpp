//===- ConstantWeights.cpp - Quantized constants --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Weights/ConstantWeights.h"

#include "mlir/Dialect/Shard/IR/ShardOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace easyquant::equant;

std::string WeightPart::key() const {
  std::string text = weight.key();
  for (const std::optional<ConstantTensor> *computed : {&scale, &zeroPoint, &outer, &codes})
    text += '\4' + (*computed ? (*computed)->key() : "");
  for (int64_t extent : {firstRow, rows, firstColumn, columns})
    text += '\4' + std::to_string(extent);
  return text;
}

std::string ConstantWeight::key() const {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << scheme << numerics::toString(rule.kind) << rule.percentile;
  for (const WeightPart &part : parts)
    os << '\n' << part.key();
  return key;
}

namespace {
/// One match; remembers what to say on failure.
struct Matcher {
  const ConstantMatcher &constants;
  Location loc;
  StringRef site;

  InFlightDiagnostic refuse() const { return emitError(loc) << "site '" << site << "': "; }
  LogicalResult fail(const Twine &expected, Value found) const {
    InFlightDiagnostic diagnostic = refuse() << "its weight is not a quantized constant: expected "
                                             << expected << ", found ";
    if (Operation *op = found.getDefiningOp())
      diagnostic << op->getName();
    else
      diagnostic << "a block argument";
    return diagnostic;
  }

  FailureOr<WeightPart> matchPart(QuantizeOp quantize, Value scale, const Part &codes) const;
  FailureOr<std::optional<ConstantTensor>> matchComputed(Value value) const;
  LogicalResult checkGroups(SchemeAttr scheme, const Part &codes, const Part &params) const;
  LogicalResult checkRows(const Part &codes, const Part &outer) const;
  LogicalResult checkComputed(SchemeAttr scheme, const ConstantTensor &weight,
                              const std::optional<ConstantTensor> &params) const;
};
} // namespace

static int64_t ceilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

/// Does the part of scales or zero points go with that of the codes?
LogicalResult Matcher::checkGroups(SchemeAttr scheme, const Part &codes, const Part &params) const {
  auto type = cast<RankedTensorType>(codes.whole.getType());
  SmallVector<int64_t, 2> offsets(2, 0), sizes(type.getShape());
  if (!codes.sizes.empty()) {
    offsets = codes.offsets;
    sizes = codes.sizes;
  }
  int64_t group = scheme.getGroupSize() ? scheme.getGroupSize() : type.getDimSize(1);
  bool isGrouped = scheme.getGranularity() == Granularity::Group;
  int64_t end = offsets[1] + sizes[1];
  // What shares a scale, or the unit of scales, stays together.
  const bool isTwoLevel = scheme.toNumerics().scales == numerics::ScaleFormat::UI6;
  const int64_t whole = isTwoLevel ? group * numerics::kSuperGroups : group;
  if (isGrouped && (offsets[1] % whole != 0 || (end % whole != 0 && end != type.getDimSize(1))))
    return refuse() << "columns " << offsets[1] << " to " << end - 1 << " of its weight cut a "
                    << (isTwoLevel ? "super-group" : "group") << " of " << whole
                    << "; expected a part that begins and ends at multiples of "
                    << (isTwoLevel ? "it" : "the group size");
  SmallVector<int64_t, 2> firsts = {offsets[0], isGrouped ? offsets[1] / group : 0};
  SmallVector<int64_t, 2> extents = {sizes[0], isGrouped ? ceilDiv(sizes[1], group) : 1};
  SmallVector<int64_t, 2> found(2, 0),
      extent(cast<RankedTensorType>(params.whole.getType()).getShape());
  if (!params.sizes.empty()) {
    found = params.offsets;
    extent = params.sizes;
  }
  if (found == firsts && extent == extents)
    return success();
  return refuse() << "its codes are the part [" << offsets << "] of sizes [" << sizes
                  << "], so that its scales and zero points must be the part [" << firsts
                  << "] of sizes [" << extents << "] of theirs, found [" << found << "] of sizes ["
                  << extent << "]";
}

/// Are outer scales of the rows of the codes?
LogicalResult Matcher::checkRows(const Part &codes, const Part &outer) const {
  auto extents = [](const Part &part) {
    int64_t rows = cast<RankedTensorType>(part.whole.getType()).getDimSize(0);
    return part.sizes.empty() ? std::pair(int64_t(0), rows)
                              : std::pair(part.offsets[0], part.sizes[0]);
  };
  if (extents(codes) == extents(outer))
    return success();
  return refuse() << "its codes are " << extents(codes).second << " rows from "
                  << extents(codes).first << " on, so that its outer scales must be those, found "
                  << extents(outer).second << " from " << extents(outer).first << " on";
}

/// Of a part of a float weight, scales of the whole weight must be of the same rows and groups.
LogicalResult Matcher::checkComputed(SchemeAttr scheme, const ConstantTensor &weight,
                                     const std::optional<ConstantTensor> &params) const {
  if (!params || !weight.isPart() || params->stored.front() != weight.stored.front())
    return success();
  int64_t group = scheme.getGroupSize() ? scheme.getGroupSize() : weight.stored[1];
  if (params->stored == weight.stored)
    group = 1; // codes
  const bool ofWholeRows = params->stored[1] == 1;
  if (params->first[0] == weight.first[0] &&
      (ofWholeRows || params->first[1] * group == weight.first[1]))
    return success();
  return refuse() << "'" << params->global << "', computed for all of '" << weight.global
                  << "', begins at row " << params->first[0] << " and column "
                  << params->first[1] * group << " of it, but its weight at row " << weight.first[0]
                  << " and column " << weight.first[1]
                  << "; expected the same part of both, cut at multiples of the group size";
}

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

FailureOr<WeightPart> Matcher::matchPart(QuantizeOp quantize, Value scale,
                                         const Part &codes) const {
  if (quantize.getScale() != scale)
    return fail("the scale that equant.quantize used", scale);
  auto qparams = scale.getDefiningOp<ChooseQParamsOp>();
  if (qparams &&
      (qparams.getInput() != quantize.getInput() || qparams.getScheme() != quantize.getScheme() ||
       qparams.getZeroPoint() != quantize.getZeroPoint() ||
       qparams.getOuter() != quantize.getOuter()))
    return fail("equant.choose_qparams of the same weight in the same scheme", scale);
  if (!qparams && !constants.getExternGlobal(scale) &&
      !isa_and_present<tensor::ExtractSliceOp, shard::AllSliceOp>(scale.getDefiningOp()))
    return fail("the scale that equant.quantize used, from equant.choose_qparams of the same "
                "weight in the same scheme, or computed by a method",
                scale);
  if (Value outer = quantize.getOuter(); outer && qparams) {
    auto made = outer.getDefiningOp<OuterScaleOp>();
    if (!made || made.getInput() != quantize.getInput() || made.getScheme() != quantize.getScheme())
      return fail("equant.outer_scale of the same weight in the same scheme", outer);
  }
  FailureOr<ConstantTensor> tensor = constants.match(loc, site, quantize.getInput());
  if (failed(tensor))
    return failure();
  auto computedScale = matchComputed(qparams ? Value() : scale);
  auto computedZeroPoint = matchComputed(qparams ? Value() : quantize.getZeroPoint());
  auto computedOuter = matchComputed(qparams ? Value() : quantize.getOuter());
  auto computedCodes = matchComputed(quantize.getRounded());
  if (failed(computedScale) || failed(computedZeroPoint) || failed(computedOuter) ||
      failed(computedCodes))
    return failure();
  SchemeAttr scheme = quantize.getScheme();
  for (const std::optional<ConstantTensor> *params :
       {&*computedScale, &*computedZeroPoint, &*computedOuter, &*computedCodes})
    if (failed(checkComputed(scheme, *tensor, *params)))
      return failure();
  WeightPart part;
  part.rows = tensor->shape.front();
  part.columns = tensor->columns();
  if (!codes.sizes.empty()) {
    part.firstRow = codes.offsets[0];
    part.firstColumn = codes.offsets[1];
    part.rows = codes.sizes[0];
    part.columns = codes.sizes[1];
  }
  part.weight = std::move(*tensor);
  part.site = site.str();
  part.scale = std::move(*computedScale);
  part.zeroPoint = std::move(*computedZeroPoint);
  part.outer = std::move(*computedOuter);
  part.codes = std::move(*computedCodes);
  return part;
}

FailureOr<ConstantWeight> easyquant::equant::matchConstantWeight(const ConstantMatcher &constants,
                                                                 Location loc,
                                                                 ArrayRef<StringRef> sites,
                                                                 Value codes, Value scales,
                                                                 Value zeroPoints, Value outer) {
  Matcher whole{constants, loc, sites.front()};
  SmallVector<Value> codeLeaves = concatenated(codes);
  SmallVector<Value> scaleLeaves = concatenated(scales);
  if (codeLeaves.size() != scaleLeaves.size())
    return whole.fail("as many scales as codes to be concatenated", scales);
  SmallVector<Value> zeroLeaves(codeLeaves.size());
  if (zeroPoints)
    zeroLeaves = concatenated(zeroPoints);
  if (codeLeaves.size() != zeroLeaves.size())
    return whole.fail("as many zero points as codes to be concatenated", zeroPoints);
  SmallVector<Value> outerLeaves(codeLeaves.size());
  if (outer)
    outerLeaves = concatenated(outer);
  if (codeLeaves.size() != outerLeaves.size())
    return whole.fail("as many outer scales as codes to be concatenated", outer);
  if (codeLeaves.size() != sites.size())
    return emitError(loc) << "site '" << sites.front() << "': " << sites.size()
                          << " sites are named, but the weight is made of " << codeLeaves.size();

  ConstantWeight weight;
  ChooseQParamsOp rule; // of the parts whose scales are not computed
  for (auto [codeLeaf, scaleLeaf, zeroLeaf, outerLeaf, site] :
       llvm::zip_equal(codeLeaves, scaleLeaves, zeroLeaves, outerLeaves, sites)) {
    Matcher matcher{constants, loc, site};
    FailureOr<Part> codePart = equant::matchPart(loc, site, codeLeaf, constants.rank);
    if (failed(codePart))
      return failure();
    auto quantize = codePart->whole.getDefiningOp<QuantizeOp>();
    if (!quantize)
      return matcher.fail("codes from equant.quantize", codePart->whole);
    // A part of computed scales is one that equant.quantize has seen, unless its codes are cut.
    auto paramsOf = [&](Value value) -> FailureOr<Part> {
      if (value && value != quantize.getScale() && value != quantize.getZeroPoint() &&
          value != quantize.getOuter())
        return equant::matchPart(loc, site, value, constants.rank);
      return Part{value, {}, {}};
    };
    FailureOr<Part> scalePart = paramsOf(scaleLeaf), zeroPart = paramsOf(zeroLeaf),
                    outerPart = paramsOf(outerLeaf);
    if (failed(scalePart) || failed(zeroPart) || failed(outerPart))
      return failure();
    if (quantize.getOuter() != outerPart->whole)
      return matcher.fail("the outer scales that equant.quantize used", codePart->whole);
    if (quantize.getZeroPoint() != zeroPart->whole)
      return matcher.fail("the zero points that equant.quantize used", codePart->whole);
    FailureOr<WeightPart> part = matcher.matchPart(quantize, scalePart->whole, *codePart);
    if (failed(part) || failed(matcher.checkGroups(quantize.getScheme(), *codePart, *scalePart)) ||
        (zeroLeaf && failed(matcher.checkGroups(quantize.getScheme(), *codePart, *zeroPart))))
      return failure();
    if (outerLeaf && failed(matcher.checkRows(*codePart, *outerPart)))
      return failure();
    if (auto qparams = scalePart->whole.getDefiningOp<ChooseQParamsOp>()) {
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
    weight.columns = part->columns;
    weight.parts.push_back(std::move(*part));
  }
  return weight;
}
