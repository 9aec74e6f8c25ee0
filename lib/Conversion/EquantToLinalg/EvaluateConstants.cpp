//===- EvaluateConstants.cpp - Codes of constants in a module -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"
#include "easyquant/Conversion/EquantToLinalg/ModuleConstants.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/Quantize.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/RegionUtils.h"

namespace easyquant {
#define GEN_PASS_DEF_EVALUATECONSTANTS
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using numerics::WeightTensor;

/// The scheme whose scales upstream ops read: floats of 16 or 32 bits, products where a scale has
/// another above it.
static SchemeAttr plainScheme(SchemeAttr scheme) {
  numerics::Scheme plain = scheme.toNumerics();
  if (!plain.outer && (scheme.getScale().isF16() || scheme.getScale().isBF16()))
    return scheme;
  plain.outer = false;
  plain.scales = numerics::ScaleFormat::F32;
  return SchemeAttr::get(scheme.getContext(), plain);
}

static Value floatsConstant(OpBuilder &builder, Location loc, RankedTensorType type,
                            ArrayRef<float> floats) {
  const auto &semantics = cast<FloatType>(type.getElementType()).getFloatSemantics();
  auto values = llvm::map_to_vector(floats, [&](float one) {
    APFloat value(one);
    bool losesInfo = false; // they are rounded already
    (void)value.convert(semantics, APFloat::rmNearestTiesToEven, &losesInfo);
    return value;
  });
  return arith::ConstantOp::create(builder, loc, type, DenseElementsAttr::get(type, values));
}

/// Fails with a diagnostic.
static LogicalResult evaluate(QuantizeOp op, const ModuleConstant &constant,
                              const ParameterFiles &parameters) {
  WeightType type = op.getWeight().getType();
  const int64_t rows = type.getRows(), columns = type.getColumns();
  Result<std::vector<float>> values = constant.read(parameters);
  if (!values)
    return op.emitOpError() << "of a constant: " << values.error().message;
  SchemeAttr scheme = type.getScheme();
  auto quantized =
      numerics::quantize(numerics::ConstMatrix(values->data(), rows, columns), scheme.toNumerics(),
                         toNumerics(*op.getRule(), op.getPercentileAttr()));
  if (!quantized)
    return op.emitOpError() << "of a constant: " << quantized.error().message;
  OpBuilder builder(op);
  Location loc = op.getLoc();
  auto plain = WeightType::get(rows, columns, plainScheme(scheme));
  const numerics::QParams &params = quantized->params;
  Value zeroPoints;
  if (RankedTensorType ofZeros = plain.getPart(WeightTensor::ZeroPoints))
    zeroPoints = arith::ConstantOp::create(
        builder, loc, ofZeros, DenseElementsAttr::get(ofZeros, ArrayRef(params.zeroPoints)));
  Value minima;
  if (RankedTensorType ofMinima = plain.getPart(WeightTensor::Minima))
    minima = floatsConstant(builder, loc, ofMinima, params.minima);
  const auto ofCodes = plain.getPart(WeightTensor::Codes).clone(builder.getI8Type());
  Value weight = FromCodesOp::create(
      builder, loc, plain,
      arith::ConstantOp::create(builder, loc,
                                DenseElementsAttr::get(ofCodes, ArrayRef(quantized->codes))),
      floatsConstant(builder, loc, plain.getPart(WeightTensor::Scales), params.scales), zeroPoints,
      minima, /*outer=*/Value());
  for (Operation *user : op.getWeight().getUsers())
    if (auto slice = dyn_cast<SliceOp>(user)) {
      WeightType part = slice.getOutput().getType();
      slice.getOutput().setType(plain.withShape(part.getRows(), part.getColumns()));
    }
  op.getWeight().replaceAllUsesWith(weight);
  op.erase();
  return success();
}

namespace {
struct EvaluateConstants : easyquant::impl::EvaluateConstantsBase<EvaluateConstants> {
  using EvaluateConstantsBase::EvaluateConstantsBase;

  void runOnOperation() override {
    ModuleOp module = getOperation();
    Result<ParameterFiles> files = ParameterFiles::open(*parameters);
    if (!files) {
      emitError(module.getLoc()) << files.error().message;
      return signalPassFailure();
    }
    SmallVector<QuantizeOp> ops;
    module.walk([&](QuantizeOp op) {
      if (op.getRule() && !op.getScale() && !op.getRounded())
        ops.push_back(op);
    });
    for (QuantizeOp op : ops)
      if (auto constant = ModuleConstant::match(op.getInput());
          constant && failed(evaluate(op, *constant, *files)))
        return signalPassFailure();
    // The floats would stay in the text, or be loaded for nobody.
    IRRewriter rewriter(&getContext());
    (void)runRegionDCE(rewriter, module->getRegions());
    module.walk([](Operation *op) {
      StringRef name = op->getName().getStringRef();
      if ((name == "util.global.load" || name == "flow.tensor.constant") && op->use_empty())
        op->erase();
    });
    module.walk([](Operation *op) { op->removeAttr(kSiteAttr); });
    dropModelAttributes(module);
  }
};
} // namespace
