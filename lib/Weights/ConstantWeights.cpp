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
  for (const std::optional<ConstantTensor> *computed :
       {&scale, &zeroPoint, &minimum, &outer, &codes})
    text += '\4' + (*computed ? (*computed)->key() : "");
  for (int64_t extent : {firstRow, rows, firstColumn, columns, blocks})
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

  /// The part that a leaf is, and the op that makes it, behind one equant.slice,
  /// equant.all_slice or equant.expert_slice.
  FailureOr<WeightPart> match(Value leaf, Operation *&maker) const;
  FailureOr<std::optional<ConstantTensor>> matchComputed(Value value) const;
  LogicalResult checkComputed(SchemeAttr scheme, const ConstantTensor &weight,
                              const std::optional<ConstantTensor> &params) const;
};
} // namespace

/// Where a part of a float weight has scales of the whole weight, they must be of the same rows and
/// groups.
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

/// A computed global, or one that the model has, or nothing for a null value.
FailureOr<std::optional<ConstantTensor>> Matcher::matchComputed(Value value) const {
  if (!value)
    return std::optional<ConstantTensor>();
  FailureOr<ConstantTensor> tensor = constants.match(loc, site, value);
  if (failed(tensor))
    return failure();
  if ((!tensor->isComputed() && !tensor->isStored) || !tensor->steps.empty())
    return emitError(loc)
           << "site '" << site << "': global '" << tensor->global
           << "' must be a computed tensor or one of the model's codes: it has neither "
           << kFileAttr << " nor " << kStoredAttr;
  return std::optional<ConstantTensor>(std::move(*tensor));
}

FailureOr<WeightPart> Matcher::match(Value leaf, Operation *&maker) const {
  Value whole = leaf;
  WeightPart part;
  auto shape = cast<WeightType>(leaf.getType());
  part.rows = shape.getRows();
  part.columns = shape.getColumns();
  if (auto slice = leaf.getDefiningOp<SliceOp>()) {
    whole = slice.getInput();
    part.firstRow = slice.getOffsets()[0];
    part.firstColumn = slice.getOffsets()[1];
  } else if (auto slice = leaf.getDefiningOp<AllSliceOp>()) {
    whole = slice.getInput();
    auto type = cast<WeightType>(whole.getType());
    const int64_t ranks = type.getRows() / part.rows * (type.getColumns() / part.columns);
    if (constants.rank >= ranks)
      return refuse() << "expected a part of a constant for rank " << constants.rank << ", found "
                      << *slice.getOperation();
    (slice.getAxis() == 0 ? part.firstRow : part.firstColumn) =
        constants.rank * (slice.getAxis() == 0 ? part.rows : part.columns);
  } else if (auto slice = leaf.getDefiningOp<ExpertSliceOp>()) {
    whole = slice.getInput();
    part.blocks = static_cast<int64_t>(slice.getExperts());
    if (constants.rank >= cast<WeightType>(whole.getType()).getRows() / part.rows)
      return refuse() << "expected a part of a constant for rank " << constants.rank << ", found "
                      << *slice.getOperation();
    part.firstRow = constants.rank * (part.rows / part.blocks);
  }
  maker = whole.getDefiningOp();
  auto quantize = whole.getDefiningOp<QuantizeOp>();
  auto codes = whole.getDefiningOp<FromCodesOp>();
  if (!quantize && !codes)
    return fail("equant.quantize or equant.from_codes", whole);
  FailureOr<ConstantTensor> tensor =
      constants.match(loc, site, quantize ? quantize.getInput() : codes.getCodes());
  if (failed(tensor))
    return failure();
  auto computed = [&](auto op) -> LogicalResult {
    auto scale = matchComputed(op.getScale()), zeroPoint = matchComputed(op.getZeroPoint()),
         minimum = matchComputed(op.getMinimum()), outer = matchComputed(op.getOuter());
    if (failed(scale) || failed(zeroPoint) || failed(minimum) || failed(outer))
      return failure();
    part.scale = std::move(*scale);
    part.zeroPoint = std::move(*zeroPoint);
    part.minimum = std::move(*minimum);
    part.outer = std::move(*outer);
    return success();
  };
  auto rounded = matchComputed(quantize ? quantize.getRounded() : codes.getCodes());
  if (failed(rounded) || failed(quantize ? computed(quantize) : computed(codes)))
    return failure();
  part.codes = std::move(*rounded);
  part.hasFloats = bool(quantize);
  SchemeAttr scheme = shape.getScheme();
  for (const std::optional<ConstantTensor> *params :
       {&part.scale, &part.zeroPoint, &part.minimum, &part.outer, &part.codes})
    if (failed(checkComputed(scheme, *tensor, *params)))
      return failure();
  part.weight = std::move(*tensor);
  part.site = site.str();
  return part;
}

FailureOr<ConstantWeight> easyquant::equant::matchConstantWeight(const ConstantMatcher &constants,
                                                                 Location loc,
                                                                 ArrayRef<StringRef> sites,
                                                                 Value value) {
  SmallVector<Value> leaves = concatenated(value);
  if (leaves.size() != sites.size())
    return emitError(loc) << "site '" << sites.front() << "': " << sites.size()
                          << " sites are named, but the weight is made of " << leaves.size();
  auto type = cast<WeightType>(value.getType());
  ConstantWeight weight;
  weight.scheme = type.getScheme();
  weight.rows = type.getRows();
  weight.columns = type.getColumns();
  QuantizeOp rule; // of the parts whose scales are not computed
  for (auto [leaf, site] : llvm::zip_equal(leaves, sites)) {
    Matcher matcher{constants, loc, site};
    Operation *maker = nullptr;
    FailureOr<WeightPart> part = matcher.match(leaf, maker);
    if (failed(part))
      return failure();
    if (auto quantize = dyn_cast<QuantizeOp>(maker); quantize && quantize.getRule()) {
      if (rule && (rule.getRule() != quantize.getRule() ||
                   rule.getPercentileAttr() != quantize.getPercentileAttr()))
        return matcher.fail("one rule for all rows", leaf);
      rule = quantize;
      weight.rule = toNumerics(*rule.getRule(), rule.getPercentileAttr());
    }
    weight.parts.push_back(std::move(*part));
  }
  return weight;
}
