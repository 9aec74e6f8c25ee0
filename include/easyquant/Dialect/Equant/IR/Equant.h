//===- Equant.h - Quantization dialect --------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one header of the `equant` dialect: its attributes, interface and operations. The .td files
// beside it document them.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANT_H
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANT_H

#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Numerics/FragmentPacking.h"
#include "easyquant/Numerics/KVCache.h"
#include "easyquant/Numerics/ScaleRules.h"
#include "easyquant/Numerics/Scheme.h"
#include "easyquant/Numerics/WeightLayout.h"

#include "mlir/Interfaces/ControlFlowInterfaces.h"

#include <optional>

// Whose table of options grows without everything being compiled again.
namespace easyquant::recipe {
template <typename T> struct Key;
} // namespace easyquant::recipe

#include "easyquant/Dialect/Equant/IR/EquantDialect.h.inc"
#include "easyquant/Dialect/Equant/IR/EquantEnums.h.inc"

namespace easyquant::equant {
/// Globals of what a plan's weight has been found to be; null: not yet, or the scheme has none.
struct PlannedParts {
  mlir::FlatSymbolRefAttr codes = {}, scale = {}, zeroPoint = {}, minimum = {}, outer = {};
};
} // namespace easyquant::equant

#define GET_ATTRDEF_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantTypes.h.inc"

namespace easyquant::equant {

/// The features of a linear.
struct Features {
  int64_t outputs = 0, inputs = 0;
};

/// How a linear quantizes its activations.
struct QuantizedInput {
  SchemeAttr scheme;           ///< null: they stay float
  mlir::FloatAttr scale;       ///< of static activations
  mlir::IntegerAttr zeroPoint; ///< of asymmetric ones
};

/// Attribute of a quantizable op of another dialect than `lm`: the name of its site.
inline constexpr llvm::StringLiteral kSiteAttr = "equant.site";

/// Is the op, which may be quantizable, a site: of `lm`, or named by kSiteAttr?
bool isSite(mlir::Operation *op);

} // namespace easyquant::equant

#include "easyquant/Dialect/Equant/IR/EquantInterfaces.h.inc"

namespace easyquant::equant {

/// Is this the type of a code: i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN?
bool isCodeType(mlir::Type type);
/// Is this the type of a scale: f32, f16, bf16, f8E4M3FN or f8E8M0FNU?
bool isScaleType(mlir::Type type);
/// The type of scales of a format.
mlir::Type scaleType(mlir::MLIRContext *context, numerics::ScaleFormat format);

} // namespace easyquant::equant

#define GET_OP_CLASSES
#include "easyquant/Dialect/Equant/IR/EquantOps.h.inc"

namespace easyquant::equant {

/// Attributes of the module: what was asked for, and what became of each site.
inline constexpr llvm::StringLiteral kRecipeAttr = "equant.recipe";
inline constexpr llvm::StringLiteral kReportAttr = "equant.report";
/// Attribute of the module: the sites that stay float against their plan, and why.
inline constexpr llvm::StringLiteral kFallbacksAttr = "equant.fallbacks";
/// Attribute of the module: the path of its statistics file.
inline constexpr llvm::StringLiteral kStatisticsAttr = "equant.statistics";
/// Attribute of the module: the text that it was calibrated on, in the words of the stamp of
/// statistics files.
inline constexpr llvm::StringLiteral kCalibrationAttr = "equant.calibration";
/// Attribute of a global: its first byte in the artifact's data section. A packed weight has those
/// of its parts.
inline constexpr llvm::StringLiteral kOffsetAttr = "equant.offset";
/// Attribute of the module: what the manifest says of online scales: `window`, `decay`, `tokens` of
/// a step at most, and the scales that each site starts with.
inline constexpr llvm::StringLiteral kOnlineAttr = "equant.online";
/// Attribute of the module: the folder of what methods have computed.
inline constexpr llvm::StringLiteral kWorkAttr = "equant.work";
/// Attributes of a computed global: its file in that folder, and the stamp that the file must have.
inline constexpr llvm::StringLiteral kFileAttr = "equant.file";
inline constexpr llvm::StringLiteral kStampAttr = "equant.stamp";
/// Attribute of a global: it is a part (codes, scales, zero points, minima) of a weight that the
/// model's source has in codes.
inline constexpr llvm::StringLiteral kStoredAttr = "equant.stored";
/// Attribute of a quantizable op, and of an embedding that no linear shares its table with: its
/// #equant.plan.
inline constexpr llvm::StringLiteral kPlanAttr = "equant.plan";

/// Attributes of a quantizable op whose plan has static activations: their scale (the outer one,
/// where there is one) and zero point, where they are not those of calibration.
inline constexpr llvm::StringLiteral kInputScaleAttr = "equant.input_scale";
inline constexpr llvm::StringLiteral kInputZeroPointAttr = "equant.input_zero_point";
/// Attribute of a quantizable op whose plan has codes: the global of the order that their columns
/// are in (equant.gather_columns), where it is not that of the activations.
inline constexpr llvm::StringLiteral kColumnOrderAttr = "equant.column_order";

/// The plan of a site; null: it stays float.
PlanAttr getPlan(QuantizableOpInterface op);
PlanAttr getPlan(lm::EmbeddingOp op);

/// Are the codes of a site those of the model's source (kStoredAttr)?
bool isKept(mlir::Operation *site, PlanAttr plan);

/// The block of columns in which equant.hadamard rotates the value; 0: it is in the plain basis.
int64_t rotationOf(mlir::Value value);
/// What has been done to the columns of a weight, and so to the activations that it is multiplied
/// with, in this order: 0 where factors scale them, else the block in which they are rotated.
llvm::SmallVector<int64_t> columnSteps(mlir::Value weight);

/// The site of an embedding whose table this is: the global's name without ".weight"; "embedding"
/// where it is no global.
llvm::StringRef embeddingSite(mlir::Value table);
/// The embeddings of the module whose table is no weight of a quantizable op: sites of their own.
llvm::SmallVector<lm::EmbeddingOp> untiedEmbeddings(mlir::ModuleOp module);

/// Why the site cannot be quantized as planned; empty if it can.
std::string whyNotQuantizable(QuantizableOpInterface op, PlanAttr plan);

/// The rule in plain C++; a null percentile is the default one.
numerics::ScaleRule toNumerics(ScaleRule rule, mlir::FloatAttr percentile);

/// Empty, or what the rule lacks to choose scales for the scheme.
std::string whyRuleCannotServe(ScaleRule rule, mlir::FloatAttr percentile, SchemeAttr scheme);

/// The end of the name of a part of a weight: "" for codes, "_scale", "_zero_point", ...
llvm::StringRef suffixOf(numerics::WeightTensor part);

/// Why activations cannot be multiplied as codes of this scheme; empty if they can.
std::string whyNoInputScheme(SchemeAttr scheme);

/// How many products of a code of `weight` and one of `input` an int32 accumulator can always sum.
/// Packed codes are stored with an offset and count with the largest value that stands for one.
int64_t maxAccumulatedProducts(SchemeAttr weight, SchemeAttr input, bool packed);

/// How many products a linear of `k` input features sums before it scales: the smaller group of the
/// two, else k.
int64_t accumulatedProducts(SchemeAttr weight, SchemeAttr input, int64_t k);

/// The columns whose codes are summed together for a linear: groups of tokens, else of the weight.
int64_t sumsGroup(SchemeAttr weight, SchemeAttr input);

/// Why groups of a token and those of the weight do not go together; empty if they do.
std::string whyGroupsDiffer(SchemeAttr weight, SchemeAttr input);

/// The quantizable ops of one block, `op` among them, that read the same activations, in block
/// order: what shares one quantized input (q, k, v; gate, up).
llvm::SmallVector<QuantizableOpInterface> getInputSharers(QuantizableOpInterface op);

/// Gives the linears of `lm` their QuantizableOpInterface; the dialect calls it.
void attachLMModels(mlir::MLIRContext *context);

} // namespace easyquant::equant

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANT_H
