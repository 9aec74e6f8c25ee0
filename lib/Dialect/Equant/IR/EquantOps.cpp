//===- EquantOps.cpp - Quantization operations ----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "easyquant/Dialect/LM/IR/Attention.h"
#include "easyquant/Numerics/Bounds.h"
#include "easyquant/Numerics/OnlineScales.h"

#include "mlir/IR/Builders.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;

#define GET_OP_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantOps.cpp.inc"

static RankedTensorType tensorType(Value value) { return cast<RankedTensorType>(value.getType()); }

static RankedTensorType scaleTensorType(SchemeAttr scheme, ArrayRef<int64_t> matrixShape) {
  return RankedTensorType::get(scheme.getScaleShape(matrixShape), scheme.getScale());
}

static RankedTensorType zeroPointType(RankedTensorType scale) {
  return RankedTensorType::get(scale.getShape(), IntegerType::get(scale.getContext(), 32));
}

std::string easyquant::equant::statisticNames() {
  std::string names;
  for (unsigned i = 0; i <= getMaxEnumValForStatistic(); ++i)
    names += (i == 0 ? "" : ", ") + stringifyStatistic(static_cast<Statistic>(i)).str();
  return names;
}

LogicalResult ObserveOp::verify() {
  if (getSites().empty())
    return emitOpError("must name the sites that read its input");
  if (getStatistics().empty())
    return emitOpError("must name at least one statistic");
  for (StringRef name : getStatistics().getAsValueRange<StringAttr>())
    if (!symbolizeStatistic(name))
      return emitOpError() << "has no statistic '" << name << "'; legal are " << statisticNames();
  return success();
}

static RankedTensorType outerType(MLIRContext *context, int64_t rows) {
  return RankedTensorType::get({rows, 1}, Float32Type::get(context));
}

/// Is there an outer scale exactly when the scheme has one?
static LogicalResult verifyHasOuter(Operation *op, SchemeAttr scheme, Value outer) {
  if (scheme.getOuter() == bool(outer))
    return success();
  return op->emitOpError() << (outer ? "has outer scales, but " : "has no outer scales, but ")
                           << scheme << (outer ? " has none" : " has them");
}

static LogicalResult verifyOuter(Operation *op, SchemeAttr scheme, int64_t rows, Value outer) {
  if (failed(verifyHasOuter(op, scheme, outer)))
    return failure();
  if (outer && outer.getType() != outerType(op->getContext(), rows))
    return op->emitOpError("outer scales must be ") << outerType(op->getContext(), rows) << " for "
                                                    << scheme << ", found " << outer.getType();
  return success();
}

/// Scale, zero point exactly when the scheme is asymmetric, and outer scales where it has them, in
/// the shapes that it demands.
static LogicalResult verifyQParams(Operation *op, SchemeAttr scheme, ArrayRef<int64_t> matrixShape,
                                   Value scale, Value zeroPoint, Value outer) {
  if (failed(verifyOuter(op, scheme, matrixShape[0], outer)))
    return failure();
  RankedTensorType expected = scaleTensorType(scheme, matrixShape);
  if (scale.getType() != expected)
    return op->emitOpError("scale must be ")
           << expected << " for " << scheme << ", found " << scale.getType();
  if (scheme.getSymmetric() != !zeroPoint)
    return op->emitOpError() << (zeroPoint ? "has a zero point, but " : "has no zero point, but ")
                             << scheme << " is "
                             << (scheme.getSymmetric() ? "symmetric" : "asymmetric");
  if (zeroPoint && zeroPoint.getType() != zeroPointType(expected))
    return op->emitOpError("zero point must be ")
           << zeroPointType(expected) << " for " << scheme << ", found " << zeroPoint.getType();
  return success();
}

static LogicalResult verifyCodes(Operation *op, SchemeAttr scheme, RankedTensorType codes,
                                 ArrayRef<int64_t> shape) {
  auto expected = RankedTensorType::get(shape, scheme.getCode());
  if (codes != expected)
    return op->emitOpError("codes must be ")
           << expected << " for " << scheme << ", found " << codes;
  return success();
}

