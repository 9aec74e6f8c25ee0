//===- Kernels.h - GPU kernels: specs, names, arguments, launches -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A kernel is generated from a spec and a chip; equal specs are one kernel. getOrEmit(module, spec,
// chip) builds it in the gpu.module, unless it is there, and returns what a launch needs: name,
// parameters and launch geometry. Kernels are gpu, scf, arith, math, vector, llvm and nvvm IR.
//
// Conventions of every kernel
//   * Parameters are device pointers (u64), i32 and f32. M, the number of rows (tokens), is the
//     parameter `rows` >= 1; all other sizes are constants of the kernel.
//   * Pointers are aligned to 16 bytes. Matrices are row-major; strides are parameters, in
//     elements, where the spec's comment says so, and keep every row aligned as the widest access
//     of the kernel wants it: to 16 bytes, if the row length is a multiple of that, else to the
//     largest power of two bytes that divides it.
//   * No input is read and no output written out of bounds, for any M, N and K. Nothing is kept
//     between launches, and the bits of a result do not depend on how blocks are scheduled.
//
// Quantized activations (easyquant/Numerics/Quantize.h defines them to the bit)
//   * codes: M x Kp int8 or f8E4M3FN, Kp = K rounded up to 16 (paddedColumns), columns K.. are 0;
//   * scales: M floats, or M x I where columns share them in I groups;
//   * sums: M x G int32, or M x I, the sum of the codes of each group; where weights have zero
//     points or minima;
//   * zero points, of asymmetric activations: M int32, or M x I.
//
// Packed weights (easyquant/Numerics/FragmentPacking.h defines them to the byte)
//   * w: codes as fragments, in the order that the kernel takes;
//   * wscales: in their format, G x Np but for two levels; they become f32 as they are loaded;
//   * wzeros: numbers of as many bits as codes have, of weights with zero points;
//   * wminima: G x Np, of weights with minima;
//   * wouter: Np floats, of weights whose scales are scaled;
//   * codebook: 2^b floats, of codes that are indices;
//   * wsums: G x Np int32; where activations of one scale a row have zero points.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_KERNELS_H
#define EASYQUANT_CODEGEN_GPU_KERNELS_H

#include "easyquant/Codegen/GPU/Chip.h"
#include "easyquant/Codegen/RowOp.h"
#include "easyquant/Numerics/Scheme.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace easyquant::gpu {

using easyquant::RowOp;
using easyquant::RowQuantization;
using numerics::CodeFormat;
using numerics::groupCount;
using numerics::ScaleFormat;

