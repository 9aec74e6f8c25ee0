//===- EquantOpBase.td - What the operations are made of ---- -*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTOPBASE
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTOPBASE

include "easyquant/Dialect/Equant/IR/EquantAttributes.td"
include "easyquant/Dialect/Equant/IR/EquantDialect.td"
include "easyquant/Dialect/Equant/IR/EquantTypes.td"
include "easyquant/Dialect/LM/IR/LMInterfaces.td"
include "easyquant/Dialect/LM/IR/LMTypes.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Equant_Op<string mnemonic, list<Trait> traits = []>
    : Op<Equant_Dialect, mnemonic, traits # [Pure, LM_ModelOp]>;

class Equant_TensorOf<string condition, string summary>
    : Type<And<[CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">, LM_TensorPred<"!$t.getEncoding()">,
                LM_TensorPred<"llvm::all_of($t.getShape(), [](int64_t extent) { return extent != 0; })">,
                LM_TensorPred<condition>]>,
           summary, "::mlir::RankedTensorType">;

def Equant_Codes : Equant_TensorOf<"$t.getRank() == 2 && !$t.isDynamicDim(1) && "
                                   "::easyquant::equant::isCodeType($t.getElementType())",
                                   "codes tensor<NxKxT> of i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN">;
def Equant_Scales
    : Equant_TensorOf<"$t.getRank() == 2 && ::easyquant::equant::isScaleType($t.getElementType())",
                      "scales tensor<NxGxT> of f32, f16, bf16, f8E4M3FN, f8E8M0FNU or ui6">;
def Equant_ZeroPoints
    : Equant_TensorOf<"$t.getRank() == 2 && $t.getElementType().isSignlessInteger(32)", "zero points tensor<NxGxi32>">;
def Equant_Minima
    : Equant_TensorOf<"$t.getRank() == 2 && ($t.getElementType().isF32() || $t.getElementType().isF16())",
                      "minima tensor<NxGxT> of f32 or f16">;
def Equant_OuterScales
    : Equant_TensorOf<"$t.getRank() == 2 && $t.getDimSize(1) == 1 && $t.getElementType().isF32()",
                      "outer scales tensor<Nx1xf32>">;
def Equant_RowScales
    : Equant_TensorOf<"$t.getRank() == 1 && $t.isDynamicDim(0) && $t.getElementType().isF32()",
                      "scales of activations, tensor<?xf32>">;
def Equant_RowSums
    : Equant_TensorOf<"$t.getRank() == 2 && $t.isDynamicDim(0) && !$t.isDynamicDim(1) && "
                      "$t.getElementType().isSignlessInteger(32)", "sums of codes of activations, tensor<?xGxi32>">;
/// Activations, or their sums of products of codes before these are scaled.
def Equant_LinearOutput : AnyTypeOf<[LM_Activation, Equant_RowSums], "", "::mlir::RankedTensorType">;
def Equant_PackedInput : AnyTypeOf<[LM_Activation, LM_BF16Activation, Equant_RowCodes]>;
def Equant_Rows : AnyTypeOf<[LM_Vector, Equant_Weight]>;

def Equant_FloatRows
    : Equant_TensorOf<"($t.getRank() == 1 || $t.getRank() == 2) && $t.hasStaticShape() && $t.getElementType().isF32()",
                      "vector or matrix of f32 of static shape">;

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTOPBASE
