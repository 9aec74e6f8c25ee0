//===- LMTypes.td - Language model types -------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LM_IR_LMTYPES
#define EASYQUANT_DIALECT_LM_IR_LMTYPES

include "easyquant/Dialect/LM/IR/LMDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/CommonTypeConstraints.td"

/// A number of each layer, or one where all layers have the same.
def LM_OfLayers : ArrayRefParameter<"int64_t"> {
  let parser = "parseOfLayers($_parser)";
  let printer = "printOfLayers($_printer, $_self)";
}
/// The same, which may be left out.
def LM_PerhapsOfLayers : OptionalArrayRefParameter<"int64_t"> {
  let parser = "parseOfLayers($_parser)";
  let printer = "printOfLayers($_printer, $_self)";
}

def LM_KVCacheType : TypeDef<LM_Dialect, "KVCache"> {
  let mnemonic = "kv_cache";
  let summary = "handle of a session's keys and values";
  let description = [{
    The keys and values of every token that a session has seen, for all layers. The handle says how many layers, heads
    and dimensions there are and nothing of their storage: capacity, element type and memory layout are the target's
    business. Where layers differ in their heads, there is a list with a number for each layer. At most 4096 layers, heads
    of at most 65536 dimensions, 2^31 - 1 of them together in a layer. `window` says of how many of the newest tokens a
    layer's keys and values are read; 0 says that all are, as in layers without a window.

    Examples: `!lm.kv_cache<layers = 30, kv_heads = 3, head_dim = 64>`,
    `!lm.kv_cache<layers = 3, kv_heads = 8, head_dim = [256, 256, 512], window = [512, 512, 0]>`
  }];
  let parameters = (ins "int64_t":$layers, LM_OfLayers:$kv_heads, LM_OfLayers:$head_dim, LM_PerhapsOfLayers:$window);
  let assemblyFormat = "`<` struct(params) `>`";
  let builders = [
    /// Numbers of each layer, alike or not.
    TypeBuilder<(ins "::llvm::ArrayRef<int64_t>":$kvHeads, "::llvm::ArrayRef<int64_t>":$headDims,
                     "::llvm::ArrayRef<int64_t>":$windows), [{
      auto once = [](::llvm::ArrayRef<int64_t> numbers) {
        return numbers.size() > 1 && ::llvm::all_equal(numbers) ? numbers.take_front() : numbers;
      };
      ::llvm::ArrayRef<int64_t> window = once(windows);
      if (window.size() == 1 && window.front() == 0)
        window = {};
      return $_get($_ctxt, static_cast<int64_t>(kvHeads.size()), once(kvHeads), once(headDims), window);
    }]>];
  let extraClassDeclaration = [{
    int64_t kvHeadsOf(int64_t layer) const {
      return getKvHeads()[getKvHeads().size() == 1 ? 0 : layer];
    }
    int64_t headDimOf(int64_t layer) const {
      return getHeadDim()[getHeadDim().size() == 1 ? 0 : layer];
    }
    /// 0: all tokens of the layer are read.
    int64_t windowOf(int64_t layer) const {
      return getWindow().empty() ? 0 : getWindow()[getWindow().size() == 1 ? 0 : layer];
    }
    /// Have all layers the same heads?
    bool isUniform() const { return getKvHeads().size() == 1 && getHeadDim().size() == 1; }
    /// The cache of one layer alone, with all of its tokens.
    KVCacheType ofLayer(int64_t layer) const {
      return get(getContext(), kvHeadsOf(layer), headDimOf(layer), int64_t(0));
    }
  }];
  let genVerifyDecl = 1;
}

def LM_BatchType : TypeDef<LM_Dialect, "Batch">,
                   BuildableType<"$_builder.getType<::easyquant::lm::BatchType>()"> {
  let mnemonic = "batch";
  let summary = "the sequences of a step";
  let description = [{
    Which rows of a step belong to which sequence: for each sequence its rows, one behind the other, the position of the
    first of them, how many tokens its cache has seen, and where its pages of the cache are (`eq_sequence` of
    easyquant/Formats/Step.h). What takes a position takes a batch; all other ops do not know of sequences.

    Example: `!lm.batch`
  }];
}

