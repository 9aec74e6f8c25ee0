//===- EquantTypes.td - Quantized weights and activations --*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTTYPES
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTTYPES

include "easyquant/Dialect/Equant/IR/EquantAttributes.td"
include "easyquant/Dialect/Equant/IR/EquantDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/CommonTypeConstraints.td"

def Equant_WeightType : TypeDef<Equant_Dialect, "Weight"> {
  let mnemonic = "weight";
  let summary = "a quantized matrix of constants";
  let description = [{
    An N x K matrix as codes, with what gives them their values, as one value. The scheme says which parts there are:

    | part | rows as they are | where |
    |---|---|---|
    | codes | tensor<NxKxT> | always |
    | scales | tensor<1x1xT>, tensor<Nx1xT> or tensor<NxGxT> | always |
    | zero points | as scales, i32 | asymmetric schemes without minima |
    | minimum of a group | as scales | schemes with `minima` |
    | outer scales | tensor<Nx1xf32> | schemes with `outer = tensor` |
    | values of a table | | a layout of CPUs, schemes with a codebook |
    | sums of q - z of each row and group | | `sums`: a reader has asymmetric activations |

    A weight with a `#equant.layout` is packed: its parts lie in the artifact as the layout says, which documents their types.

    ```mlir
    !equant.weight<576x1536, #equant.scheme<i4, symmetric, group = 128>>
    !equant.weight<576x1536, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>, sums>
    ```
  }];
  let parameters = (ins "int64_t":$rows, "int64_t":$columns, "::easyquant::equant::SchemeAttr":$scheme,
                        "::easyquant::equant::LayoutAttr":$layout, "bool":$sums);
  let builders = [TypeBuilderWithInferredContext<(ins "int64_t":$rows, "int64_t":$columns,
                                                      "::easyquant::equant::SchemeAttr":$scheme,
                                                      CArg<"::easyquant::equant::LayoutAttr", "{}">:$layout,
                                                      CArg<"bool", "false">:$sums), [{
    return $_get(scheme.getContext(), rows, columns, scheme, layout, sums);
  }]>];
  let extraClassDeclaration = [{
    /// The same scheme and layout for another matrix.
    WeightType withShape(int64_t rows, int64_t columns) const {
      return get(rows, columns, getScheme(), getLayout(), getSums());
    }
    /// How many columns cannot be cut: those that share a scale, or the unit of scales.
    int64_t getColumnUnit() const;
    /// The type of a part; null where there is none.
    ::mlir::RankedTensorType getPart(::easyquant::numerics::WeightTensor part) const;
    /// Every part that there is, in the order of their enumerators.
    ::llvm::SmallVector<std::pair<::easyquant::numerics::WeightTensor, ::mlir::RankedTensorType>> getParts() const;
    /// The bytes that its parts take.
    int64_t getStoredBytes() const;
    /// The bytes of a row of a packed weight, without the padding of the last rows.
    int64_t getRowBytes() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Equant_RowsType : TypeDef<Equant_Dialect, "Rows"> {
  let mnemonic = "rows";
  let summary = "activations as codes";
  let description = [{
    Rows of K codes, int8, f8E4M3FN with a scale a row, or f4E2M1FN in groups of 16 with f8E4M3FN scales in units of an outer one, with what a product needs beside them, as one value: a scale for each row, or for each group of it, a
    zero point beside each scale of an asymmetric scheme, and, with `sums = G`, the sums of the codes of every G columns (of the row, if
    G = 0), which products with zero points are corrected by. Groups of a row have sums of their own. Codes of f4E2M1FN are two a byte, and their
    scales four a word, as `easyquant/Codegen/GPU/BlockScaled.h` has them; their outer scale is there once a row.

    ```mlir
    !equant.rows<?x576, #equant.scheme<i8, symmetric, token, group = 32, dynamic>, sums = 32>
    !equant.rows<?x576, #equant.scheme<i8, symmetric, token, dynamic>, sums = 128>
    !equant.rows<?x576, #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>>
    ```
  }];
  let parameters = (ins "int64_t":$columns, "::easyquant::equant::SchemeAttr":$scheme, "std::optional<int64_t>":$sums);
  let builders = [TypeBuilderWithInferredContext<(ins "int64_t":$columns, "::easyquant::equant::SchemeAttr":$scheme,
                                                      "std::optional<int64_t>":$sums), [{
    return $_get(scheme.getContext(), columns, scheme, sums);
  }]>];
  let extraClassDeclaration = [{
    enum class Part { Codes, Scales, Sums, ZeroPoints, Outer };
    /// Are codes two a byte, with scales of groups?
    bool isBlockScaled() const;
    /// The type of a part; null where there is none.
    ::mlir::RankedTensorType getPart(Part part) const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

class Equant_TypeOf<string type, string condition, string summary>
    : Type<And<[CPred<"::llvm::isa<::easyquant::equant::" # type # ">($_self)">,
                CPred<!subst("$t", "::llvm::cast<::easyquant::equant::" # type # ">($_self)", condition)>]>,
           summary, "::easyquant::equant::" # type>;

def Equant_AnyWeight : Equant_TypeOf<"WeightType", "true", "quantized weight">;
def Equant_Weight : Equant_TypeOf<"WeightType", "!$t.getLayout()", "quantized weight that is not packed">;
def Equant_PackedWeight : Equant_TypeOf<"WeightType", "$t.getLayout()", "packed weight">;
def Equant_RowCodes : Equant_TypeOf<"RowsType", "true", "activations as codes">;

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTTYPES
