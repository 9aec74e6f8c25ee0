//===- EquantOps.cpp - Quantization operations ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "easyquant/Dialect/LM/IR/Attention.h"
#include "easyquant/Numerics/Bounds.h"
#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/NumberFormats.h"
#include "easyquant/Numerics/OnlineScales.h"
#include "easyquant/Numerics/SiteStatistics.h"

#include "mlir/IR/Builders.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

#define GET_OP_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantOps.cpp.inc"

static RankedTensorType tensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

LogicalResult ObserveOp::verify() {
  if (getSites().empty())
    return emitOpError("must name the sites that read its input");
  if (getStatistics().empty())
    return emitOpError("must name at least one statistic");
  for (StringRef name : getStatistics().getAsValueRange<StringAttr>()) {
    if (!numerics::isStatistic(name))
      return emitOpError() << "has no statistic '" << name << "'; legal are "
                           << numerics::SiteStatistics::names();
    if (getOffsets() && !numerics::isOfExperts(name))
      return emitOpError() << "asks for '" << name
                           << "' of experts, whose rows do not follow each other in a text";
  }
  if (bool(getOrder()) != bool(getOffsets()))
    return emitOpError("of experts takes the order of their rows and where those of each begin");
  return success();
}

/// Is a part of the weight there exactly when its type has it, and in the type that follows?
static LogicalResult verifyPart(Operation *op, WeightType weight, StringRef what,
                                numerics::WeightTensor part, Value found) {
  RankedTensorType expected = weight.getPart(part);
  if (bool(expected) != bool(found))
    return op->emitOpError() << (found ? "has " : "has no ") << what << ", but "
                             << weight.getScheme() << (found ? " has none" : " has them");
  if (found && found.getType() != expected)
    return op->emitOpError(what) << " must be " << expected << " for " << weight << ", found "
                                 << found.getType();
  return success();
}

template <typename Op> static LogicalResult verifyParts(Op op, WeightType weight) {
  using numerics::WeightTensor;
  auto isPart = [&](StringRef what, WeightTensor part, Value found) {
    return succeeded(verifyPart(op, weight, what, part, found));
  };
  return success(isPart("scales", WeightTensor::Scales, op.getScale()) &&
                 isPart("zero points", WeightTensor::ZeroPoints, op.getZeroPoint()) &&
                 isPart("minima", WeightTensor::Minima, op.getMinimum()) &&
                 isPart("outer scales", WeightTensor::Outer, op.getOuter()));
}

static LogicalResult verifyBias(Operation *op, Value bias, int64_t columns) {
  if (!bias || tensorType(bias).getDimSize(0) == columns)
    return success();
  return op->emitOpError("bias has ") << tensorType(bias).getDimSize(0)
                                      << " elements, but the result has " << columns << " columns";
}

//===----------------------------------------------------------------------===//
// Accumulators
//===----------------------------------------------------------------------===//

int64_t easyquant::equant::maxAccumulatedProducts(SchemeAttr weight, SchemeAttr input,
                                                  bool packed) {
  return numerics::maxDotLength(weight.toNumerics(), input.toNumerics(), /*stored=*/packed);
}

int64_t easyquant::equant::accumulatedProducts(SchemeAttr weight, SchemeAttr input, int64_t k) {
  const int64_t group = sumsGroup(weight, input);
  return group ? std::min(group, k) : k;
}

int64_t easyquant::equant::sumsGroup(SchemeAttr weight, SchemeAttr input) {
  const int64_t group = input ? input.getTokenGroup() : 0;
  return group ? group : weight.getGroupSize();
}

std::string easyquant::equant::whyGroupsDiffer(SchemeAttr weight, SchemeAttr input) {
  std::string reason;
  if (!numerics::fitsGroups(input.getTokenGroup(), weight.getGroupSize()))
    llvm::raw_string_ostream(reason)
        << "groups of " << input.getTokenGroup() << " columns of activations do not divide the "
        << "groups of " << weight.getGroupSize() << " of the weight; take groups of activations "
        << "that do, one scale a token, or other groups of the weight";
  return reason;
}