def LM_StateType : TypeDef<LM_Dialect, "State"> {
  let mnemonic = "state";
  let summary = "handle of what each sequence keeps from step to step";
  let description = [{
    Every sequence has `fields` numbers (f64) for each of `sites` sites. A step reads those of a sequence in one slot and
    writes them to another (`eq_sequence` of easyquant/Formats/Step.h), so that a step that fails changes nothing. At
    most 65536 sites and 1024 fields.

    Example: `!lm.state<sites = 118, fields = 2>`
  }];
  let parameters = (ins "int64_t":$sites, "int64_t":$fields);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

def LM_RecurrentType : TypeDef<LM_Dialect, "Recurrent"> {
  let mnemonic = "recurrent";
  let summary = "handle of what layers with a recurrent state keep of each sequence";
  let description = [{
    Every sequence has so many numbers (f32), of which each layer has a part. A step reads those of a sequence in one slot and
    writes them to another, the same slots as those of `!lm.state`. What a sequence at position 0 has is zeros, whatever lies
    there. At most 2^32 numbers.

    Example: `!lm.recurrent<values = 20480>`
  }];
  let parameters = (ins "int64_t":$values);
  let assemblyFormat = "`<` struct(params) `>`";
  let genVerifyDecl = 1;
}

// The shapes of a language model. A row is a token; how many there are is known at run time only.

class LM_TensorPred<string condition>
    : CPred<!subst("$t", "::llvm::cast<::mlir::RankedTensorType>($_self)", condition)>;

class LM_TensorOf<int rank, string element, string shape, string summary>
    : Type<And<[CPred<"::llvm::isa<::mlir::RankedTensorType>($_self)">,
                LM_TensorPred<"!$t.getEncoding()">, LM_TensorPred<"$t.getRank() == " # rank>,
                LM_TensorPred<"($t.getElementType()." # element # ")">, LM_TensorPred<shape>]>,
           summary, "::mlir::RankedTensorType">;

def LM_Activation : LM_TensorOf<2, "isF32()", "$t.isDynamicDim(0) && $t.getDimSize(1) > 0",
                                "activations tensor<?xCxf32>, a row per token">;
/// What a cast gives to kernels that read less than f32.
def LM_BF16Activation : LM_TensorOf<2, "isBF16()", "$t.isDynamicDim(0) && $t.getDimSize(1) > 0",
                                    "activations tensor<?xCxbf16>, a row per token">;
def LM_FloatActivation : AnyTypeOf<[LM_Activation, LM_BF16Activation], "", "::mlir::RankedTensorType">;
def LM_Tokens : LM_TensorOf<1, "isSignlessInteger(32)", "$t.isDynamicDim(0)", "token ids tensor<?xi32>">;
def LM_RowNumbers : LM_TensorOf<1, "isSignlessInteger(32)", "$t.isDynamicDim(0)", "row numbers tensor<?xi32>">;
/// Row numbers, several a row.
def LM_RowChoices : LM_TensorOf<2, "isSignlessInteger(32)", "$t.isDynamicDim(0) && $t.getDimSize(1) > 0",
                                "row numbers tensor<?xCxi32>, C a row">;
def LM_ExpertOffsets : LM_TensorOf<1, "isSignlessInteger(32)", "$t.getDimSize(0) > 1",
                                   "where the rows of each of E experts begin and the last ones end, tensor<(E + 1)xi32>">;

class LM_Constant<int rank, string summary, string element = "isF32()">
    : LM_TensorOf<rank, element, "::llvm::all_of($t.getShape(), [](int64_t extent) { return extent > 0; })", summary>;
def LM_Vector : LM_Constant<1, "vector tensor<Cxf32>">;
def LM_Matrix : LM_Constant<2, "matrix tensor<NxKxf32>">;
/// What rows are read of: f32, or the type that the model's file has.
def LM_HalfMatrix : LM_Constant<2, "matrix tensor<NxKxf16> or tensor<NxKxbf16>", "isF16() || $t.getElementType().isBF16()">;
def LM_Table : AnyTypeOf<[LM_Matrix, LM_HalfMatrix], "", "::mlir::RankedTensorType">;
def LM_RopeTable : LM_Constant<3, "rotation table tensor<PxHx2xf32>">;

#endif // EASYQUANT_DIALECT_LM_IR_LMTYPES
