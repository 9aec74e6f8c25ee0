//===- Patterns.h - Ops and what they become --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_PATTERNS_H
#define EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_PATTERNS_H

#include "TensorBuilder.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"

#include "mlir/Transforms/DialectConversion.h"

namespace easyquant {

/// An op of one result becomes what a function builds: the parts of that result.
template <typename Op> struct FunctionPattern : mlir::OpConversionPattern<Op> {
  using Adaptor = typename mlir::OpConversionPattern<Op>::OneToNOpAdaptor;
  using Function = llvm::SmallVector<mlir::Value> (*)(TensorBuilder &, Op, Adaptor);

  FunctionPattern(const mlir::TypeConverter &converter, mlir::MLIRContext *context, Function build)
      : mlir::OpConversionPattern<Op>(converter, context), build(build) {}

  mlir::LogicalResult matchAndRewrite(Op op, Adaptor adaptor,
                                      mlir::ConversionPatternRewriter &rewriter) const override {
    TensorBuilder b(op.getLoc(), rewriter);
    llvm::SmallVector<llvm::SmallVector<mlir::Value>> results;
    results.push_back(build(b, op, adaptor));
    rewriter.replaceOpWithMultiple(op, std::move(results));
    return mlir::success();
  }

  Function build;
};

template <typename Op>
void addPattern(mlir::RewritePatternSet &patterns, const mlir::TypeConverter &converter,
                typename FunctionPattern<Op>::Function build) {
  patterns.add<FunctionPattern<Op>>(converter, patterns.getContext(), build);
}

/// The value of an operand that is one.
inline mlir::Value one(mlir::ValueRange values) { return values.front(); }
/// Null for an optional operand that is not there.
inline mlir::Value oneOrNone(mlir::ValueRange values) {
  return values.empty() ? mlir::Value() : values.front();
}

/// y + bias for every row; y itself where there is none.
mlir::Value addBias(TensorBuilder &b, mlir::Value y, mlir::Value bias);
/// x Wᵀ of floats.
mlir::Value floatLinear(TensorBuilder &b, mlir::Value x, mlir::Value weight);

namespace linalgform {

/// A weight as upstream ops have it: codes NxK of i8, scales NxG of f32 and, of asymmetric schemes,
/// zero points NxG of i32 or minima NxG of f32.
struct WeightParts {
  mlir::Value codes, scales, zeroPoints, minima;

  WeightParts(equant::SchemeAttr scheme, mlir::ValueRange parts)
      : codes(parts[0]), scales(parts[1]), zeroPoints(scheme.hasZeroPoints() ? parts[2] : nullptr),
        minima(scheme.getMinima() ? parts[2] : nullptr) {}
};
llvm::SmallVector<mlir::Type> partTypes(equant::WeightType type);
/// The code that a minimum stands for.
int32_t lowestCode(equant::SchemeAttr scheme);

/// Activations in codes: codes MxK of i8, scales M or MxG of f32, sums MxG of i32 where the type
/// asks for them, zero points as scales, of i32, of asymmetric schemes.
struct RowParts {
  mlir::Value codes, scales, sums = nullptr, zeroPoints = nullptr;

  RowParts(equant::RowsType type, mlir::ValueRange parts);
  RowParts(mlir::Value codes, mlir::Value scales, mlir::Value zeroPoints)
      : codes(codes), scales(scales), zeroPoints(zeroPoints) {}
  llvm::SmallVector<mlir::Value> all() const;
};
llvm::SmallVector<mlir::Type> partTypes(equant::RowsType type);

/// What is said of activations beside their scheme.
struct RowScales {
  equant::SchemeAttr scheme;
  mlir::FloatAttr scale;        ///< of a static scheme
  mlir::IntegerAttr zeroPoint;  ///< of an asymmetric one
  mlir::Value online = nullptr; ///< scales of rows
  mlir::Value absmax = nullptr; ///< of rows, instead of their own
};
/// Definitions 2 to 5 of easyquant/Numerics/Quantize.h, without sums.
RowParts quantizeRows(TensorBuilder &b, mlir::Value x, const RowScales &given);
/// Activations as their codes give them back, of codes that are no integers.
mlir::Value roundRows(TensorBuilder &b, mlir::Value x, equant::SchemeAttr scheme,
                      mlir::FloatAttr scale);
/// result[r, k] = body(values[r, k], params[r, k / group]...): groups are a dimension of the loops.
mlir::Value mapGroups(TensorBuilder &b, mlir::Value values, int64_t group,
                      llvm::ArrayRef<mlir::Value> params, mlir::Type element,
                      TensorBuilder::Body body);

/// s (q - z), s (q - lowest code) + m, or s times the value of the code, of rows of codes.
mlir::Value dequantize(TensorBuilder &b, equant::SchemeAttr scheme, const WeightParts &weight);

void addWeightPatterns(mlir::RewritePatternSet &patterns, const mlir::TypeConverter &converter);
void addRowPatterns(mlir::RewritePatternSet &patterns, const mlir::TypeConverter &converter);
void addLinearPatterns(mlir::RewritePatternSet &patterns, const mlir::TypeConverter &converter);
void addModelPatterns(mlir::RewritePatternSet &patterns, const mlir::TypeConverter &converter);
void addAttentionPatterns(mlir::RewritePatternSet &patterns, const mlir::TypeConverter &converter);

/// Why an op of the dialect has no form in upstream ops, whatever its weights are; empty if it has
/// one, or is of another dialect.
std::string whyNotEquant(mlir::Operation *op);
std::string whyNotModel(mlir::Operation *op);
/// As MLIR prints it.
std::string inWords(mlir::Attribute attribute);

/// Conversion of functions, their calls and what they return to the types of the converter. Fails
/// with diagnostics.
mlir::LogicalResult convertModule(mlir::ModuleOp module, mlir::TypeConverter &converter,
                                  mlir::RewritePatternSet patterns, mlir::ConversionTarget &target);

} // namespace linalgform
} // namespace easyquant

#endif // EASYQUANT_LIB_CONVERSION_EQUANTTOLINALG_PATTERNS_H
