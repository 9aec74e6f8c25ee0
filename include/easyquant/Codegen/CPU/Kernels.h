//===- Kernels.h - Kernel generators for CPUs -------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel is generated from a spec: getOrEmit*(module, spec, target) returns the private func.func
// of that spec, building it the first time it is asked for. Kernels are func/scf/arith/math/vector/
// memref IR plus intrinsics of the processor; equal specs are one function. describe(spec, context)
// gives its name and its parameters, by whose names the function's body and its launches know them.
// The specs' comments say what parameters mean; which there are, and in which order, describe alone
// says.
//
// Conventions of every kernel
//   * `rows<C>` is memref<?xCxf32, strided<[?, 1], offset: ?>>: a matrix whose rows (tokens) are
//     contiguous and any distance apart. The row count M >= 1 is that of the memref.
//   * Behind the parameters comes the team (Team.h): `state: !llvm.ptr, thread: index, threads:
//     index`. Every thread of the team calls the kernel with the same arguments but `thread`, and
//     does its share, which is fixed by them; results are the same bits for every number of
//     threads. A kernel waits for others neither before it begins nor at its end. Its caller puts
//     barriers between kernels.
//   * Row m of a kernel over rows (all but linears and attention) is read and written by one
//     thread, the same for all kernels over as many rows.
//   * `sequences`, memref<?xFxi32>, are those of the step, in a row the F fields of an eq_sequence
//     (easyquant/Formats/Step.h). There is at least one, and each row of the step belongs to one.
//   * `scratch`, memref<?xi8>, is at least threads * scratchBytes(spec, target) bytes, 64-byte
//     aligned, contents undefined.
//   * Nothing is allocated on the heap. No input is read and no output written out of bounds, for
//     any M, N and K; memrefs may be aligned to no more than their element.
//
// Packed weights (easyquant/Numerics/Packing.h defines the bytes; 32 = kPanelRows output rows a
// panel, NP = panelCount(N) panels, Kp = paddedColumns(K), G = groupCount(K, groupSize) groups
// along K, 1 when the scale is per channel, the last one possibly short)
// clang-format off
//   * w: codes, memref<packedShape(format, N, K) x i8>:
//       8 bits  NP x Kp/4 x 32 x 4
//       6 bits  NP x Kp/8 x 48 x 4
//       5 bits  NP x Kp/8 x 40 x 4
//       4 bits  NP x Kp/8 x 32 x 4
//       3 bits  NP x Kp/8 x 24 x 4
//       2 bits  NP x Kp/8 x 16 x 4
// clang-format on
//   * wscales: memref<NP x G x 32 x T>, T being f32, f16, i16 (bf16) or i8 (f8E4M3FN, f8E8M0FNU),
//   of
//     two levels (ui6) memref<NP x 1 x B x i8>;
//   * wzeros: zero points of asymmetric weights, memref<NP x G x B x i8>;
//   * wminima: minima of weights that have them, as wscales;
//   * wouter: outer scales of weights that have them, memref<NP x 1 x 32 x f32>;
//   * codebook: the values of a table, memref<2^b x f32>, beside quantized activations of one that
//     has a numerics::Codebook::int8Unit;
//   * wsums: sums of code - zero point, where activations are asymmetric, memref<NP x G x 32 x
//   i32>.
//   * F32 weights are w alone, memref<N x K x f32>.
//
// Quantized activations (easyquant/Numerics/Quantize.h defines them to the bit)
//   * codes: memref<? x Kp x i8>, columns K.. are 0;
//   * scales: memref<? x f32>, or memref<? x GI x f32> where a row has groups of its own, GI =
//     groupCount(K, inputGroup);
//   * sums: memref<? x G x i32>, the sum of the codes of each weight group (the correction for the
//     offset and the zero points of the weights), or of each of GI groups;
//   * zeros: zero points of asymmetric activations, memref<? x i32>, or memref<? x GI x i32>.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_CPU_KERNELS_H
#define EASYQUANT_CODEGEN_CPU_KERNELS_H

#include "easyquant/Codegen/RowOp.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Numerics/Packing.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace easyquant::cpu {

using easyquant::RowOp;
using easyquant::RowQuantization;

