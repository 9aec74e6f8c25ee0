//===- EquantAttributes.td - Quantization attributes -------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_IR_EQUANTATTRIBUTES
#define EASYQUANT_DIALECT_EQUANT_IR_EQUANTATTRIBUTES

include "easyquant/Dialect/Equant/IR/EquantDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

class Equant_Attr<string name, string attrMnemonic> : AttrDef<Equant_Dialect, name> {
  let mnemonic = attrMnemonic;
}

def Equant_Granularity
    : I32EnumAttr<"Granularity", "which elements of a matrix share a scale",
                  [I32EnumAttrCase<"Tensor", 0, "tensor">, I32EnumAttrCase<"Channel", 1, "channel">,
                   I32EnumAttrCase<"Group", 2, "group">, I32EnumAttrCase<"Token", 3, "token">]> {
  let cppNamespace = "::easyquant::equant";
  let genSpecializedAttr = 0;
}

def Equant_ScaleRule : I32EnumAttr<"ScaleRule", "how scales follow from values",
                                   [I32EnumAttrCase<"AbsMax", 0, "absmax">,
                                    I32EnumAttrCase<"ZeroPoint", 1, "zeropoint">,
                                    I32EnumAttrCase<"Symmetric", 2, "symmetric">,
                                    I32EnumAttrCase<"Percentile", 3, "percentile">,
                                    I32EnumAttrCase<"Mse", 4, "mse">, I32EnumAttrCase<"Entropy", 5, "entropy">,
                                    I32EnumAttrCase<"HessianDiagonal", 6, "hessian_diagonal">]> {
  let cppNamespace = "::easyquant::equant";
  let genSpecializedAttr = 0;
}
def Equant_ScaleRuleAttr : EnumAttr<Equant_Dialect, Equant_ScaleRule, "scale_rule"> {
  let description = [{
    | rule | the range that the codes cover |
    |---|---|
    | `absmax` | all values, symmetric: s = max abs(x) / (2^(b−1) − 1) |
    | `symmetric` | all values, symmetric and full: s = max abs(x) / (2^(b−1) − 0.5) |
    | `zeropoint` | all values, asymmetric: s = (max − min) / (2^b − 1), 0 being a code |
    | `percentile` | the p-th percentile of the magnitudes, or from the (100−p)-th to the p-th percentile |
    | `mse` | the fraction of all values with the least error |
    | `entropy` | the cut with the least KL divergence of the histograms |
    | `hessian_diagonal` | that of the least squared error, columns weighted by the mean square of what they are multiplied by, which calibration gathers |

    A slice of zeros gets scale 1. `lib/Numerics` defines each rule to the bit (`easyquant/Numerics/ScaleRules.h`).
  }];
}

def Equant_ScaleOrigin
    : I32EnumAttr<"ScaleOrigin", "when scales come to be",
                  [I32EnumAttrCase<"Static", 0, "static">, I32EnumAttrCase<"Dynamic", 1, "dynamic">,
                   I32EnumAttrCase<"Online", 2, "online">]> {
  let cppNamespace = "::easyquant::equant";
  let genSpecializedAttr = 0;
}

