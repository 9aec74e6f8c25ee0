//===- Linear.h - What the parts of the linear generator share --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A linear kernel gives every thread a contiguous range of weight panels. With few rows of x each
// panel is streamed from memory once and met by every row (LinearGemv.cpp). With more rows it is
// unpacked once into scratch (LinearUnpack.cpp), in the order in which the register tiles of
// LinearTile.cpp read it. Linear.cpp drives both, and both give the same bits: integer sums are
// exact, and floats are added up in one order.
//
//   * K is cut into slabs, whole groups or, where rows are no groups, about as many columns as a
//     tile may have; how long they are follows from the spec and the target.
//   * In a slab, products of a group are one chain of FMAs over its columns, of x and of codes less
//     their zero points. Groups follow each other: sum = sw * chain + sum, with minima then
//     sum = m * (sum of x) + sum, the latter in lanes.
//   * In a slab of float weights, columns whose index modulo 8 is below 4 are one chain and the
//     others a second one, whose sum is added to that of the first: where rows are streamed, they
//     are transposed by halves.
//   * y = ((first slab + bias) + y) + second slab + ..., each times its outer scale.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_LINEAR_H
#define EASYQUANT_LIB_CODEGEN_CPU_LINEAR_H

#include "PackedBlock.h"
#include "WeightParams.h"

namespace easyquant::cpu {

/// How the product of a panel is computed.
enum class Dot {
  Float,     ///< weights unpacked to f32, FMA
  Widened,   ///< AVX2, int8 and tables: weights and codes widened to i16, vpmaddwd
  Saturated, ///< AVX2, below int8: weights as u8, vpmaddubsw, saturationSteps a time in 16 bits
  Vnni,      ///< AVX-512: weights as u8, vpdpbusd
  Signed,    ///< Arm: weights as s8, sdot
  Matrix,    ///< Arm: the same, smmla of two rows; what is streamed by sdot
};

/// A step is 4 columns of x. |u8 * s8 + u8 * s8| <= 2 * 15 * 128 = 3840 a step of codes of four
/// bits, 7936 of five, 16128 of six; so many steps stay below 2^15.
constexpr int64_t saturationSteps(int64_t bits) { return bits <= 4 ? 8 : bits == 5 ? 4 : 2; }
/// So many steps of codes less their offset keep sums of their products with 16-bit lanes, each of
/// which has two columns of a step, within -2^15 < sum <= 2^15.
constexpr int64_t correctedSteps(int64_t bits) { return int64_t(1) << (8 - bits); }

/// Blocking of one spec on one target.
struct LinearTiling {
  LinearTiling(const LinearSpec &spec, const Target &target);

  Dot dot;
  int64_t tileRows;     ///< rows of x in a register tile
  int64_t tileColumns;  ///< output columns in a register tile; divides kPanelRows
  int64_t gemvRows;     ///< up to this many rows of x panels are streamed instead of unpacked
  int64_t slabColumns;  ///< columns of x (K) that are unpacked at a time; Kp but for Float
  int64_t chainColumns; ///< Float: columns whose products are one sum, a group or a slab
  int64_t chunkPanels;  ///< panels that meet the rows of a tile before the next rows come

  int64_t panelBytes;      ///< of one unpacked panel (0: tiles read the packed panel)
  int64_t paramsBytes;     ///< Float: scales and minima of a slab
  int64_t activationBytes; ///< of what is prepared from a tile's rows
  int64_t sumsBytes; ///< of the sums of an unpacked panel's codes, where the kernel takes them
  int64_t scratchBytes() const;

  int64_t tilesPerPanel() const { return kPanelRows / tileColumns; }
  int64_t chainsPerSlab() const { return (slabColumns + chainColumns - 1) / chainColumns; }
};

/// The kernel under construction: its arguments and what is known about them.
struct LinearKernel {
  KernelBuilder &b;
  const LinearSpec &spec;
  const LinearTiling tiling;
  int64_t groups = 1;

  mlir::Value x = {};       ///< rows<K>, or codes
  mlir::Value xScales = {}; ///< quantized input only, as is the next
  mlir::Value xSums = {};
  mlir::Value xZeros = {};   ///< or null, as are the next but weights and y
  mlir::Value weights = {};  ///< packed: NP x bytes of a panel; F32: N x K
  mlir::Value wScales = {};  ///< NP x G x 32
  mlir::Value wZeros = {};   ///< NP x G x bytes of fields
  mlir::Value wMinima = {};  ///< as wScales
  mlir::Value wOuter = {};   ///< NP x 1 x 32
  mlir::Value codebook = {}; ///< the values of a table, a vector; for quantized input the bytes
                             ///< that blocks give, 16 of i8
  mlir::Value unit = {};     ///< what these are multiples of
  mlir::Value wSums = {};    ///< NP x G x 32; or those of chunkPanels panels, as unpacked
  mlir::Value wSumsAt = {};  ///< the index there of the panel that is multiplied
  mlir::Value bias = {};
  mlir::Value offsets = {}; ///< of experts
  mlir::Value y = {};
  mlir::Value thread = {};