std::string easyquant::equant::whyNotQuantizable(QuantizableOpInterface op, PlanAttr plan) {
  std::string reason = op.whyNoLinear();
  llvm::raw_string_ostream os(reason);
  if (!reason.empty() || !plan.getInput() || !plan.getInput().isInteger())
    return reason;
  SchemeAttr weight = plan.getWeight(), input = plan.getInput();
  if (!weight.hasIntegerValues()) {
    os << "has int8 activations, but the values of its table, " << weight.getCodebook()
       << ", are not all multiples by -127 to 127 of one power of two; take such a table (iq4_nl, "
          "nf4_int8, learned"
       << weight.getBits() << "_int8) or leave activations float (A16)";
    return reason;
  }
  // Codes are packed later, and then offset: check now, while the site has a name to complain with.
  int64_t products = accumulatedProducts(weight, input, op.getFeatures().inputs);
  int64_t limit = maxAccumulatedProducts(weight, input, /*packed=*/true);
  if (products > limit)
    os << "sums " << products << " products, but an int32 accumulator holds " << limit << " of "
       << weight << " by " << input
       << "; give a group size, leave activations float (A16) or ignore the site";
  return reason;
}

//===----------------------------------------------------------------------===//
// Codes and scales
//===----------------------------------------------------------------------===//

// Enumerators of the IR and of lib/Numerics are the same numbers.
static_assert(unsigned(ScaleRule::AbsMax) == unsigned(numerics::ScaleRuleKind::AbsMax) &&
              unsigned(ScaleRule::ZeroPoint) == unsigned(numerics::ScaleRuleKind::ZeroPoint) &&
              unsigned(ScaleRule::Symmetric) == unsigned(numerics::ScaleRuleKind::Symmetric) &&
              unsigned(ScaleRule::Percentile) == unsigned(numerics::ScaleRuleKind::Percentile) &&
              unsigned(ScaleRule::Mse) == unsigned(numerics::ScaleRuleKind::Mse) &&
              unsigned(ScaleRule::Entropy) == unsigned(numerics::ScaleRuleKind::Entropy) &&
              unsigned(ScaleRule::HessianDiagonal) ==
                  unsigned(numerics::ScaleRuleKind::HessianDiagonal));

numerics::ScaleRule easyquant::equant::toNumerics(ScaleRule rule, FloatAttr percentile) {
  numerics::ScaleRule numeric{.kind = static_cast<numerics::ScaleRuleKind>(rule)};
  if (percentile)
    numeric.percentile = percentile.getValueAsDouble();
  return numeric;
}

std::string easyquant::equant::whyRuleCannotServe(ScaleRule rule, FloatAttr percentile,
                                                  SchemeAttr scheme) {
  if (percentile && rule != ScaleRule::Percentile)
    return "a percentile belongs to rule percentile, found rule " + stringifyScaleRule(rule).str();
  auto served = numerics::checkScaleRule(toNumerics(rule, percentile), scheme.toNumerics());
  return served ? "" : served.error().message;
}

LogicalResult QuantizeOp::verify() {
  WeightType weight = getWeight().getType();
  if (tensorType(getInput()).getShape() != ArrayRef({weight.getRows(), weight.getColumns()}))
    return emitOpError("gives a weight of the shape of its input, found ")
           << weight << " of " << getInput().getType();
  if (bool(getRule()) == bool(getScale()))
    return emitOpError("scales follow from a rule or are an operand: expected one of them, found ")
           << (getScale() ? "both" : "neither");
  if (getScale()) {
    if (getPercentileAttr())
      return emitOpError("a percentile belongs to rule percentile, found scales");
    if (getRounded() && failed(verifyPart(*this, weight, "rounded codes",
                                          numerics::WeightTensor::Codes, getRounded())))
      return failure();
    return verifyParts(*this, weight);
  }
  if (getZeroPoint() || getMinimum() || getOuter() || getRounded())
    return emitOpError(
        "zero points, minima, outer scales and codes are those of scales, which it needs "
        "beside them");
  if (std::string problem = whyRuleCannotServe(*getRule(), getPercentileAttr(), weight.getScheme());
      !problem.empty())
    return emitOpError(problem);
  if (getRule() == ScaleRule::HessianDiagonal)
    return emitOpError("rule hessian_diagonal needs activations of calibration text; "
                       "equant-choose-ranges chooses by it");
  return success();
}

LogicalResult FromCodesOp::verify() {
  using numerics::WeightTensor;
  WeightType weight = getWeight().getType();
  const auto bytes = weight.getPart(WeightTensor::Codes).clone(IntegerType::get(getContext(), 8));
  if (getCodes().getType() != bytes &&
      failed(verifyPart(*this, weight, "codes", WeightTensor::Codes, getCodes())))
    return failure();
  return verifyParts(*this, weight);
}

LogicalResult DequantizeOp::verify() {
  WeightType weight = getWeight().getType();
  if (getOutput().getType().getShape() == ArrayRef({weight.getRows(), weight.getColumns()}))
    return success();
  return emitOpError("expected the ") << weight.getRows() << "x" << weight.getColumns()
                                      << " values of the weight, found " << getOutput().getType();
}

LogicalResult SliceOp::verify() {
  WeightType input = getInput().getType(), output = getOutput().getType();
  ArrayRef<int64_t> offsets = getOffsets(), sizes = getSizes();
  const int64_t extents[] = {input.getRows(), input.getColumns()};
  bool isPart = offsets.size() == 2 && sizes.size() == 2;
  for (size_t i = 0; isPart && i < 2; ++i)
    isPart = offsets[i] >= 0 && offsets[i] <= extents[i] && sizes[i] > 0 &&
             sizes[i] <= extents[i] - offsets[i];
  if (!isPart)
    return emitOpError("expected two offsets and two sizes of a part of ")
           << input << ", found [" << offsets << "] and [" << sizes << "]";
  if (output != input.withShape(sizes[0], sizes[1]))
    return emitOpError("expected a result of ")
           << input.withShape(sizes[0], sizes[1]) << ", found " << output;
  const int64_t unit = input.getColumnUnit(), end = offsets[1] + sizes[1];
  if (offsets[1] % unit != 0 || (end % unit != 0 && end != input.getColumns()))
    return emitOpError("columns ") << offsets[1] << " to " << end - 1 << " cut a group of " << unit
                                   << "; expected a part that begins and ends at multiples of it";
  return success();
}

std::string easyquant::equant::whyNoInputScheme(SchemeAttr scheme) {
  std::string reason;
  llvm::raw_string_ostream os(reason);
  bool isStatic = !scheme.getDynamic();
  bool isGrouped = scheme.getOuter() && scheme.getGranularity() == Granularity::Group &&
                   !isStatic && !scheme.isInteger();
  if (!scheme.isInteger() && !numerics::floatFormat(scheme.toNumerics().codes))
    os << "input must be quantized to integers, FP8 or FP4, found " << scheme;
  else if (!isGrouped &&
           (scheme.getOuter() ||
            scheme.getGranularity() != (isStatic ? Granularity::Tensor : Granularity::Token) ||
            (!isStatic && !scheme.getSymmetric() && !scheme.getTokenGroup())))
    os << "input must be quantized per token, dynamic and symmetric but for groups, per tensor "
          "with a constant "
          "scale, or, of codes that are no integers, in groups with dynamic and outer scales, "
          "found "
       << scheme;
  else if (scheme.isOnline() && (!scheme.isInteger() || scheme.getBits() != 8 ||
                                 !scheme.getSymmetric() || scheme.getFullRange()))
    os << "online scales are of symmetric codes i8, found " << scheme;
  return reason;
}

/// Checks the scheme of activations, and its constant, for a linear or a quantization of rows.
static LogicalResult verifyInputScale(Operation *op, SchemeAttr scheme, FloatAttr scale) {
  if (std::string reason = whyNoInputScheme(scheme); !reason.empty())
    return op->emitOpError(reason);
  if (scale && (!std::isnormal(scale.getValueAsDouble()) || scale.getValueAsDouble() < 0))
    return op->emitOpError("the scale of the input must be finite, normal and positive, found ")
           << scale;
  return success();
}

LogicalResult FakeQuantizeOp::verify() {
  SchemeAttr scheme = getScheme();
  if (scheme.isInteger())
    return emitOpError("integers have codes of their own, found ") << scheme;
  if (scheme.isCalibrated() != bool(getScaleAttr()))
    return emitOpError("scale belongs to a scheme that is static or has an outer scale, and such a "
                       "scheme has it");
  return verifyInputScale(*this, scheme, getScaleAttr());
}