def Equant_CodebookAttr : Equant_Attr<"Codebook", "codebook"> {
  let summary = "the values that codes stand for, in units of the scale";
  let description = [{
    A table of 4, 8 or 16 ascending values: `nf4` (QLoRA), `iq4_nl` (llama.cpp), or any others. A value is rounded to the
    nearest of the table. `learned2`, `learned3` and `learned4` stand for tables of so many bits that `equant-learn-tables` is
    to find.

    Beside int8 activations a table has int8 values: multiples, by −127 to 127, of a power of two. `iq4_nl` has them as it is.
    `nf4_int8` is the nearest such table to `nf4`. `learned2_int8`, `learned3_int8` and `learned4_int8` stand for such tables that
    are to be found.

    ```mlir
    #equant.codebook<nf4>
    #equant.codebook<learned4_int8>
    #equant.codebook<[-1.0, -0.25, 0.25, 1.0]>
    ```
  }];
  let parameters = (ins "::mlir::DenseF32ArrayAttr":$values);
  let extraClassDeclaration = [{
    static CodebookAttr get(::mlir::MLIRContext *context, const ::easyquant::numerics::Codebook &table);
    /// The same table in plain C++.
    const ::easyquant::numerics::Codebook *toNumerics() const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Equant_SchemeAttr : Equant_Attr<"Scheme", "scheme"> {
  let summary = "which codes stand for the values of a matrix, which values share a scale, and what scales are";
  let description = [{
    In this order:

    | part | meaning |
    |---|---|
    | `i2`, `i3`, `i4`, `i5`, `i6`, `i8`, `f8E4M3FN`, `f4E2M1FN` | the codes |
    | `codebook = nf4`, `codebook = learned4`, `codebook = [...]` | integer codes are indices of a table (`#equant.codebook`) |
    | `symmetric` | integers: zero point 0, codes in [−(2^(b−1) − 1), 2^(b−1) − 1] |
    | `symmetric, full` | integers: zero point 0, codes in [−2^(b−1), 2^(b−1) − 1] |
    | `asymmetric` | integers: a zero point with every scale, codes in [−2^(b−1), 2^(b−1) − 1] |
    | `asymmetric, minima` | integers in groups: in place of a zero point, a float in the type of scales, which the lowest code stands for |
    | `tensor` | one scale |
    | `channel` | a scale for each output feature of a weight |
    | `group = G` | a scale for each G consecutive columns of a row; the last group of a row may be short |
    | `token` | a scale for each row of an activation; always computed at run time |
    | `token, group = G` | a scale, and a zero point of an asymmetric scheme, for each 32, 64 or 128 consecutive columns of a row of `i8` or `f8E4M3FN` activations; the last group may be short |
    | `dynamic` | scales are computed from each input at run time; static when absent |
    | `online` | scales are state of a sequence, updated step by step |
    | `sinks` | a static or online scale of `i8` activations, but tokens that leave its range have scales of their own |
    | `hadamard = B` | codes of rows in a rotated basis, in blocks of B columns (`easyquant/Numerics/Hadamard.h`) |
    | `scale = T` | the type of scales: `f16`, `bf16`, `f8E4M3FN`, `f8E8M0FNU`, `ui6`; `f32` when absent. `ui6`: two levels, n/64 in units of one f16 for every 8 groups of a row |
    | `outer = tensor` | the scales are themselves scaled, by one f32 a tensor |
    | `super` | scales, and minima, are products of an integer and an f16 that the groups of 256 columns share, as in the K types of llama.cpp (`easyquant/Numerics/SuperBlocks.h`) |

    `lib/Numerics` defines every format to the bit (`easyquant/Numerics/NumberFormats.h`).

    ```mlir
    #equant.scheme<i8, symmetric, channel>
    #equant.scheme<i8, symmetric, full, channel>
    #equant.scheme<i4, symmetric, group = 128, scale = f16>
    #equant.scheme<i4, asymmetric, minima, group = 32, scale = f16>
    #equant.scheme<i4, codebook = nf4, group = 64, scale = f16>
    #equant.scheme<i8, symmetric, token, dynamic>
    #equant.scheme<i8, symmetric, token, dynamic, hadamard = 64>
    #equant.scheme<i8, symmetric, token, group = 32, dynamic>
    #equant.scheme<i8, asymmetric, token, group = 64, dynamic>
    #equant.scheme<i8, symmetric, tensor, sinks>
    #equant.scheme<f8E4M3FN, channel>
    #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>
    #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>
    #equant.scheme<i4, asymmetric, minima, group = 32, super>
    ```
  }];
  let parameters = (ins "::mlir::Type":$code, "::easyquant::equant::CodebookAttr":$codebook, "bool":$symmetric,
                        "bool":$full_range, "::easyquant::equant::Granularity":$granularity, "int64_t":$group_size,
                        "::mlir::Type":$scale, "::easyquant::equant::ScaleOrigin":$origin, "bool":$outer,
                        "bool":$sinks, "int64_t":$hadamard, "bool":$minima, "bool":$super_blocks);
  let extraClassDeclaration = [{
    /// A scheme of lib/Numerics, which is a scheme (numerics::checkScheme).
    static SchemeAttr get(::mlir::MLIRContext *context, const ::easyquant::numerics::Scheme &scheme);
    /// Scales computed at run time, one a token: <iB, symmetric, token, dynamic>.
    static SchemeAttr perToken(::mlir::MLIRContext *context, unsigned bits);
    /// A scale that is state of a sequence: <i8, symmetric, tensor, online>, or with sinks apart.
    static SchemeAttr perTensorOnline(::mlir::MLIRContext *context, bool sinks);
    /// The scheme in a basis that is rotated in blocks of so many columns; 0: in the plain one.
    SchemeAttr inBasis(int64_t hadamard) const;

    /// The same scheme in plain C++, where online scales are dynamic ones.
    ::easyquant::numerics::Scheme toNumerics() const;
    /// Bits of a code.
    unsigned getBits() const;
    /// Are codes integers, that can be multiplied as they are?
    bool isInteger() const;
    /// Are they that, or indices of int8 values?
    bool hasIntegerValues() const;
    /// Are they integers with zero points?
    bool hasZeroPoints() const { return !getSymmetric() && !getMinima(); }
    /// Does each input have scales of its own?
    bool getDynamic() const { return getOrigin() == ScaleOrigin::Dynamic; }
    bool isOnline() const { return getOrigin() == ScaleOrigin::Online; }
    /// Is a row's largest magnitude all that decides whether it leaves the range?
    bool hasSinksAroundZero() const { return getSinks() && getSymmetric() && !getFullRange(); }
    bool isStatic() const { return getOrigin() == ScaleOrigin::Static; }
    /// Do activations have a scale that calibration finds? It is that of a tensor, with which online
    /// scales start, or the outer one.
    bool isCalibrated() const { return !getDynamic() || getOuter(); }
    /// Columns of a token that share a scale; 0: all of them, or scales are not per token.
    int64_t getTokenGroup() const {
      return getGranularity() == Granularity::Token ? getGroupSize() : 0;
    }
    /// Do kernels take sums of a weight's codes, which it then has, beside such activations? For groups
    /// of a token they sum up codes themselves.
    bool readsWeightSums() const { return !getSymmetric() && !getTokenGroup(); }
    /// The shape of the scales of a matrix: 1x1, Nx1 or NxG. A dynamic extent stays one.
    ::llvm::SmallVector<int64_t, 2> getScaleShape(::llvm::ArrayRef<int64_t> matrixShape) const;
  }];
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Equant_LayoutAttr : Equant_Attr<"Layout", "layout"> {
  let summary = "how a weight is packed for the kernels of a target";
  let description = [{
    A layout of `lib/Numerics` by its name (`numerics::layoutKinds`), which knows the shape of each part of a weight, how to
    pack it, and which schemes it takes:

    | name | whose kernels read it | defined by |
    |---|---|---|
    | `panel` | of CPUs: 32 output rows side by side, four columns of each together | `easyquant/Numerics/Packing.h` |
    | `m16n8k32` | of GPUs, on int8 activations: the fragments that lanes hand to this `mma.sync` | `easyquant/Numerics/FragmentPacking.h` |
    | `m16n8k16` | of GPUs, on activations of f16 and bf16: the same | `easyquant/Numerics/FragmentPacking.h` |
    | `plain` | none: rows of codes, one in a byte, and scales in f32, for upstream ops | `easyquant/Numerics/PlainPacking.h` |

    ```mlir
    #equant.layout<panel>
    #equant.layout<m16n8k32>
    ```
  }];
  let parameters = (ins StringRefParameter<"the name of the layout">:$name);
  let assemblyFormat = "`<` custom<Keyword>($name) `>`";
  let extraClassDeclaration = [{
    /// What packs an N x K weight so. Unsupported, saying what the layout takes, on other schemes.
    ::easyquant::Result<std::unique_ptr<::easyquant::numerics::WeightLayout>> getPacker(SchemeAttr scheme, int64_t n,
                                                                                        int64_t k) const;
  }];
  let genVerifyDecl = 1;
}

def Equant_PlanAttr : Equant_Attr<"Plan", "plan"> {
  let summary = "how a site is going to be quantized";
  let description = [{
    The attribute `equant.plan` of a quantizable op, or of an embedding whose table is no linear's weight: what a pass such as `equant-absmax` decided and the passes after it read
    and complete. A site without one stays float.

    | part | meaning |
    |---|---|
    | `methods` | what later passes may do at this site, in this order; empty: round to nearest |
    | `rule`, `percentile` | how scales follow from values; the percentile of rule `percentile` |
    | `weight` | the scheme of the weight |
    | `input` | the scheme of the activations; absent: they stay float |
    | `options` | options of these methods, and the observer of static activations, that this site has instead of those of the passes: those which a rule of a recipe may have (`easyquant/Recipe/Options.td`), under the same names |
    | `codes`, `scale`, `zero_point`, `minimum`, `outer` | globals of what a method has computed already; codes need scales, scales of an asymmetric scheme zero points or minima, and those of one with outer scales these |

    ```mlir
    lm.linear %x, %w {equant.plan = #equant.plan<methods = ["gptq"], rule = absmax,
                                                 weight = <i4, symmetric, group = 128>,
                                                 input = <i8, symmetric, token, dynamic>>, site = "up_proj"} : …
    ```
  }];
  let parameters = (ins "::mlir::ArrayAttr":$methods, EnumParameter<Equant_ScaleRule>:$rule,
                        OptionalParameter<"::mlir::FloatAttr">:$percentile,
                        "::easyquant::equant::SchemeAttr":$weight,
                        OptionalParameter<"::easyquant::equant::SchemeAttr">:$input,
                        OptionalParameter<"::mlir::DictionaryAttr">:$options,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$codes,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$scale,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$zero_point,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$minimum,
                        OptionalParameter<"::mlir::FlatSymbolRefAttr">:$outer);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// Is `method` among the methods?
    bool names(::llvm::StringRef method) const;
    /// The value of an option that the site has of its own, or null.
    ::mlir::Attribute option(::llvm::StringRef name) const;
    bool optionOr(::easyquant::recipe::Key<bool> key, bool otherwise) const;
    double optionOr(::easyquant::recipe::Key<double> key, double otherwise) const;
    /// May scales be f32 where f16 does not hold them: is f16 the type by default?
    bool mayWidenScales() const;
    /// The same plan with scales of f32.
    PlanAttr withWideScales() const;
    /// The same plan in a basis that is rotated in blocks of so many columns; 0: in the plain one.
    PlanAttr inBasis(int64_t hadamard) const;
    /// The same plan with another table.
    PlanAttr withCodebook(const ::easyquant::numerics::Codebook &codebook) const;
    /// What there is of the weight already.
    PlannedParts getPlannedParts() const;
    /// The same plan with what a method computed. A null `codes` leaves rounding to equant-quantize.
    PlanAttr withResults(const PlannedParts &parts) const;
  }];
  let builders = [AttrBuilderWithInferredContext<(ins "::mlir::ArrayAttr":$methods, "ScaleRule":$rule,
                                                      "::mlir::FloatAttr":$percentile, "SchemeAttr":$weight,
                                                      "SchemeAttr":$input, "::mlir::DictionaryAttr":$options,
                                                      CArg<"const PlannedParts &", "{}">:$parts), [{
    return $_get(weight.getContext(), methods, rule, percentile, weight, input, options, parts.codes, parts.scale,
                 parts.zeroPoint, parts.minimum, parts.outer);
  }]>];
  let genVerifyDecl = 1;
}

def Equant_KVSchemeAttr : Equant_Attr<"KVScheme", "kv_scheme"> {
  let summary = "which integers stand for the keys and values of a cache";
  let description = [{
    Asymmetric codes of `code` (`i2`, `i4` or `i8`), each slice with a minimum and a scale in the cache's float type.

    | part | meaning |
    |---|---|
    | `group` | G, a power of two from 16 to 1024: tokens of a channel that share a slice of keys; dimensions of a head that share a slice of a token's values (all, where a head has fewer) |
    | `residual` | R, a multiple of G: the newest tokens, which are float. Keys leave the window R at a time, values one by one |
    | `sinks` | the first tokens, which stay float |
    | `keys` | `channel`; or `token`: keys in slices like those of values |
    | `hadamard` | with `token`: columns of a head that are rotated together in keys and queries (`equant.hadamard`), a power of two from 16 to 512; absent: none |

    `easyquant/Numerics/KVCache.h` defines codes, slices and the window to the bit.

    ```mlir
    #equant.kv_scheme<code = i4, group = 64, residual = 128, sinks = 4, keys = channel>
    ```
  }];
  let parameters = (ins "::mlir::IntegerType":$code, "int64_t":$group, "int64_t":$residual, "int64_t":$sinks,
                        EnumParameter<Equant_Granularity>:$keys, DefaultValuedParameter<"int64_t", "0">:$hadamard);
  let assemblyFormat = "`<` struct(params) `>`";
  let extraClassDeclaration = [{
    /// The same scheme in plain C++.
    ::easyquant::numerics::KVScheme toNumerics() const;
  }];
  let genVerifyDecl = 1;
}

#endif // EASYQUANT_DIALECT_EQUANT_IR_EQUANTATTRIBUTES
