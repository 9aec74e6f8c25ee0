//===- LM.h - Language model dialect ----------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The one header of the `lm` dialect: its type, attributes and operations. LMOps.td documents them.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LM_H
#define EASYQUANT_DIALECT_LM_IR_LM_H

#include "easyquant/Dialect/LM/IR/Limits.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/BitVector.h"

#include "easyquant/Dialect/LM/IR/LMDialect.h.inc"
#include "easyquant/Dialect/LM/IR/LMEnums.h.inc"

#define GET_ATTRDEF_CLASSES
#include "easyquant/Dialect/LM/IR/LMAttributes.h.inc"

#define GET_TYPEDEF_CLASSES
#include "easyquant/Dialect/LM/IR/LMTypes.h.inc"

namespace mlir::OpTrait {

/// Row m of every result depends on row m of the activation operands, and on no other row.
template <typename ConcreteType> class RowWise : public TraitBase<ConcreteType, RowWise> {};

/// The first result may take the memory of the first operand, which the op then updates.
template <typename ConcreteType> class InPlace : public TraitBase<ConcreteType, InPlace> {};

/// The results are rows or columns of the first operand, in its memory.
template <typename ConcreteType> class View : public TraitBase<ConcreteType, View> {};

/// Computed by a function of lib/Numerics that the program is given when it is called.
template <typename ConcreteType> class HostOp : public TraitBase<ConcreteType, HostOp> {};

} // namespace mlir::OpTrait

namespace easyquant::lm {

/// Attribute of the module: the path of the model that its globals name tensors of.
inline constexpr llvm::StringLiteral kSourceAttr = "lm.source";
/// Attribute of the module: the path of the assistant that drafts for it, whose tensors' names
/// begin with "assistant."; @draft reads the cache alone then, at one position.
inline constexpr llvm::StringLiteral kAssistantAttr = "lm.assistant";
/// Attribute of the module: the model's sizes, `model` in an artifact's manifest.
inline constexpr llvm::StringLiteral kModelAttr = "lm.model";
/// The function of the head that drafts tokens (easyquant/Import/ImportModel.h).
inline constexpr llvm::StringLiteral kDraft = "draft";
/// Attribute of a global tensor<PxHx2xf32> that is computed: {theta = <f64>}, and element [p, i] is
/// the (cos, sin) of p * theta^(-i/H), or with the scaling of a longer context (RopeTable.h).
inline constexpr llvm::StringLiteral kRopeTableAttr = "lm.rope_table";

/// Attribute of a global tensor<...xf32>: f16 or bf16, the type that the model's file has its
/// values in.
inline constexpr llvm::StringLiteral kFileTypeAttr = "lm.file_type";

/// tensor<?x`columns`xf32>: activations, a row per token.
mlir::RankedTensorType activationType(mlir::MLIRContext *context, int64_t columns);

/// tensor<?xCxf32>: rows of tokens.
bool isActivationType(mlir::Type type);

/// tensor<Cxf32> for a matrix tensor<?xCxf32>: its norm weights, its biases. Null for another type.
mlir::Type columnVectorType(mlir::Type matrix);

/// The number of columns of activations or of a matrix.
int64_t columns(mlir::Value matrix);

/// The experts whose rows offsets tensor<(E + 1)xi32> tell apart: E, or 1 where there are none.
int64_t expertCount(mlir::Value offsets);
/// The row that each row of experts is, by the lm.route that gives their offsets; null if none
/// does.
mlir::Value rowOrder(mlir::Value offsets);

/// Does row m of every result depend on row m of the activation operands alone? Which expert a row
/// of several meets depends on the other rows.
bool isRowWise(mlir::Operation *op);

/// The dimensions of a head, the first ones, that a rotation table tensor<PxHx2xf32> turns: 2 H.
int64_t rotatedDims(mlir::Value table);

/// What takes a factor on the columns of an op's result: constants, an activation, or nothing.
struct ScaleFolding {
  /// Every row of them (an element of a vector) takes the factor of the column that it makes.
  llvm::SmallVector<mlir::OpOperand *, 2> constants = {};
  /// Column by column as in the result.
  mlir::OpOperand *activation = nullptr;
  /// Why nothing does, said of the op: "whose heads share values".
  llvm::StringRef obstacle = {};
};

} // namespace easyquant::lm

#include "easyquant/Dialect/LM/IR/LMInterfaces.h.inc"

#define GET_OP_CLASSES
#include "easyquant/Dialect/LM/IR/LMOps.h.inc"

#endif // EASYQUANT_DIALECT_LM_IR_LM_H