/// The weight of a linear or an embedding: N x K codes and their scales, packed or not.
static LogicalResult verifyWeight(Operation *op, SchemeAttr scheme, LayoutAttr layout,
                                  RankedTensorType codes, Value scale, Value zeroPoint, Value outer,
                                  Value codebook, int64_t n, int64_t k) {
  if (!scheme.isStatic())
    return op->emitOpError("weights have static scales, found ") << scheme;
  if (bool(codebook) != (layout && scheme.getCodebook()))
    return op->emitOpError(codebook ? "has the values of a codebook without packed codes of one"
                                    : "needs the values of the codebook of its packed codes");
  if (!layout) {
    if (failed(verifyCodes(op, scheme, codes, {n, k})))
      return failure();
    return verifyQParams(op, scheme, {n, k}, scale, zeroPoint, outer);
  }
  using numerics::WeightTensor;
  auto packedAs = [&](WeightTensor tensor) { return layout.getPackedType(tensor, scheme, n, k); };
  if (scheme.getScaleShape({n, k})[0] != n)
    return op->emitOpError("packed weights must have scales per channel or per group, found ")
           << scheme;
  if (!packedAs(WeightTensor::Codes))
    return op->emitOpError("codes of ") << scheme << " cannot be packed as " << layout;
  auto check = [&](StringRef what, WeightTensor tensor, Type found) -> LogicalResult {
    if (RankedTensorType expected = packedAs(tensor); found != expected)
      return op->emitOpError(what) << " of " << n << "x" << k << " packed as " << layout
                                   << " must be " << expected << ", found " << found;
    return success();
  };
  if (failed(check("codes", WeightTensor::Codes, codes)) ||
      failed(check("scales", WeightTensor::Scales, scale.getType())))
    return failure();
  if (bool(zeroPoint) == scheme.getSymmetric())
    return op->emitOpError() << (zeroPoint ? "has zero points" : "has no zero points") << " for "
                             << scheme;
  if (zeroPoint && failed(check("zero points", WeightTensor::ZeroPoints, zeroPoint.getType())))
    return failure();
  if (codebook &&
      failed(check("values of the codebook", WeightTensor::Codebook, codebook.getType())))
    return failure();
  if (failed(verifyHasOuter(op, scheme, outer)))
    return failure();
  return outer ? check("outer scales", WeightTensor::Outer, outer.getType()) : success();
}

//===----------------------------------------------------------------------===//
// Accumulators
//===----------------------------------------------------------------------===//

int64_t easyquant::equant::maxAccumulatedProducts(SchemeAttr weight, SchemeAttr input,
                                                  bool packed) {
  return numerics::maxDotLength(weight.toNumerics(), input.toNumerics(), /*stored=*/packed);
}

int64_t easyquant::equant::accumulatedProducts(SchemeAttr weight, int64_t k) {
  return weight.getGranularity() == Granularity::Group ? std::min(weight.getGroupSize(), k) : k;
}