  /// Bytes, unpacked: chunkPanels x tilesPerPanel x steps (or columns) x tileColumns x ...
  mlir::Value unpacked = {};
  /// Float: scales, and minima if there are any, of a slab's chains, chainsPerSlab x 32 each; sums
  /// of x over them for the rows of a tile, tileRows x chainsPerSlab.
  mlir::Value slabScales = {}, slabMinima = {}, rowSums = {};
  /// Widened codes of a tile's rows: tileRows x Kp/4 x i64, four i16 each.
  mlir::Value widened = {};
  /// Saturated: what a 16-bit accumulator starts from so that it ends as the sum of code * x less
  /// 1, not of (code + offset) * x: tileRows x chunks x i32, two i16 each, a chunk being the
  /// correctedSteps (or fewer, at the end of a group) that share an accumulator.
  mlir::Value corrections = {};

  /// Eight columns of packed codes, `lanes` rows a vector; they begin at byte `offset` of `panel`.
  PackedBlock block(mlir::Value panel, mlir::Value offset, int64_t lanes) {
    return PackedBlock(b, spec.weights, spec.numbers.codes, codebook, weights, panel, offset,
                       lanes);
  }
  bool isTable() const { return spec.numbers.codes == CodeFormat::Table; }
  /// What the bytes of blocks are above what they stand for: those of tables only for Vnni.
  int64_t offset() const {
    if (isTable())
      return tiling.dot == Dot::Vnni ? 128 : 0;
    return int64_t(1) << (bitsOf(spec.weights) - 1);
  }
  /// What the bytes that dot products take are above what they stand for.
  int64_t dotOffset() const { return areSigned() ? 0 : offset(); }
  /// Vector v of a step of a block, the bytes that dot products take.
  mlir::Value dotBytes(PackedBlock &block, int64_t half, int64_t v) {
    return areSigned() ? signedBytes(block, half, v) : block.bytes(half, v);
  }
  /// The same of bytes that are unpacked for tiles of Arm, which is once for all rows: sums need a
  /// correction only for zero points of the weights' own.
  int64_t tileOffset() const { return areSigned() ? 0 : -commonZero(); }
  mlir::Value tileBytes(PackedBlock &block, int64_t half, int64_t v) {
    mlir::Value bytes = dotBytes(block, half, v);
    const int64_t excess = isForArm() ? dotOffset() - tileOffset() : 0;
    return excess ? b.subi(bytes, b.constant(bytes.getType(), excess)) : bytes;
  }
  /// Signed: int8 codes, whose bytes are unsigned in memory. Those of fewer bits are positive.
  bool areSigned() const { return isForArm() && (isTable() || spec.weights == WeightFormat::I8); }
  /// Dot products take signed bytes of both.
  bool isForArm() const { return tiling.dot == Dot::Signed || tiling.dot == Dot::Matrix; }
  /// acc + the products of a vector of weights with codes, by vpdpbusd or sdot.
  mlir::Value dot(mlir::Value acc, mlir::Value weights, mlir::Value codes) {
    return isForArm() ? b.dotS8S8(acc, weights, codes) : b.dotU8S8(acc, weights, codes);
  }
  /// The zero point of weights that have none of their own: with minima the lowest code.
  int64_t commonZero() const { return spec.numbers.minima ? -offset() : 0; }
  /// Vector v of a step of a block as signed bytes.
  mlir::Value signedBytes(PackedBlock &block, int64_t half, int64_t v) {
    mlir::Value bytes = block.bytes(half, v);
    return isTable() ? bytes : b.xori(bytes, 0x80);
  }
  int64_t correctedSteps() const { return cpu::correctedSteps(bitsOf(spec.weights)); }
  int64_t saturationSteps() const { return cpu::saturationSteps(bitsOf(spec.weights)); }
  /// Four-column steps of a full group, of the input if that has groups, and of the last one if it
  /// is short (else 0).
  int64_t groupSteps() const;
  int64_t fullGroups() const;
  int64_t lastSteps() const;
  /// Chunks of a full group (see corrections).
  int64_t groupChunks() const;
};

/// sums over groups: `body(firstStep, steps, starts)` yields one group's i32 accumulators, a vector
/// per (row, vector of columns) in row-major order, which start from `starts`, or from 0 if there
/// are none, so that they end as what is in brackets here; the result is in f32
/// sum_g sw[n, g] * (acc - (offset + zw[n, g]) * sums[m, g] - zx[m] * wsums[n, g]), with what
/// minima add (LinearSpec), or of a spec of sums in i32 what is in brackets. Groups of the input
/// have their scales on what is in brackets. `firstColumn` counts inside the panel.
llvm::SmallVector<mlir::Value> emitGroupSums(
    LinearKernel &k, int64_t rows, mlir::Value firstRow, mlir::Value panel, Index firstColumn,
    int64_t vectors, int64_t correctedOffset,
    llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value firstStep, int64_t steps,
                                                      llvm::ArrayRef<mlir::Value> starts)>
        body);

/// Float: body(chain, first, count) gives a slab's sums of the columns [first, first + count) of x,
/// a vector per (row, vector of columns), by all that came before it, for each chain in its order.
llvm::SmallVector<mlir::Value> emitChains(
    LinearKernel &k, mlir::Value slab, mlir::Value columns, int64_t sums,
    llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value chain, mlir::Value first,
                                                      mlir::Value count, mlir::ValueRange sums)>
        body);
/// The sum of `count` columns of a row of x.
mlir::Value columnSum(LinearKernel &k, mlir::Value row, mlir::Value firstColumn, mlir::Value count);

/// Writes a tile of y: values are rows x vectors of f32, row-major. Applies the outer scales of the
/// weights and the row scale of quantized input, then the bias, then what accumulates. Where the
/// condition `later` is given and holds, an earlier slab has done that: then the values are added
/// to y. Columns >= N are left alone.
void emitStore(LinearKernel &k, int64_t rows, mlir::Value firstRow, mlir::Value firstColumn,
               llvm::ArrayRef<mlir::Value> values, mlir::Value later = {});

/// Unpacks `panel` into slot `slot` of the scratch; columns [slab, slab + count) of x for Float.
void emitUnpack(LinearKernel &k, mlir::Value panel, mlir::Value slot, mlir::Value slab,
                mlir::Value count);
/// Takes the sums of a panel's codes less their zero points, over the groups of the input, into
/// slot `slot` of the scratch, if the kernel is to.
void emitWeightSums(LinearKernel &k, mlir::Value panel, mlir::Value slot);
/// Prepares `rows` rows from `firstRow` on for their tiles: `widened`, `corrections`, or with
/// minima `rowSums` of columns [slab, slab + count).
void emitPrepareRows(LinearKernel &k, int64_t rows, mlir::Value firstRow, mlir::Value slab = {},
                     mlir::Value count = {});

/// One register tile: `tile` of `panel`, which lies unpacked in `slot`.
void emitIntegerTile(LinearKernel &k, int64_t rows, mlir::Value firstRow, mlir::Value panel,
                     mlir::Value slot, mlir::Value tile);
void emitFloatTile(LinearKernel &k, int64_t rows, mlir::Value firstRow, mlir::Value panel,
                   mlir::Value tile, mlir::Value slab, mlir::Value count);

/// y[rows, columns of panels], straight from the packed panels. Quantized input takes one row and
/// one panel.
void emitGemv(LinearKernel &k, int64_t panels, int64_t rows, mlir::Value panel, mlir::Value row);

/// Scales and minima (f32) and zero points (i32) of packed weights: `lanes` columns of `panel` from
/// `column` on, of a group.
mlir::Value loadScales(LinearKernel &k, mlir::Value panel, Index group, Index column,
                       int64_t lanes);
mlir::Value loadMinima(LinearKernel &k, mlir::Value panel, Index group, Index column,
                       int64_t lanes);
mlir::Value loadZeroPoints(LinearKernel &k, mlir::Value panel, Index group, Index column,
                           int64_t lanes);

/// The sums of neighbouring lanes of a, then of c. vpmaddwd leaves two to a column.
mlir::Value addPairs(KernelBuilder &b, mlir::Value a, mlir::Value c);

/// The four codes of a step, in every 32-bit lane of a vector of `bytes` bytes.
mlir::Value broadcastCodes(LinearKernel &k, Index row, Index column, int64_t bytes);
/// The codes of so many steps, a word each; and one of the words in every lane of 32 bytes.
mlir::Value codesOfSteps(LinearKernel &k, Index row, Index column, int64_t steps);
mlir::Value broadcastStep(KernelBuilder &b, mlir::Value codes, int64_t step);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_LINEAR_H
