//===- ConvertEquantToLinalg.cpp - The equant dialect in upstream ops -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Patterns.h"

#include "easyquant/Conversion/EquantToLinalg/EquantToLinalg.h"
#include "easyquant/Numerics/PlainPacking.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Math/IR/Math.h"

namespace easyquant {
#define GEN_PASS_DEF_CONVERTEQUANTTOLINALG
#include "easyquant/Conversion/EquantToLinalg/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using namespace easyquant::linalgform;
using ml_program::GlobalLoadConstOp;
using ml_program::GlobalOp;
using numerics::WeightTensor;

//===----------------------------------------------------------------------===//
// What has no form
//===----------------------------------------------------------------------===//

static std::string whyNotWeight(WeightType type) {
  if (LayoutAttr layout = type.getLayout();
      layout && layout.getName() != StringRef(numerics::kPlainLayout))
    return "reads a weight packed as " + inWords(layout) +
           " for kernels; run equant-plain-weights instead of equant-materialize-weights";
  return "";
}

static std::string whyNotScales(Value scales, SchemeAttr scheme) {
  if (scales && !isa<FloatType>(cast<RankedTensorType>(scales.getType()).getElementType()))
    return "has scales of two levels, " + inWords(scheme) +
           ", as an operand; run equant-plain-weights, which evaluates constants";
  return "";
}

static std::string whyNotQuantize(QuantizeOp op) {
  SchemeAttr scheme = op.getWeight().getType().getScheme();
  const std::string remedy = "; run equant-plain-weights before, which evaluates constants";
  if (op.getScale()) {
    if (!scheme.isInteger() && !op.getRounded())
      return "rounds to " + inWords(scheme) + ", codes that are no integers" + remedy;
    return whyNotScales(op.getScale(), scheme);
  }
  const bool isNarrow = scheme.isInteger() && scheme.getSymmetric() && !scheme.getFullRange();
  Type scale = scheme.getScale();
  if (op.getRule() == ScaleRule::AbsMax && isNarrow && !scheme.getOuter() &&
      (scale.isF32() || scale.isF16() || scale.isBF16()))
    return "";
  return "chooses scales of " + inWords(scheme) + " by a rule that has no form in upstream ops" +
         remedy;
}

/// Why an op has no form as long as its weights are no plain constants; empty if it has one.
static std::string whyNotYet(Operation *op) {
  for (TypeRange types : {TypeRange(op->getOperandTypes()), TypeRange(op->getResultTypes())})
    for (Type type : types)
      if (auto weight = dyn_cast<WeightType>(type))
        if (std::string reason = whyNotWeight(weight); !reason.empty())
          return reason;
  if (auto quantize = dyn_cast<QuantizeOp>(op))
    return whyNotQuantize(quantize);
  if (auto codes = dyn_cast<FromCodesOp>(op))
    return whyNotScales(codes.getScale(), codes.getWeight().getType().getScheme());
  return "";
}

//===----------------------------------------------------------------------===//
// Globals and fusions
//===----------------------------------------------------------------------===//

/// The type of a part in the weights file; null where the conversion does not read it.
static RankedTensorType storedType(WeightType type, WeightTensor part) {
  const bool isRead = part == WeightTensor::Codes || part == WeightTensor::Scales ||
                      part == WeightTensor::ZeroPoints || part == WeightTensor::Minima;
  return isRead ? type.getPart(part) : RankedTensorType();
}

/// Splits the globals of plain weights. `names`: the globals of the parts that each becomes.
static LogicalResult splitGlobals(ModuleOp module,
                                  llvm::StringMap<SmallVector<std::string>> &names) {
  OpBuilder builder(module.getContext());
  for (GlobalOp global : llvm::make_early_inc_range(module.getOps<GlobalOp>())) {
    auto type = dyn_cast<WeightType>(global.getType());
    if (!type)
      continue;
    if (std::string reason = whyNotWeight(type); !reason.empty())
      return global.emitOpError(reason);
    auto tensors = global->getAttrOfType<ArrayAttr>(kTensorsAttr);
    auto parts = type.getParts();
    if (!type.getLayout() || !tensors || tensors.size() != parts.size() ||
        !llvm::all_of(tensors, llvm::IsaPred<StringAttr>))
      return global.emitOpError("expected a plain weight with ")
             << kTensorsAttr << ", the names of its " << parts.size()
             << " parts; equant-plain-weights makes it";
    builder.setInsertionPointAfter(global);
    SmallVector<std::string> &into = names[global.getSymName()];
    const std::string before = global.getSymName().str();
    Location loc = global.getLoc();
    global.erase();
    for (auto [name, part] : llvm::zip_equal(tensors.getAsValueRange<StringAttr>(), parts)) {
      RankedTensorType stored = storedType(type, part.first);
      if (!stored)
        continue;
      if (module.lookupSymbol(name))
        return emitError(loc) << "global '" << before << "': its part '" << name
                              << "' is a symbol already; expected other names in " << kTensorsAttr;
      GlobalOp::create(builder, loc, name, stored, /*is_mutable=*/false,
                       ml_program::ExternAttr::get(module.getContext(), stored),
                       builder.getStringAttr("private"));
      into.push_back(name.str());
    }
  }
  return success();
}

namespace {
struct ConvertLoad : OpConversionPattern<GlobalLoadConstOp> {
  ConvertLoad(const TypeConverter &converter, MLIRContext *context,
              const llvm::StringMap<SmallVector<std::string>> &names)
      : OpConversionPattern(converter, context), names(names) {}