std::string easyquant::equant::whyNotQuantizable(QuantizableOpInterface op, PlanAttr plan) {
  std::string reason;
  llvm::raw_string_ostream os(reason);
  if (!plan.getInput() || !plan.getInput().isInteger())
    return reason;
  // Codes are packed later, and then offset: check now, while the site has a name to complain with.
  SchemeAttr weight = plan.getWeight(), input = plan.getInput();
  int64_t products = accumulatedProducts(weight, lm::columns(op.getActivationOperand().get()));
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

void OuterScaleOp::build(OpBuilder &builder, OperationState &state, Value input,
                         SchemeAttr scheme) {
  build(builder, state, outerType(builder.getContext(), tensorType(input).getDimSize(0)), input,
        scheme);
}

LogicalResult OuterScaleOp::verify() {
  return verifyOuter(*this, getScheme(), tensorType(getInput()).getDimSize(0), getOuter());
}

void ChooseQParamsOp::build(OpBuilder &builder, OperationState &state, Value input, Value outer,
                            ScaleRule rule, FloatAttr percentile, SchemeAttr scheme) {
  RankedTensorType scale = scaleTensorType(scheme, tensorType(input).getShape());
  build(builder, state, scale, scheme.getSymmetric() ? Type() : Type(zeroPointType(scale)), input,
        outer, rule, percentile, scheme);
}

LogicalResult ChooseQParamsOp::verify() {
  if (std::string problem = whyRuleCannotServe(getRule(), getPercentileAttr(), getScheme());
      !problem.empty())
    return emitOpError(problem);
  if (getRule() == ScaleRule::HessianDiagonal)
    return emitOpError("rule hessian_diagonal needs activations of calibration text; "
                       "equant-choose-ranges chooses by it");
  return verifyQParams(*this, getScheme(), tensorType(getInput()).getShape(), getScale(),
                       getZeroPoint(), getOuter());
}

void QuantizeOp::build(OpBuilder &builder, OperationState &state, Value input, Value scale,
                       Value zeroPoint, Value outer, Value rounded, SchemeAttr scheme) {
  build(builder, state, RankedTensorType::get(tensorType(input).getShape(), scheme.getCode()),
        input, scale, zeroPoint, outer, rounded, scheme);
}

LogicalResult QuantizeOp::verify() {
  ArrayRef<int64_t> shape = tensorType(getInput()).getShape();
  if (failed(verifyCodes(*this, getScheme(), tensorType(getCodes()), shape)))
    return failure();
  if (getRounded() && getRounded().getType() != getCodes().getType())
    return emitOpError("rounded codes must be ")
           << getCodes().getType() << ", found " << getRounded().getType();
  return verifyQParams(*this, getScheme(), shape, getScale(), getZeroPoint(), getOuter());
}

/// What a linear and a fake quantization ask of the scheme of activations.
static LogicalResult verifyInputScale(Operation *op, SchemeAttr scheme, FloatAttr scale) {
  bool isStatic = !scheme.getDynamic();
  bool isGrouped = scheme.getOuter() && scheme.getGranularity() == Granularity::Group &&
                   !isStatic && !scheme.isInteger();
  if (!isGrouped &&
      (scheme.getOuter() ||
       scheme.getGranularity() != (isStatic ? Granularity::Tensor : Granularity::Token) ||
       (!isStatic && !scheme.getSymmetric())))
    return op->emitOpError("input must be quantized per token, symmetric and dynamic, per tensor "
                           "with a constant scale, or, of codes that are no integers, in groups "
                           "with dynamic and outer scales, found ")
           << scheme;
  if (scheme.isOnline() && (!scheme.isInteger() || scheme.getBits() != 8 ||
                            !scheme.getSymmetric() || scheme.getFullRange()))
    return op->emitOpError("online scales are of symmetric codes i8, found ") << scheme;
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

void QuantizeRowsOp::build(OpBuilder &b, OperationState &state, Value input, Value online,
                           SchemeAttr scheme, int64_t group, FloatAttr scale,
                           IntegerAttr zeroPoint) {
  int64_t columns = lm::columns(input);
  auto rows = [](ArrayRef<int64_t> shape, Type element) -> Type {
    return RankedTensorType::get(shape, element);
  };
  constexpr int64_t dynamic = ShapedType::kDynamic;
  SmallVector<Type> types = {rows({dynamic, columns}, b.getI8Type()),
                             rows({dynamic}, b.getF32Type()),
                             rows({dynamic, numerics::groupCount(columns, group)}, b.getI32Type())};
  if (zeroPoint)
    types.push_back(rows({dynamic}, b.getI32Type()));
  state.addOperands(input);
  if (online)
    state.addOperands(online);
  state.addTypes(types);
  auto &properties = state.getOrAddProperties<Properties>();
  properties.setScheme(scheme);
  properties.setGroup(b.getI64IntegerAttr(group));
  properties.setScale(scale);
  properties.setZeroPoint(zeroPoint);
  properties.operandSegmentSizes = {1, online ? 1 : 0, /*absmax=*/0};
}

LogicalResult QuantizeRowsOp::verify() {
  SchemeAttr scheme = getScheme();
  if (!scheme.isInteger() || scheme.getBits() != 8)
    return emitOpError("expected codes of i8, found ") << scheme;
  if (scheme.isOnline() != bool(getOnline()))
    return emitOpError("online scales belong to an online scheme, and such a scheme has them");
  if (scheme.isStatic() != bool(getScaleAttr()) ||
      scheme.getSymmetric() == bool(getZeroPointAttr()) ||
      bool(getZeroPointAttr()) != bool(getZeroPoints()))
    return emitOpError("scale belongs to a static scheme, zero_point and zero points to an "
                       "asymmetric one");
  if (getAbsmax() && !scheme.getDynamic() && !scheme.hasSinksAroundZero())
    return emitOpError("absmax belongs to a dynamic scheme, or to one with sinks in a range around "
                       "0, found ")
           << scheme;
  int64_t columns = lm::columns(getInput());
  int64_t groups = numerics::groupCount(columns, static_cast<int64_t>(getGroup()));
  if (lm::columns(getCodes()) != columns || lm::columns(getSums()) != groups)
    return emitOpError("expected ")
           << columns << " columns of codes and " << groups << " of sums, found "
           << getCodes().getType() << " and " << getSums().getType();
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
  SchemeAttr scheme = getWeightScheme();
  int64_t n = lm::columns(getOutput());
  if (lm::columns(getSums()) != n)
    return emitOpError("expected ") << n << " columns of sums, found " << getSums().getType();
  if (scheme.getGranularity() != Granularity::Channel)
    return emitOpError("expected a scale a channel, found ") << scheme;
  if (failed(verifyHasOuter(*this, scheme, getOuter())))
    return failure();
  auto check = [&](StringRef what, numerics::WeightTensor tensor, Value found) -> LogicalResult {
    RankedTensorType expected = getLayout().getPackedType(tensor, scheme, n, /*columns=*/8);
    if (!expected || found.getType() != expected)
      return emitOpError(what) << " of " << n << " channels packed as " << getLayout()
                               << " must be " << expected << ", found " << found.getType();
    return success();
  };
  if (failed(check("scales", numerics::WeightTensor::Scales, getScale())) ||
      (getOuter() && failed(check("outer scales", numerics::WeightTensor::Outer, getOuter()))))
    return failure();
  if (getBias() && tensorType(getBias()).getDimSize(0) != n)
    return emitOpError("bias has ") << tensorType(getBias()).getDimSize(0)
                                    << " elements, but the result has " << n << " columns";
  return success();
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

void ConcatOp::build(OpBuilder &builder, OperationState &state, ValueRange inputs) {
  RankedTensorType first = tensorType(inputs.front());
  SmallVector<int64_t> shape(first.getShape());
  shape[0] = 0;
  for (Value input : inputs)
    shape[0] += tensorType(input).getDimSize(0);
  build(builder, state, RankedTensorType::get(shape, first.getElementType()), inputs);
}

LogicalResult ConcatOp::verify() {
  if (getInputs().empty())
    return emitOpError("must have an operand");
  RankedTensorType output = tensorType(getOutput());
  int64_t rows = 0;
  for (Value input : getInputs()) {
    RankedTensorType type = tensorType(input);
    if (type.getElementType() != output.getElementType() ||
        type.getShape().drop_front() != output.getShape().drop_front())
      return emitOpError("operand ")
             << type << " differs from the result " << output << " in more than its rows";
    rows += type.getDimSize(0);
  }
  if (rows != output.getDimSize(0))
    return emitOpError("operands have ")
           << rows << " rows together, but the result has " << output.getDimSize(0);
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
// ScaleOp
//===----------------------------------------------------------------------===//

LogicalResult ScaleOp::verify() {
  RankedTensorType input = tensorType(getInput());
  int64_t axis = getAxisAttr().getInt();
  if (axis < 0 || axis >= input.getRank())
    return emitOpError("axis must be ")
           << (input.getRank() == 1 ? "0 for a vector" : "0 or 1") << ", found " << axis;
  int64_t extent = input.getDimSize(axis), factors = tensorType(getFactor()).getDimSize(0);
  if (factors != extent)
    return emitOpError("needs ") << extent << " factors for axis " << axis << " of " << input
                                 << ", found " << factors;
  return success();
}

//===----------------------------------------------------------------------===//
// Quantized building blocks
//===----------------------------------------------------------------------===//

LogicalResult equant::LinearOp::verify() {
  if (getSites().empty() || llvm::any_of(getSites().getAsValueRange<StringAttr>(),
                                         [](StringRef site) { return site.empty(); }))
    return emitOpError("sites must name the linears that it computes");
  int64_t n = lm::columns(getOutput()), k = lm::columns(getInput());
  SchemeAttr weight = getWeightScheme();
  if (failed(verifyWeight(*this, weight, getLayoutAttr(), tensorType(getCodes()), getScale(),
                          getZeroPoint(), getOuter(), getCodebook(), n, k)))
    return failure();
  if (getBias() && tensorType(getBias()).getDimSize(0) != n)
    return emitOpError("bias has ") << tensorType(getBias()).getDimSize(0)
                                    << " elements, but the result has " << n << " columns";
  if (!lm::isActivationType(getOutput().getType()) &&
      (!readsCodes() || getBias() || weight.getGranularity() != Granularity::Channel))
    return emitOpError("gives sums of products, as i32, of codes and a weight with a scale a "
                       "channel alone, and without a bias");
  SchemeAttr input = getInputSchemeAttr();
  bool isStatic = input && !input.getDynamic(), hasScale = input && input.isCalibrated();
  bool hasOnlineScales = input && input.isOnline() && getRowScales();
  hasScale &= !readsCodes() && !hasOnlineScales;
  if (bool(getRowScales()) != (readsCodes() || hasOnlineScales) || (readsCodes() && !input) ||
      bool(getRowZeroPoints()) != (readsCodes() && !input.getSymmetric()) ||
      (getRowSums() && !readsCodes()))
    return emitOpError("row_scales, row_sums and row_zero_points belong to codes, which come with "
                       "scales, and with zero points where their scheme is asymmetric");
  if (hasScale != bool(getInputScaleAttr()) ||
      (isStatic && hasScale && !input.getSymmetric()) != bool(getInputZeroPointAttr()))
    return emitOpError("input_scale belongs to a static input scheme or to one with an outer "
                       "scale, input_zero_point to an asymmetric one");
  // The kernels correct for zero points of the input with these sums.
  bool needsSums = isStatic && !input.getSymmetric() && getLayout();
  if (needsSums != bool(getCodeSums()))
    return emitOpError(needsSums ? "needs the sums of its packed codes for asymmetric input"
                                 : "has sums of codes without packed codes and asymmetric input");
  if (needsSums) {
    RankedTensorType sums =
        getLayoutAttr().getPackedType(numerics::WeightTensor::Sums, weight, n, k);
    if (getCodeSums().getType() != sums)
      return emitOpError("sums of codes must be ") << sums << ", found " << getCodeSums().getType();
  }
  if (!input)
    return success();
  if (!readsCodes() && failed(verifyInputScale(*this, input, getInputScaleAttr())))
    return failure();
  if (input.isInteger() != weight.isInteger())
    return emitOpError("input and weight are multiplied as integers or as floats, both; found ")
           << input << " and " << weight;
  if (hasScale) {
    numerics::CodeRange range = numerics::codeRange(input.toNumerics());
    if (IntegerAttr zero = getInputZeroPointAttr();
        zero && (zero.getInt() < range.min || zero.getInt() > range.max))
      return emitOpError("input_zero_point must be ")
             << range.min << " to " << range.max << ", found " << zero.getInt();
  }
  if (!input.isInteger())
    return success();
  int64_t products = accumulatedProducts(weight, k);
  int64_t limit = maxAccumulatedProducts(weight, input, getLayout().has_value());
  if (products > limit)
    return emitOpError("an int32 accumulator can sum ")
           << limit << " products of these codes, but " << getSites()[0] << " needs " << products
           << "; use groups of at most " << limit << " or leave the site float";
  return success();
}

LogicalResult equant::EmbeddingOp::verify() {
  return verifyWeight(*this, getWeightScheme(), getLayoutAttr(), tensorType(getCodes()), getScale(),
                      getZeroPoint(), getOuter(), getCodebook(), getVocabSize(),
                      lm::columns(getOutput()));
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
  RankedTensorType table = tensorType(getTable());
  if (table.getDimSize(1) != headDim / 2 || table.getDimSize(2) != 2)
    return emitOpError("table must be tensor<Px")
           << headDim / 2 << "x2xf32> for head_dim " << headDim << ", found " << table;
  return success();
}