/// In the order of formats::kInstructionSets, which has their names and processors.
enum class Isa { AVX2, AVX512VNNI, NeonDot, NeonI8mm };
inline constexpr std::array kIsas = {Isa::AVX2, Isa::AVX512VNNI, Isa::NeonDot, Isa::NeonI8mm};
static_assert(kIsas.size() == formats::kInstructionSets.size());
inline const formats::InstructionSet &instructionSetOf(Isa isa) {
  return formats::kInstructionSets[static_cast<size_t>(isa)];
}
/// "avx2", "avx512vnni", ...: the name in manifests.
llvm::StringRef nameOf(Isa isa);
/// The instruction set of that name, which there is.
Isa isaOf(llvm::StringRef name);

/// What the kernels are generated for.
struct Target {
  Isa isa = Isa::AVX2;
  /// Build vpdpbusd out of generic vector arithmetic, so that the AVX-512 form of a kernel can be
  /// run (slowly) and compared on a machine without it. Only tests set this.
  bool emulateDot = false;

  llvm::StringRef name() const { return nameOf(isa); }
  const formats::Processor &processor() const { return *instructionSetOf(isa).processor; }
  bool isArm() const { return processor().name == "aarch64"; }
  /// LLVM's target triple, -mcpu and -mattr; the last one that of AVX2 when the dot product is
  /// emulated.
  llvm::StringRef triple() const;
  llvm::StringRef cpu() const;
  std::string features() const;
  /// fp32 lanes of the vectors that kernels compute with, 8 or 16, and how many of those there are
  /// registers for. Vectors of more lanes than a register has are several registers.
  int64_t lanes() const;
  int64_t registers() const;
};

//===- What a launch needs ------------------------------------------------===//

struct Parameter {
  std::string name;
  mlir::Type type;
  bool written = false; ///< the kernel writes this memory (and may read it)
  /// Each thread touches a share of its own of this memory, rows or its part of the scratch.
  bool shared = false;
};

struct Description {
  std::string name; ///< symbol of the kernel
  std::vector<Parameter> parameters;
  /// The threads touch their shares first; behind a barrier of its own the kernel reads what it
  /// wrote of them, and touches the rest.
  bool meets = false;
};

using numerics::groupCount;
using numerics::kPanelRows;
using numerics::paddedColumns;
using numerics::panelCount;

using numerics::CodeFormat;
using numerics::ScaleFormat;

/// The bits of packed codes, of integers and of others (WeightCodes): numerics::isCodeWidth. F32:
/// weights are floats.
enum class WeightFormat { F32 = 32, I8 = 8, I6 = 6, I5 = 5, I4 = 4, I3 = 3, I2 = 2 };
/// "f32", "i8", ..., as symbols have it.
std::string nameOf(WeightFormat format);
constexpr int64_t bitsOf(WeightFormat format) { return static_cast<int64_t>(format); }
/// The shape of packed N x K codes; not for F32.
std::array<int64_t, 4> packedShape(WeightFormat format, int64_t n, int64_t k);

/// What packed codes stand for, and what their scales are.
struct WeightNumbers {
  CodeFormat codes = CodeFormat::Integer;
  ScaleFormat scales = ScaleFormat::F32;
  bool outer = false;  ///< scales of a row have one of their own
  bool minima = false; ///< numerics::Scheme::minima, of weights in groups

  static WeightNumbers of(const numerics::Scheme &scheme) {
    return {scheme.codes, scheme.scales, scheme.outer, scheme.minima};
  }
};
/// As symbols have it: "", "_sf16", "_f8E4M3FN", "_table_sf16", ...
std::string nameOf(const WeightNumbers &numbers);