/// Columns of codes in memory: rows start at multiples of 16 bytes.
constexpr int64_t paddedColumns(int64_t k) { return (k + 15) / 16 * 16; }
/// ceil(a / b), for a >= 0 and b > 0.
constexpr int64_t divideCeil(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// Elements of float activations.
enum class Float { F32, F16, BF16 };
const char *nameOf(Float type); ///< "f32", ...
constexpr int64_t bytesOf(Float type) { return type == Float::F32 ? 4 : 2; }

/// What kernels know of a scheme of weights; all else is in memory.
struct WeightCodec {
  int bits = 8;            ///< of a code: 2, 3, 4, 5, 6 or 8
  int64_t groupSize = 0;   ///< 0: a row
  bool zeroPoints = false; ///< of integers
  ScaleFormat scales = ScaleFormat::F32;
  CodeFormat codes = CodeFormat::Integer;
  bool outer = false;
  bool minima = false; ///< numerics::Scheme::minima
  float unit = 1;      ///< of the values of a table that int8 activations are multiplied with

  static WeightCodec of(const numerics::Scheme &scheme);
  bool isTable() const { return codes == CodeFormat::Table; }
};
/// The name of packed weights in symbols: "i4", "i4_sf16", "f4E2M1FN_sf8E4M3FN_outer_g16", ...
std::string nameOf(const WeightCodec &codec);

/// The dialects that kernels are made of.
void registerKernelDialects(mlir::DialectRegistry &registry);

//===- What a launch needs ------------------------------------------------===//

struct Parameter {
  enum Kind { Pointer, I32, F32 };
  std::string name;
  Kind kind = Pointer;
  bool written = false;   ///< of pointers: the kernel writes there (and may read)
  bool constant = false;  ///< of pointers: nobody writes there while a step runs
  int64_t alignment = 16; ///< of pointers, bytes: what the kernel may rely on
};

/// A grid dimension: factor * ceil(rows / rowsPerBlock), or just factor where rowsPerBlock is 0.
struct Extent {
  int64_t factor = 1, rowsPerBlock = 0;
  uint32_t of(int64_t rows) const {
    return static_cast<uint32_t>(rowsPerBlock == 0 ? factor
                                                   : factor * divideCeil(rows, rowsPerBlock));
  }
};

struct Description {
  std::string name; ///< symbol of the kernel
  std::vector<Parameter> parameters;
  std::array<Extent, 3> grid;
  uint32_t threads = 0;    ///< of a block, in x
  int64_t sharedBytes = 0; ///< dynamic shared memory
  int64_t blocksPerSM = 0; ///< resident blocks that the tile was designed for; 0: not stated
  /// The next launch begins as soon as all blocks of this one have. Not behind tiles of many rows,
  /// whose blocks take several turns: those of the next would be placed where room is left in the
  /// last one, several on one multiprocessor. Behind a linear of few rows comes what has a block a
  /// row, and blocks of attention end one by one on all multiprocessors.
  bool beginsNext = true;
  std::array<uint32_t, 3> gridFor(int64_t rows) const {
    return {grid[0].of(rows), grid[1].of(rows), grid[2].of(rows)};
  }
};

/// The kernel for so many rows. The kernels of a spec are in the order of their `maxRows`, up to
/// which each is the one to take; the last one takes any number.
template <typename Kernel>
const Kernel &kernelFor(const std::vector<Kernel> &kernels, int64_t rows) {
  for (const Kernel &kernel : kernels)
    if (rows <= kernel.maxRows)
      return kernel;
  return kernels.back();
}

//===- Row-wise operations ------------------------------------------------===//

/// Row-wise operations, optionally followed by quantization of the result. Parameters:
///   Quantize:  x, x_stride               RmsNorm: x, x_stride, weight
///   LayerNorm: x, x_stride, weight, bias isGated: gate, gate_stride, up, up_stride
///   GeluTanh, GeluErf: x, x_stride       Add:     a, a_stride, b, b_stride
///   Multiply, SoftCap: x, x_stride
///   AddBias:   x, x_stride, bias
///   Copy:      x, x_stride: as it is, or rounded to the output's type
///   Gather:    x, x_stride, order: column c of the result is column order[c], C int32s below C
/// then (y, y_stride), or when quantized ([scale, [zero]], [states, row_states, first], [absmax],
/// codes, scales, [sums], [zeros], [extrema, extrema_stride]), or absmax or squares alone, then
/// rows. weight and bias are C floats; given squares come behind weight; scale is one float and
/// zero one int32 in device memory, there when the quantization is static; absmax and squares are a
/// float a row. Online, row_states are int64s, the byte of `states` where the doubles of each row's
/// sequence are, of which `first` is the site's first; extrema are two floats a row, the largest of
/// -x and of x (Numerics/OnlineScales.h). Quantize itself is dynamic unless it is static or online.
/// With a `scaleGroup`, which is the groupSize of sums, too, a row has a scale for each group. With
/// a `hadamard` block the result is rotated, to the bit of numerics::rotateActivation, before
/// anything is made of it.
struct RowSpec {
  /// Where a number of a row that other ranks have parts of comes from: the largest magnitude,
  /// which a dynamic scale follows from, or the sum of squares, which a root mean square does.
  enum class OfRow {
    Own,   ///< from the row
    Given, ///< from absmax or squares: the columns are parts of longer rows
    Result ///< from the row, and is all that is written
  };
  RowOp op = RowOp::Quantize;
  int64_t columns = 0;
  Float input = Float::F32, output = Float::F32; ///< output: when not quantized
  double constant = 0.0; ///< the epsilon of a norm, the factor of Multiply, the bound of SoftCap
  RowQuantization quantization = RowQuantization::None;
  CodeFormat codes = CodeFormat::Integer; ///< or F8E4M3FN, with a scale a row and no sums
  bool sums = false;                      ///< write sums of codes
  int64_t groupSize = 0;                  ///< groups of the sums; 0 (one group) or a multiple of 16
  int64_t scaleGroup = 0;     ///< dynamic: columns that share a scale: 32, 64, 128; 0: a row
  bool zeroPoints = false;    ///< static, or with a scaleGroup: asymmetric
  bool fullRange = false;     ///< static only: codes from -128 on, as asymmetric ones always are
  bool sinks = false;         ///< not dynamic: definition 4 of Numerics/Quantize.h instead of 3
  OfRow absMax = OfRow::Own;  ///< dynamic, or with sinks in a range around 0
  OfRow squares = OfRow::Own; ///< of RmsNorm
  int64_t wholeColumns = 0;   ///< with given squares: columns of the longer rows
  int64_t hadamard = 0;       ///< columns of a block of Numerics/Hadamard.h; 0: not rotated

  RowQuantization effectiveQuantization() const {
    return easyquant::effectiveQuantization(op, quantization);
  }
};
Description describe(const RowSpec &spec);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const RowSpec &spec, const Chip &chip);

