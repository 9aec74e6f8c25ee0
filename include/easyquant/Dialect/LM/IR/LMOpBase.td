//===- LMOpBase.td - What the operations are made of -------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMOPBASE
#define EASYQUANT_DIALECT_LM_IR_LMOPBASE

include "easyquant/Dialect/LM/IR/LMAttributes.td"
include "easyquant/Dialect/LM/IR/LMDialect.td"
include "easyquant/Dialect/LM/IR/LMInterfaces.td"
include "easyquant/Dialect/LM/IR/LMTypes.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class LM_Op<string mnemonic, list<Trait> traits = []>
    : Op<LM_Dialect, mnemonic, traits # [LM_ModelOp]>;

/// An operation on rows that keeps their width.
class LM_RowOp<string mnemonic, list<Trait> traits = []>
    : LM_Op<mnemonic, traits # [Pure, AllTypesMatch<["input", "output"]>]>;

/// The vector that goes with activations of C columns.
class LM_VectorOf<string matrix, string vector>
    : TypesMatchWith<"'" # vector # "' must have one element a column of '" # matrix # "'", matrix, vector,
                     "::easyquant::lm::columnVectorType($_self)">;

#endif // EASYQUANT_DIALECT_LM_IR_LMOPBASE