/// y = x W^T (+ bias) (+ y), of x, rows<K>, or of quantized activations; bias is memref<Nxf32>.
/// One function serves M = 1 (GEMV) and M >= 2 (GEMM). groupSize is a multiple of 8, or 0.
/// Quantized input needs integer codes, or a table of int8 values. Weights without zero points are
/// s * q, others s * (q - z), the difference exact; codes that are no integers stand for s *
/// value(q); the sum of a row is multiplied by its outer scale. With quantized input every
/// accumulator is an exact int32 of its group (the caller has checked K against
/// numerics::maxDotLength), and in fp32, groups in order,
///   y[m,n] = sx[m] * u * sum_g sw[n,g] * (acc[m,n,g] - (offset + zw[n,g]) * sums[m,g]
///                                                    - zx[m] * wsums[n,g]),
/// u being the unit of a table, for whose values codes then stand in acc and wsums, or 1. With
/// `inputGroup`, which divides groupSize, accumulators are those of the groups i of the input,
///   y[m,n] = u * sum_g sw[n,g] * sum_(i in g) sx[m,i] * (acc[m,n,i] - (offset + zw[n,g]) *
///   sums[m,i] - zx[m,i] * (sum of code - zw over i)),
/// the last sum taken by the kernel: it would be a quarter of the bytes of four-bit weights. A
/// weight with minima has its lowest code for zw, and each sum over g is followed by that of
/// m[n,g] * (sums[m,g] - zx[m] * columns of g), as sw[n,g] is multiplied (numerics/Reference.h).
///
/// With `experts` E > 0 there are E linears, of N outputs each: weights and bias are those of E *
/// N, and offsets, memref<?x(E+1)xi32>, say in its first row where the rows of each expert begin
/// and the last ones end. Weights but F32 need an N of whole panels. Experts without rows are not
/// read.
struct LinearSpec {
  int64_t n = 0, k = 0;
  WeightFormat weights = WeightFormat::F32;
  int64_t groupSize = 0;
  bool quantizedInput = false;
  bool bias = false;
  /// Add to y instead of overwriting it: the residual connection.
  bool accumulate = false;
  bool zeroPoints = false;      ///< of the weights
  bool inputZeroPoints = false; ///< of quantized input
  /// Codes of symmetric weights go down to -2^(b-1), not only to -(2^(b-1) - 1).
  bool fullRange = false;
  WeightNumbers numbers = {};
  /// For quantized input and one group. y then has the i32 sums
  /// acc - (offset + zw) * sums - zx * wsums before any scale; there are no scales.
  bool sums = false;
  int64_t inputGroup = 0; ///< columns of quantized input that share a scale: 32, 64, 128; 0: all
  int64_t experts = 0;    ///< 0: one linear

  /// Rows of the weight.
  int64_t weightRows() const { return n * (experts ? experts : 1); }
  /// Columns whose products share an accumulator, and whose codes are summed; 0: all.
  int64_t dotGroup() const { return inputGroup ? inputGroup : groupSize; }
};
std::string symbolName(const LinearSpec &spec);
Description describe(const LinearSpec &spec, mlir::MLIRContext *context);
int64_t scratchBytes(const LinearSpec &spec, const Target &target);
mlir::func::FuncOp getOrEmitLinear(mlir::ModuleOp module, const LinearSpec &spec,
                                   const Target &target);