/// y = s value(nearest(x / s)), which Numerics/Quantize.h defines for codes that are no integers,
/// of f32, then rounded to the output's type. The scale is that of each row, or of each group of a
/// row (absmax, ScaleRules.h), or given, one float in device memory; with groups and a given one,
/// it is that of each group, rounded to f8E4M3FN in units of the given one. Parameters:
///   x, x_stride, [scale], y, y_stride, rows
struct FakeQuantizeSpec {
  int64_t columns = 0;
  CodeFormat codes = CodeFormat::F8E4M3FN; ///< or F4E2M1FN
  bool isStatic = false;
  int64_t groupSize = 0; ///< 0: rows are no groups; a multiple of 16
  Float output = Float::F32;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const FakeQuantizeSpec &spec,
                      const Chip &chip);

/// Brings what each sequence of the step keeps of all sites up to date (Numerics/OnlineScales.h),
/// to the bit of numerics::advanceOnline. It is read in the sequence's slot of `states`, and goes
/// to its next one. Parameters:
///   extrema, extrema_stride, states, sequences, row_places, rows
struct AdvanceSpec {
  int64_t sites = 0, window = 0;
  double decay = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const AdvanceSpec &spec, const Chip &chip);

/// How a row is spread over threads.
struct RowShape {
  int64_t vector;   ///< elements of one access: 16 bytes, or what divides the row
  int64_t threads;  ///< of a row: a multiple of 32
  int64_t rows;     ///< of a block
  int64_t run;      ///< vectors of a thread that a warp has one behind the other
  int64_t vectors;  ///< of a thread, whole runs, the last ones perhaps beyond the row's end
  bool inRegisters; ///< the row is read once and kept
};
/// A row has `threads` threads; 0: as many as suit it.
RowShape rowShape(const RowSpec &spec, int64_t threads = 0);

//===- Linears on codes of activations ------------------------------------===//

/// y = x W^T (+ bias) (+ y), x quantized to int8 or FP8, weights in the order M16N8K32. Every
/// accumulator is an exact int32 of its group (the caller has checked K against
/// numerics::maxDotLength), and in fp32, groups in order,
///   t = fma(sw[n,g], float(acc[m,n,g] - zw[n,g] * sums[m,g] - zx[m] * wsums[n,g]), t)
///   y[m,n] = sx[m] * u * t (+ bias[n]) (+ y[m,n])
/// u being the unit of a table (1 of integers). A weight with minima has its lowest code for zw,
/// and each fma is followed by one of m[n,g] with sums[m,g] - zx[m] * columns of g. With an
/// `inputGroup` accumulators are those of the groups i of the activations,
///   s = fma(sx[m,i], float(acc[m,n,i] - zw[n,g] * sums[m,i] - zx[m,i] * wsums[n,i]), s), of all i
///       in g, wsums, which the kernel takes, being those of code - zw over i;
///   t = fma(sw[n,g], s, t)
///   y[m,n] = u * t (+ bias[n]) (+ y[m,n])
/// Each sum is rounded once: the bits of numerics::reference::integerLinear, whichever kernel of a
/// spec computes them, then rounded to the output's type.
///
/// Codes of f8E4M3FN on such codes have products and sums in f32: those of up to 128 columns, which
/// lie in one group, make a dot product, whose bits tensor cores decide, and
///   t = fma(sw[n,g], the sum of the dot products in g, in their order, t)
///   y[m,n] = sx[m] * t (+ bias[n]) (+ y[m,n])
/// Against the real numbers y is wrong by no more than (K / 8 + 32) * 2^-22 of the sum of the
/// magnitudes of what it sums, where tensor cores keep the bits of f32, which FP8's may not.
/// Parameters, those in brackets where the spec has them:
///   codes, scales, [sums], [zeros], w, wscales, [wzeros], [wminima], [wsums], [codebook], [bias],
///   y, y_stride, [partials, counters], [items], rows
/// partials and counters are scratch memory of kernels whose blocks share K (LinearKernel).
struct LinearSpec : WeightCodec { ///< groupSize: 0 or a multiple of 32; integers, a table, or FP8
  int64_t n = 0, k = 0;
  bool inputZeroPoints = false; ///< of the activations: zeros, and without an inputGroup wsums
  int64_t inputGroup = 0;       ///< columns of a token that share a scale: 32, 64, 128; 0: all
  bool bias = false;
  bool accumulate = false; ///< add to y instead of overwriting it: the residual connection
  Float output = Float::F32;
  /// y is the operand of float(), as int32: where ranks have parts of K, these sums are added
  /// before RescaleSpec scales them. There are no scales and wscales, one group, no bias and no
  /// accumulation.
  bool isPartial = false;
  int64_t experts = 0; ///< so many linears in one (Experts.h); 0: one

  /// Rows of the weight, which has those of one expert below those of another.
  int64_t weightRows() const { return n * std::max<int64_t>(1, experts); }
  int64_t groups() const { return groupCount(k, groupSize); }
  bool isFP8() const { return codes == CodeFormat::F8E4M3FN; }
  /// May a group of the weight have several accumulators, one after the other?
  bool sharesGroups() const { return inputGroup != 0 || isFP8(); }
  /// Columns whose products share an accumulator; 0: all.
  int64_t dotGroup() const {
    if (!isFP8())
      return inputGroup ? inputGroup : groupSize;
    for (int64_t most : {128, 96, 64})
      if (groupSize % most == 0)
        return most;
    return 32;
  }
  int64_t dotGroups() const { return groupCount(k, dotGroup()); }
  /// Dot groups in a group of the weight, the last one of which may have fewer.
  int64_t dotsOfGroup() const {
    return !sharesGroups() ? 1 : groupSize ? groupSize / dotGroup() : dotGroups();
  }
  /// Are the sums of the codes of each group a parameter?
  bool readsSums() const { return zeroPoints || minima; }
  /// Does the kernel take the sums of the weights itself?
  bool sumsWeights() const { return inputZeroPoints && inputGroup != 0; }
};

/// y[m,n] = sx[m] * (sw[n] * float(sums[m,n])) (+ bias[n]) (+ y[m,n]): what LinearSpec does with
/// the sums of one group of integers, to the bit. Parameters:
///   sums, sums_stride, scales, wscales, [bias], y, y_stride, rows
struct RescaleSpec : WeightCodec {
  int64_t n = 0;
  bool bias = false, accumulate = false;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const RescaleSpec &spec, const Chip &chip);

/// How a matrix product is cut: a block computes blockRows x blockColumns of y, a slab of K at a
/// time, `stages` slabs in shared memory; its warps share the tile as a grid. `splits` blocks share
/// the slabs of a tile, each a run of them.
struct GemmTile {
  int64_t rows, columns, slab; ///< of a block; slab in columns of K
  int64_t warpRows, warpColumns;
  int64_t stages;
  int64_t blocksPerSM;
  int64_t splits = 1;
  int64_t threads() const { return 32 * warpRows * warpColumns; }
};

/// One of the kernels that compute a spec; `maxRows` says up to which M it is the one to take.
struct LinearKernel {
  enum Form {
    Dot,   ///< weights straight to registers, dp4a or mma.sync: for few rows
    Matrix ///< mma.sync
  };
  Form form = Matrix;
  int64_t maxRows = 0;
  bool converts = false; ///< FP8: by products of f16, where the chip has no others
  GemmTile tile{};       ///< of Matrix
  int64_t rows = 0;      ///< of Dot: rows of y that a block computes
  Description description;

  /// Bytes of `partials`, of whatever contents; 0 where the kernel has no such parameter.
  int64_t partialBytes(int64_t rows) const;
  /// int32s of `counters`: zero before a launch and after it. Kernels of one stream may share them.
  int64_t counterCount(int64_t rows) const;
};

/// The kernels of a spec, for ever more rows; the last one takes any number.
std::vector<LinearKernel> linearKernels(const LinearSpec &spec, const Chip &chip);
/// The kernel of a tile with the same bits whose K so many blocks share. The spec has one group of
/// integers, whose sums are exact in any order, and no experts.
LinearKernel shareColumns(const LinearSpec &spec, LinearKernel kernel, int64_t splits);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const LinearSpec &spec,
                      const LinearKernel &kernel);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_KERNELS_H