  LogicalResult matchAndRewrite(GlobalLoadConstOp op, OneToNOpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    auto type = cast<WeightType>(op.getType());
    TensorBuilder b(op.getLoc(), rewriter);
    SmallVector<Value> parts;
    auto found = names.find(op.getGlobal().getLeafReference().getValue());
    if (found == names.end())
      return rewriter.notifyMatchFailure(op, "loads no plain weight");
    for (auto [stored, name] : llvm::zip_equal(partTypes(type), found->second)) {
      Type element = cast<RankedTensorType>(stored).getElementType();
      if (element.isInteger(32)) // zero points
        element = b.getI8Type();
      Value value = GlobalLoadConstOp::create(b, cast<RankedTensorType>(stored).clone(element),
                                              SymbolRefAttr::get(getContext(), name));
      if (value.getType() != stored)
        value = b.map(value, b.getI32Type(), [](TensorBuilder &in, ValueRange x) -> Value {
          return arith::ExtSIOp::create(in, in.getI32Type(), x[0]);
        });
      parts.push_back(value);
    }
    SmallVector<SmallVector<Value>> results;
    results.push_back(std::move(parts));
    rewriter.replaceOpWithMultiple(op, std::move(results));
    return success();
  }

  const llvm::StringMap<SmallVector<std::string>> &names;
};

/// Its ops have no kernel in common here.
struct InlineFusion : OpConversionPattern<FusionOp> {
  using OpConversionPattern::OpConversionPattern;

  LogicalResult matchAndRewrite(FusionOp op, OneToNOpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    Operation *yield = op.getBody().front().getTerminator();
    SmallVector<Value> results(yield->getOperands());
    rewriter.inlineBlockBefore(&op.getBody().front(), op);
    rewriter.eraseOp(yield);
    rewriter.replaceOp(op, results);
    return success();
  }
};

struct ConvertEquantToLinalg : easyquant::impl::ConvertEquantToLinalgBase<ConvertEquantToLinalg> {
  using ConvertEquantToLinalgBase::ConvertEquantToLinalgBase;

  void runOnOperation() override {
    WalkResult checked = getOperation().walk([](Operation *op) -> WalkResult {
      std::string reason = whyNotEquant(op);
      if (reason.empty())
        reason = whyNotYet(op);
      return reason.empty() ? WalkResult::advance() : WalkResult(op->emitOpError(reason));
    });
    llvm::StringMap<SmallVector<std::string>> names;
    if (checked.wasInterrupted() || failed(splitGlobals(getOperation(), names)))
      return signalPassFailure();
    TypeConverter converter;
    converter.addConversion([](Type type) { return type; });
    converter.addConversion([](WeightType type, SmallVectorImpl<Type> &parts) {
      llvm::append_range(parts, partTypes(type));
      return success();
    });
    converter.addConversion([](RowsType type, SmallVectorImpl<Type> &parts) {
      llvm::append_range(parts, partTypes(type));
      return success();
    });
    RewritePatternSet patterns(&getContext());
    addWeightPatterns(patterns, converter);
    addRowPatterns(patterns, converter);
    addLinearPatterns(patterns, converter);
    patterns.add<ConvertLoad>(converter, &getContext(), names);
    patterns.add<InlineFusion>(converter, &getContext());
    ConversionTarget target(getContext());
    target.addIllegalDialect<EquantDialect>();
    target.addDynamicallyLegalOp<GlobalLoadConstOp>(
        [](GlobalLoadConstOp op) { return !isa<WeightType>(op.getType()); });
    if (failed(convertModule(getOperation(), converter, std::move(patterns), target)))
      signalPassFailure();
  }
};
} // namespace