/// What a linear does with its sums, for sums that come from elsewhere, to the bit:
///   y[m,n] = sx[m] * (outer[n] * (sw[n] * sums[m,n])) (+ bias[n]) (+ y[m,n]).
/// sums are rows<N> of i32; weights have a scale a channel.
struct RescaleSpec {
  int64_t n = 0;
  WeightNumbers numbers = {};
  bool bias = false, accumulate = false;
};
std::string symbolName(const RescaleSpec &spec);
Description describe(const RescaleSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitRescale(mlir::ModuleOp module, const RescaleSpec &spec,
                                    const Target &target);

/// absmax, memref<?xf32>: the largest magnitude of each row of x.
struct TokenAbsMaxSpec {
  int64_t columns = 0;
};
std::string symbolName(const TokenAbsMaxSpec &spec);
Description describe(const TokenAbsMaxSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitTokenAbsMax(mlir::ModuleOp module, const TokenAbsMaxSpec &spec,
                                        const Target &target);

/// squares, memref<?xf32>: the sum of the squares of each row of x.
struct TokenSquaresSpec {
  int64_t columns = 0;
};
std::string symbolName(const TokenSquaresSpec &spec);
Description describe(const TokenSquaresSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitTokenSquares(mlir::ModuleOp module, const TokenSquaresSpec &spec,
                                         const Target &target);

/// y = x / sqrt(squares / all + epsilon) * weight: the RMS norm of rows of `all` columns, the sum
/// of whose squares is given, on some of their columns.
struct PartNormSpec {
  int64_t columns = 0, all = 0;
  double epsilon = 0.0;
};
std::string symbolName(const PartNormSpec &spec);
Description describe(const PartNormSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitPartNorm(mlir::ModuleOp module, const PartNormSpec &spec,
                                     const Target &target);

/// Row-wise operations on x, on gate and up (SiluMul: silu(gate) * up; Mul: gate * up; SigmoidMul:
/// sigmoid(gate) * up; ClampedMul: lm.glu clamped), or on a and b (Add), optionally followed by
/// quantization of the result; weight and bias, of norms and AddBias, are memref<Cxf32>. The result
/// is y, rows<C>, or quantized activations. Quantize itself is dynamic unless it is static, by
/// `scale`, an f32, and perhaps `zero`, an i32, or online. It may be given absmax, the largest
/// magnitude of each row. Online, the scale of a row is number `first` + 1 of what its sequence has
/// in its slot of `state`, memref<?xFxf64>, and extrema, rows<2>, are the greatest of -x and of x
/// in each row before it is rounded: the least value by its negative, so that extrema of several
/// ranks are their maxima. With a `hadamard` block the result is rotated (Numerics/Hadamard.h)
/// before it is stored, quantized, or noted. With `scaleGroup`, dynamic alone, groups of so many
/// columns have scales and sums of their own.
struct RowSpec {
  RowOp op = RowOp::Quantize;
  int64_t columns = 0;
  /// The epsilon of a norm, the factor of Multiply, the bound of SoftCap.
  double constant = 0.0;
  RowQuantization quantization = RowQuantization::None;
  int64_t groupSize = 0;    ///< groups of the sums, when quantized
  bool zeroPoints = false;  ///< static, or with scaleGroup: asymmetric
  bool fullRange = false;   ///< static only: codes from -128 on, as asymmetric ones always are
  bool sinks = false;       ///< static: definition 4 of Numerics/Quantize.h instead of 3; online:
                            ///< rows that leave the range (Numerics/OnlineScales.h)
  int64_t stateFields = 0;  ///< online only: F, of all sites
  bool absMaxGiven = false; ///< of Quantize, dynamic or with sinks in a range around 0
  int64_t hadamard = 0;     ///< columns of a block; 0: not rotated
  int64_t scaleGroup = 0;   ///< then groupSize, too; 0: one scale a row
};
std::string symbolName(const RowSpec &spec);
Description describe(const RowSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitRowOp(mlir::ModuleOp module, const RowSpec &spec, const Target &target);

/// Brings the state of all sites, memref<?xFxf64>, up to date by extrema, rows<2 * sites>
/// (Numerics/OnlineScales.h); F = sites * numerics::onlineFields(window). It reads the slot of each
/// sequence and writes its next slot.
struct AdvanceSpec {
  int64_t sites = 0, window = 0;
  double decay = 0.0;
};
std::string symbolName(const AdvanceSpec &spec);
Description describe(const AdvanceSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitAdvance(mlir::ModuleOp module, const AdvanceSpec &spec,
                                    const Target &target);

/// y = s value(nearest(x / s)), which Numerics/Quantize.h defines for codes that are no integers.
/// The scale is that of each row, or of each group of a row (absmax, ScaleRules.h), or given as
/// `scale`, an f32; with groups and a given one, it is that of each group, rounded to f8E4M3FN in
/// units of the given one.
struct FakeQuantizeSpec {
  int64_t columns = 0;
  CodeFormat codes = CodeFormat::F8E4M3FN; ///< or F4E2M1FN
  bool isStatic = false;
  int64_t groupSize = 0; ///< 0: rows are no groups
};
std::string symbolName(const FakeQuantizeSpec &spec);
Description describe(const FakeQuantizeSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitFakeQuantize(mlir::ModuleOp module, const FakeQuantizeSpec &spec,
                                         const Target &target);

/// y[m] = w[tokens[m]], as f32; tokens are memref<?xi32>. Quantized tables are packed weights of N
/// = vocab, K = columns. A sharded table takes the rank, an index: its tokens are those from rank *
/// vocab on, rows of others are zeros.
struct EmbeddingSpec {
  int64_t vocab = 0, columns = 0;
  WeightFormat table = WeightFormat::F32;
  int64_t groupSize = 0;
  bool zeroPoints = false;
  WeightNumbers numbers = {};
  bool sharded = false;
  ScaleFormat floats = ScaleFormat::F32; ///< of a table that is not packed: F32, F16 or BF16
};
std::string symbolName(const EmbeddingSpec &spec);
Description describe(const EmbeddingSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitEmbedding(mlir::ModuleOp module, const EmbeddingSpec &spec,
                                      const Target &target);

/// y[m] += table[p], p being the position of row m; table is memref<PxCxf32>.
struct PositionEmbeddingSpec {
  int64_t positions = 0, columns = 0;
};
std::string symbolName(const PositionEmbeddingSpec &spec);
Description describe(const PositionEmbeddingSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitPositionEmbedding(mlir::ModuleOp module,
                                              const PositionEmbeddingSpec &spec,
                                              const Target &target);

/// y[i] = x[numbers[i]]; numbers are memref<?xi32>.
struct GatherSpec {
  int64_t columns = 0;
};
std::string symbolName(const GatherSpec &spec);
Description describe(const GatherSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitGather(mlir::ModuleOp module, const GatherSpec &spec,
                                   const Target &target);

/// What lm.route says (numerics::route): the experts that each row of logits, rows<E>, chooses, as
/// places, memref<?xCxi32>, and weights, rows<C>. A bias, memref<E>, of sigmoid
/// scores makes `scores`, rows<E>, by which experts are chosen. Factors, memref<E>, are those of
/// weights.
struct ChooseExpertsSpec {
  int64_t experts = 0, chosen = 0; ///< E, C
  bool renormalize = false, sigmoid = false, bias = false;
  double scale = 1.0;
  bool factors = false;
};
std::string symbolName(const ChooseExpertsSpec &spec);
Description describe(const ChooseExpertsSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitChooseExperts(mlir::ModuleOp module, const ChooseExpertsSpec &spec,
                                          const Target &target);

/// The choices of all rows sorted by expert, then by row: places, which have experts, then have
/// where each choice lies; order, memref<?xi32>, has its row; offsets, memref<?x(E+1)xi32>, in
/// their first row where those of each expert begin. One thread does it.
struct SortChoicesSpec {
  int64_t experts = 0, chosen = 0;
};
std::string symbolName(const SortChoicesSpec &spec);
Description describe(const SortChoicesSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitSortChoices(mlir::ModuleOp module, const SortChoicesSpec &spec,
                                        const Target &target);

/// y[m] = sum_j weights[m, j] * x[places[m, j]], of C choices j in their order; with `shared`,
/// rows<columns>, and gate, rows<1>, then logistic(gate[m]) * shared[m].
struct CombineSpec {
  int64_t columns = 0, chosen = 0;
  bool shared = false;
};
std::string symbolName(const CombineSpec &spec);
Description describe(const CombineSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitCombine(mlir::ModuleOp module, const CombineSpec &spec,
                                    const Target &target);

/// Rotates the first R dimensions of every head of x, rows<heads*D>, in place; dimension i pairs
/// with i + R/2 (the Hugging Face convention). table is memref<PxR/2x2xf32> of (cos, sin).
struct RopeSpec {
  int64_t heads = 0, headDim = 0, positions = 0;
  bool inverse = false; ///< rotates back
  int64_t dims = 0;     ///< R; 0: all of a head

  int64_t rotated() const { return dims > 0 ? dims : headDim; }
};
std::string symbolName(const RopeSpec &spec);
Description describe(const RopeSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitRope(mlir::ModuleOp module, const RopeSpec &spec, const Target &target);

/// y[t] = sum_i w[i] x[t - W + 1 + i] (+ bias), or with `silu` that of the sum, column by column, t
/// being tokens of a sequence; w is memref<CxW>, bias memref<C>. What precedes the rows of a
/// sequence are (W - 1) x C numbers from `first`, an index, on of its slot of `state`,
/// memref<?xFxf32>, or zeros at position 0; the last of what it has seen goes to the same place of
/// its next slot. In fp32, from the bias on, in the order of i.
struct Conv1dSpec {
  int64_t columns = 0, width = 0; ///< C and W
  int64_t stateValues = 0;        ///< F, of all layers
  bool bias = false, silu = false;
};
std::string symbolName(const Conv1dSpec &spec);
Description describe(const Conv1dSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitConv1d(mlir::ModuleOp module, const Conv1dSpec &spec,
                                   const Target &target);

/// The recurrence of gated delta nets (lm.gated_delta), in fp32. q and k are rows<keyHeads*Dk>, v
/// and y rows<valueHeads*Dv>, decay and beta rows<valueHeads>, log_rate and bias
/// memref<valueHeads>. What a head keeps, Dk x Dv numbers, lies head by head from `first`, an
/// index, on in a slot of `state`, memref<?xFxf32>. Sums over Dk are taken in their order, those of
/// lengths by reduceColumns.
struct GatedDeltaSpec {
  int64_t keyHeads = 0, keyDim = 0, valueHeads = 0, valueDim = 0;
  bool tiled = false;      ///< value head h has key head h mod keyHeads, else one by one
  int64_t stateValues = 0; ///< F, of all layers
};
/// Under the root of lengths of queries and keys.
constexpr double kDeltaEpsilon = 1e-6;
std::string symbolName(const GatedDeltaSpec &spec);
Description describe(const GatedDeltaSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitGatedDelta(mlir::ModuleOp module, const GatedDeltaSpec &spec,
                                       const Target &target);

/// Divides every head of x, rows<heads*D>, by its root mean square, in place, and multiplies it
/// with the weight, memref<Dxf32>, if there is one.
struct HeadNormSpec {
  int64_t heads = 0, headDim = 0;
  double epsilon = 0.0;
  bool weight = true;
};
std::string symbolName(const HeadNormSpec &spec);
Description describe(const HeadNormSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitHeadNorm(mlir::ModuleOp module, const HeadNormSpec &spec,
                                     const Target &target);

/// What lm.mask_clusters says, in place: logits, rows<V>, by scores, rows<C>, and the cluster of
/// each token, memref<Vxf32>.
struct MaskClustersSpec {
  int64_t tokens = 0, clusters = 0, chosen = 0; ///< V, C
};
std::string symbolName(const MaskClustersSpec &spec);
Description describe(const MaskClustersSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitMaskClusters(mlir::ModuleOp module, const MaskClustersSpec &spec,
                                         const Target &target);

/// The gradient of a norm, of rows or of heads, of SiluMul or GeluMul, of Gelu, or of SoftCap; dy
/// is that of the result. It is dx of norms, by x and the weight, memref<Dxf32>, if there is one,
/// and of Gelu and SoftCap, by x; dgate and dup of the others, by gate and up.
struct RowGradientSpec {
  RowOp op = RowOp::RmsNorm;
  int64_t columns = 0;
  int64_t width = 0;     ///< D: every D columns are normalized by themselves
  double constant = 0.0; ///< as RowSpec has it
  bool weight = true;    ///< of norms
};
std::string symbolName(const RowGradientSpec &spec);
Description describe(const RowGradientSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitRowGradient(mlir::ModuleOp module, const RowGradientSpec &spec,
                                        const Target &target);

/// Appends k and v (of each sequence M tokens at its `position`) to one layer's cache, then attends
/// causally: row m of a sequence sees its tokens 0 .. position + m (with a window W > 0 only the
/// last W of them). What else is in a step changes no bit of what a sequence gets. With a float
/// cache nothing does but its tokens: a row's bits are those of a call of that row alone, behind
/// calls of any lengths (lib/Codegen/CPU/AttentionTile.h has the order of sums). With codes a row
/// of a call of several sees in float what it sees as codes when it comes alone.
/// q and y are rows<heads*D>, k and v rows<kvHeads*D>, cache is memref<?xi8>, pages memref<?xi64>,
/// layer an index; table rotates, as RopeSpec has it.
/// Query head h reads kv head h / (heads / kvHeads). Finite values beyond the range of the cache's
/// type T, f32 or f16, saturate. Cache elements that no token has written are never used.
/// Rows of k and v are read as kernels over rows read theirs; behind a barrier of its own, which
/// every call has, the kernel reads q and writes y.
///
/// A sequence's tokens lie in pages of P = cacheBytes(spec).pageTokens tokens of all layers, which
/// may lie anywhere in `cache`: page n holds tokens n * P .. and begins at byte
/// pages[first_page + n], the layer's part of it `layer` bytes further on; both are multiples
/// of 64. There is a page for every token, those of this call included. Sequences may share pages:
/// only tokens of the call are written. The layer's part is, for each kv head one after the other,
// clang-format off
///   T  keys             P/16 x D x 16 (D = headDim): blocks of kCacheBlock tokens, transposed
///   T  values           P x D
// clang-format on
constexpr int64_t kCacheBlock = 16;

/// A cache of codes: SimQuant. easyquant/Numerics/KVCache.h defines codes and slices to the bit,
/// and which tokens are float; numerics::checkKVScheme says what is legal.
struct KVQuantization {
  int bits = 4; ///< 2, 4 or 8
  int64_t group = 64, residual = 128, sinks = 4;
  bool keysPerToken = false;
  /// > 0: keys come and are kept before their rotation, and are rotated as they are read, by a
  /// table of so many positions.
  int64_t ropePositions = 0;
  /// > 0: the kernel rotates keys and queries, so many columns of a head together: keys as it
  /// appends them, queries as it reads them. Keys then have slices per token.
  int64_t hadamard = 0;
};

struct AttentionSpec {
  int64_t heads = 0, kvHeads = 0, headDim = 0;
  double scale = 0.0; ///< usually 1 / sqrt(headDim)
  int64_t window = 0; ///< 0: none
  bool halfCache = false;
  std::optional<KVQuantization> kv = std::nullopt;
  /// For a float cache. If > 0, queries and keys come before their rotation. The kernel rotates
  /// them in place, by a table of so many positions, before it appends keys.
  int64_t positions = 0;
  double bound = 0.0;      ///< > 0: scaled products are bound * tanh(product / bound)
  int64_t rotatedDims = 0; ///< of a head, the dimensions that a table turns; 0: all
  /// Each softmax of a head has one product more, which has no value: its element of sink_logits,
  /// memref<heads x f32>.
  bool sinkLogits = false;
  /// For a float cache. Another launch has appended the step's keys and values: there are no k and
  /// v.
  bool appended = false;
  /// With `appended`: each row sees what lies before its position alone.
  bool before = false;

  int64_t rotated() const { return rotatedDims > 0 ? rotatedDims : headDim; }
};

/// One layer's part of a cache, in bytes that are multiples of 64.
struct CacheBytes {
  int64_t pageTokens = 0; ///< P
  int64_t page = 0;       ///< of a page
  int64_t window = 0;     ///< of codes: what a sequence has beside its pages
};
CacheBytes cacheBytes(const AttentionSpec &spec);

/// With `kv`, window and windows are indices.
/// Sinks and float window are the sequence's own: cacheBytes(spec).window bytes at byte `window` of
/// its part of `windows` bytes, which lie one behind the other where `cache` begins. Codes lie in
/// pages, counted from the first token behind the S sinks on: token t is number i = t - S, in page
/// i / P. `held` >= position is how many tokens the cache has seen: more than `position` where the
/// session went back, and float rows must be made from codes again. Pages of numbers that stay
/// codes may be shared, those of which codes are written may not: from the block of R that holds
/// number position - S - R on. With a window of R tokens, groups of G, F = 32 / bits codes in a
/// word, W = ceil(D / F) and V = D / min(G, D), the parts are
// clang-format off
///   in the window
///     T  keys, values     each kvHeads x (S + R) x D: the sinks, then token t in row S + i mod R;
///                         each padded to 64 bytes
///   in a page, with i counted in it, for each kv head one after the other, padded to 64 bytes
///     i32 key codes       P/16 x W x 16: bits (d mod F) bits .. of word [i/16, d/F, i mod 16]
///     i32 value codes     P/16 x 16/F x D: bits (i mod F) bits .. of word [i/16, i mod 16 / F, d]
///     T  value slices     2 x V x P: minima, then scales
///     T  key slices       P/G x 2 x D: minima, then scales; per token as those of values
// clang-format on
std::string symbolName(const AttentionSpec &spec);
Description describe(const AttentionSpec &spec, mlir::MLIRContext *context);
int64_t scratchBytes(const AttentionSpec &spec, const Target &target);
mlir::func::FuncOp getOrEmitAttention(mlir::ModuleOp module, const AttentionSpec &spec,
                                      const Target &target);

} // namespace easyquant::cpu

#endif // EASYQUANT_CODEGEN_CPU_KERNELS_H