//===----------------------------------------------------------------------===//
// What is computed at run time
//===----------------------------------------------------------------------===//

LogicalResult QuantizeRowsOp::verify() {
  SchemeAttr scheme = getScheme();
  if (scheme.isOnline() != bool(getOnline()))
    return emitOpError("online scales belong to an online scheme, and such a scheme has them");
  if ((scheme.isStatic() || scheme.getOuter()) != bool(getScaleAttr()) ||
      (scheme.getSymmetric() || scheme.getTokenGroup()) == bool(getZeroPointAttr()))
    return emitOpError("scale belongs to a static scheme or an outer one, zero_point to an "
                       "asymmetric one without groups");
  if (getAbsmax() && getRows().getType().isBlockScaled())
    return emitOpError("absmax is of whole rows, which have a scale; found ") << scheme;
  if (getAbsmax() && scheme.getTokenGroup())
    return emitOpError("absmax is of whole rows, which groups do not have, found ") << scheme;
  if (getAbsmax() && !scheme.getDynamic() && !scheme.hasSinksAroundZero())
    return emitOpError("absmax belongs to a dynamic scheme, or to one with sinks in a range around "
                       "0, found ")
           << scheme;
  if (lm::columns(getInput()) != getRows().getType().getColumns())
    return emitOpError("expected ")
           << lm::columns(getInput()) << " columns of codes, found " << getRows().getType();
  return verifyInputScale(*this, scheme, getScaleAttr());
}

static LogicalResult verifySite(Operation *op, int64_t index, lm::StateType state) {
  if (index < state.getSites())
    return success();
  return op->emitOpError("index must be one of the ")
         << state.getSites() << " sites of the state, found " << index;
}

LogicalResult OnlineScaleOp::verify() {
  return verifySite(*this, static_cast<int64_t>(getIndex()), getState().getType());
}

LogicalResult TrackOp::verify() {
  return verifySite(*this, static_cast<int64_t>(getIndex()), getState().getType());
}

LogicalResult AdvanceOp::verify() {
  double decay = getDecay().convertToDouble();
  if (!(decay >= 0 && decay < 1))
    return emitOpError("decay must be at least 0 and less than 1, found ") << getDecayAttr();
  auto window = static_cast<int64_t>(getWindow());
  int64_t fields = getState().getType().getFields();
  if (window > lm::kMaxStateFields || fields != numerics::onlineFields(window))
    return emitOpError("a window of ")
           << window << " steps takes a state of "
           << numerics::onlineFields(std::min(window, lm::kMaxStateFields)) << " fields, found "
           << fields;
  return success();
}

LogicalResult RescaleOp::verify() {
  if (getSites().empty())
    return emitOpError("sites must name the linears whose sums it scales");
  WeightType weight = getWeight().getType();
  int64_t n = lm::columns(getOutput());
  if (lm::columns(getSums()) != n || weight.getRows() != n)
    return emitOpError("expected ") << n << " columns of sums and rows of the weight, found "
                                    << getSums().getType() << " and " << weight;
  if (!weight.getScheme().isInteger() ||
      weight.getScheme().getGranularity() != Granularity::Channel)
    return emitOpError("expected integers with a scale a channel, found ") << weight.getScheme();
  if (getRows().getType().getScheme().getTokenGroup())
    return emitOpError("expected one scale a row, found ") << getRows().getType();
  return verifyBias(*this, getBias(), n);
}

LogicalResult FusionOp::verify() {
  Operation *yield = getBody().front().getTerminator();
  if (getBody().front().getOperations().size() < 2 || yield->getOperandTypes() != getResultTypes())
    return emitOpError("expected ops, and results of the types that they yield");
  return success();
}

//===----------------------------------------------------------------------===//
// ConcatOp
//===----------------------------------------------------------------------===//

static int64_t rowsOf(Type type) {
  auto weight = dyn_cast<WeightType>(type);
  return weight ? weight.getRows() : cast<RankedTensorType>(type).getDimSize(0);
}

/// `type` with another number of rows.
static Type withRows(Type type, int64_t rows) {
  if (auto weight = dyn_cast<WeightType>(type))
    return weight.withShape(rows, weight.getColumns());
  return cast<RankedTensorType>(type).clone(ArrayRef<int64_t>(rows));
}

void ConcatOp::build(OpBuilder &builder, OperationState &state, ValueRange inputs) {
  int64_t rows = 0;
  for (Value input : inputs)
    rows += rowsOf(input.getType());
  build(builder, state, withRows(inputs.front().getType(), rows), inputs);
}

LogicalResult ConcatOp::verify() {
  if (getInputs().empty())
    return emitOpError("must have an operand");
  Type output = getOutput().getType();
  auto weight = dyn_cast<WeightType>(output);
  if (weight && weight.getScheme().getGranularity() != Granularity::Channel &&
      weight.getScheme().getGranularity() != Granularity::Group)
    return emitOpError("scales per tensor have no place below each other, found ") << output;
  int64_t rows = 0;
  for (Value input : getInputs()) {
    Type type = input.getType();
    if (isa<WeightType>(type) != bool(weight) || withRows(output, rowsOf(type)) != type)
      return emitOpError("operand ")
             << type << " differs from the result " << output << " in more than its rows";
    rows += rowsOf(type);
  }
  if (rows != rowsOf(output))
    return emitOpError("operands have ")
           << rows << " rows together, but the result has " << rowsOf(output);
  return success();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  return getInputs().size() == 1 ? OpFoldResult(getInputs().front()) : OpFoldResult();
}

/// concat(concat(a, b), c) is concat(a, b, c).
LogicalResult ConcatOp::canonicalize(ConcatOp op, PatternRewriter &rewriter) {
  SmallVector<Value> inputs;
  for (Value input : op.getInputs()) {
    if (auto inner = input.getDefiningOp<ConcatOp>())
      llvm::append_range(inputs, inner.getInputs());
    else
      inputs.push_back(input);
  }
  if (inputs.size() == op.getInputs().size())
    return rewriter.notifyMatchFailure(op, "no operand is a concat of several");
  rewriter.replaceOpWithNewOp<ConcatOp>(op, inputs);
  return success();
}

//===----------------------------------------------------------------------===//
// Quantized building blocks
//===----------------------------------------------------------------------===//

/// Checks what a linear on floats says of the quantization of its input.
template <typename OpT> static LogicalResult verifyFloatInput(OpT op, SchemeAttr input) {
  bool hasOnlineScales = input && input.isOnline() && op.getOnline();
  if (op.getOnline() && !hasOnlineScales)
    return op.emitOpError("online scales belong to an online scheme");
  bool hasScale = input && input.isCalibrated() && !hasOnlineScales;
  if (hasScale != bool(op.getInputScaleAttr()) ||
      (hasScale && !input.getDynamic() && !input.getSymmetric()) !=
          bool(op.getInputZeroPointAttr()))
    return op.emitOpError("input_scale belongs to a static input scheme or to one with an outer "
                          "scale, input_zero_point to an asymmetric one");
  if (!input)
    return success();
  if (IntegerAttr zero = op.getInputZeroPointAttr()) {
    numerics::CodeRange range = numerics::codeRange(input.toNumerics());
    if (zero.getInt() < range.min || zero.getInt() > range.max)
      return op.emitOpError("input_zero_point must be ")
             << range.min << " to " << range.max << ", found " << zero.getInt();
  }
  return verifyInputScale(op, input, op.getInputScaleAttr());
}

/// Checks the weight of a linear, whether that is packed or not; `input` is the scheme of its
/// activations, null for floats.
template <typename OpT>
static LogicalResult verifyProducts(OpT op, int64_t columns, SchemeAttr input) {
  if (op.getSites().empty() || llvm::any_of(op.getSites().template getAsValueRange<StringAttr>(),
                                            [](StringRef site) { return site.empty(); }))
    return op.emitOpError("sites must name the linears that it computes");
  WeightType weight = op.getWeight().getType();
  const int64_t experts = lm::expertCount(op.getExperts());
  int64_t n = lm::columns(op.getOutput());
  if (weight.getRows() % experts != 0 || weight.getRows() / experts != n ||
      weight.getColumns() != columns)
    return op.emitOpError("expected a weight of ")
           << n << "x" << columns << (op.getExperts() ? " for each expert, found " : ", found ")
           << weight;
  n = weight.getRows();
  if (failed(verifyBias(op, op.getBias(), n)))
    return failure();
  SchemeAttr scheme = weight.getScheme();
  if (!input)
    return success();
  if (input.getHadamard() != scheme.getHadamard())
    return op.emitOpError("input and weight must have one basis; found ")
           << input << " and " << scheme;
  if (input.isInteger() ? !scheme.hasIntegerValues() : scheme.isInteger())
    return op.emitOpError("input and weight are multiplied as integers or as floats, both; found ")
           << input << " and " << scheme;
  if (!input.isInteger())
    return success();
  if (std::string reason = whyGroupsDiffer(scheme, input); !reason.empty())
    return op.emitOpError(reason);
  int64_t products = accumulatedProducts(scheme, input, columns);
  int64_t limit = maxAccumulatedProducts(scheme, input, /*packed=*/bool(weight.getLayout()));
  if (products > limit)
    return op.emitOpError("an int32 accumulator can sum ")
           << limit << " products of these codes, but " << op.getSites()[0] << " needs " << products
           << "; use groups of at most " << limit << " or leave the site float";
  return success();
}

LogicalResult equant::LinearOp::verify() {
  return failure(failed(verifyFloatInput(*this, getInputSchemeAttr())) ||
                 failed(verifyProducts(*this, lm::columns(getInput()), getInputSchemeAttr())));
}

LogicalResult equant::PackedLinearOp::verify() {
  RowsType rows = getRows();
  WeightType weight = getWeight().getType();
  SchemeAttr input = getActivations();
  if (rows) {
    if (getOnline() || getInputSchemeAttr() || getInputScaleAttr() || getInputZeroPointAttr())
      return emitOpError("reads codes, of which their type says everything: input_scheme, "
                         "input_scale, input_zero_point and online scales belong to floats");
    if (rows.getSums() ? *rows.getSums() != sumsGroup(weight.getScheme(), rows.getScheme())
                       : !weight.getScheme().getSymmetric())
      return emitOpError("expected codes with sums of the groups of ")
             << weight.getScheme() << ", found " << rows;
  } else if (input && !lm::isActivationType(getInput().getType())) {
    return emitOpError("quantizes f32 activations, found ") << getInput().getType();
  } else if (failed(verifyFloatInput(*this, input))) {
    return failure();
  }
  int64_t columns = rows ? rows.getColumns() : tensorType(getInput()).getDimSize(1);
  if (failed(verifyProducts(*this, columns, input)))
    return failure();
  if (!lm::isActivationType(getOutput().getType()) &&
      (!rows || getBias() || !weight.getScheme().isInteger() ||
       weight.getScheme().getGranularity() != Granularity::Channel || input.getTokenGroup()))
    return emitOpError("gives sums of products, as i32, of codes with a scale a row and a weight "
                       "of integers with a scale a channel alone, and without a bias");
  // The kernels correct for zero points of the input with these sums.
  if (input && input.readsWeightSums() && !weight.getSums())
    return emitOpError("needs the sums of its packed codes for asymmetric input, found ") << weight;
  return success();
}

LogicalResult equant::EmbeddingOp::verify() {
  if (getTable().getType().getColumns() == lm::columns(getOutput()))
    return success();
  return emitOpError("expected a table of ")
         << lm::columns(getOutput()) << " columns, found " << getTable().getType();
}

//===----------------------------------------------------------------------===//
// Attention
//===----------------------------------------------------------------------===//

LogicalResult equant::AttentionOp::verify() {
  if (failed(lm::verifyAttention(*this)))
    return failure();
  int64_t headDim = getHeadDim();
  if (auto ok = numerics::checkKVScheme(getKvScheme().toNumerics(), headDim); !ok)
    return emitOpError() << ok.error().message;
  if (!getTable())
    return success();
  if (getKvScheme().getHadamard())
    return emitOpError("keys that are rotated in blocks of ")
           << getKvScheme().getHadamard()
           << " dimensions come behind their rotary rotation; found a table of its angles";
  if (failed(lm::verifyRotationTable(*this, getTable(), headDim)))
    return failure();
  if (auto ok = numerics::checkKeysBeforeRotation(lm::rotatedDims(getTable())); !ok)
    return emitOpError() << ok.error().message;
  return success();
}
