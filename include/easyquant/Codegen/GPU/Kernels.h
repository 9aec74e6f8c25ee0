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
//   * codes: M x Kp int8, Kp = K rounded up to 16 (paddedColumns), columns K.. are 0;
//   * scales: M floats;
//   * sums: M x G int32, the sum of the codes of each weight group; where weights have zero points;
//   * zero points, of asymmetric activations: M int32.
//
// Packed weights (easyquant/Numerics/FragmentPacking.h defines them to the byte)
//   * w: codes as fragments, in the order that the kernel takes;
//   * wscales: G x Np, f32 or f16, which become f32 as they are loaded;
//   * wzeros: G x Np fields of bits, for asymmetric weights;
//   * wsums: G x Np int32; where activations have zero points.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_KERNELS_H
#define EASYQUANT_CODEGEN_GPU_KERNELS_H

#include "easyquant/Codegen/GPU/Chip.h"
#include "easyquant/Codegen/RowOp.h"
#include "easyquant/Numerics/Scheme.h"

#include "mlir/Dialect/GPU/IR/GPUDialect.h"

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace easyquant::gpu {

using easyquant::RowOp;
using easyquant::RowQuantization;
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
/// The name of packed weights in symbols: "i4", "i4_sf16", ...
std::string nameOf(int bits, ScaleFormat scales);

/// The dialects that kernels are made of.
void registerKernelDialects(mlir::DialectRegistry &registry);

//===- What a launch needs ------------------------------------------------===//

struct Parameter {
  enum Kind { Pointer, I32, F32 };
  std::string name;
  Kind kind = Pointer;
  bool written = false;  ///< of pointers: the kernel writes there (and may read)
  bool constant = false; ///< of pointers: nobody writes there while a step runs
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
  /// The next launch begins as soon as all blocks of this one have. Not where they fill the chip:
  /// those of the next would be placed where room is left, several on one multiprocessor.
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
///   LayerNorm: x, x_stride, weight, bias SiluMul, GeluMul: gate, gate_stride, up, up_stride
///   Gelu, Multiply, SoftCap: x, x_stride Add:     a, a_stride, b, b_stride
///   AddBias:   x, x_stride, bias
///   Copy:      x, x_stride: as it is, or rounded to the output's type
///   Gather:    x, x_stride, order: column c of the result is column order[c], C int32s below C
/// then (y, y_stride), or when quantized ([scale, [zero]], [states, row_states, first], [absmax],
/// codes, scales, [sums], [zeros], [extrema, extrema_stride]), or absmax alone, then rows. weight
/// and bias are C floats; scale is one float and zero one int32 in device memory, there when the
/// quantization is static; absmax is a float a row. Online, row_states are int64s, the byte of
/// `states` where the doubles of each row's sequence are, of which `first` is the site's first;
/// extrema are two floats a row, the largest of -x and of x (Numerics/OnlineScales.h). Quantize
/// itself is dynamic unless it is static or online. With a `hadamard` block the result is rotated,
/// to the bit of numerics::rotateActivation, before anything is made of it.
struct RowSpec {
  /// Where the largest magnitude of a row, which its dynamic scale follows from, comes from.
  enum class AbsMax {
    Own,   ///< from the row
    Given, ///< from absmax: the columns are parts of longer rows, which other ranks have
    Result ///< from the row, and is all that is written
  };
  RowOp op = RowOp::Quantize;
  int64_t columns = 0;
  Float input = Float::F32, output = Float::F32; ///< output: when not quantized
  double constant = 0.0; ///< the epsilon of a norm, the factor of Multiply, the bound of SoftCap
  RowQuantization quantization = RowQuantization::None;
  bool sums = false;           ///< write sums of codes
  int64_t groupSize = 0;       ///< groups of the sums; 0 (one group) or a multiple of 16
  bool zeroPoints = false;     ///< static only: asymmetric
  bool fullRange = false;      ///< static only: codes from -128 on, as asymmetric ones always are
  bool sinks = false;          ///< not dynamic: definition 4 of Numerics/Quantize.h instead of 3
  AbsMax absMax = AbsMax::Own; ///< dynamic, or with sinks in a range around 0
  int64_t hadamard = 0;        ///< columns of a block of Numerics/Hadamard.h; 0: not rotated

  RowQuantization effectiveQuantization() const {
    return easyquant::effectiveQuantization(op, quantization);
  }
};
Description describe(const RowSpec &spec);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const RowSpec &spec, const Chip &chip);

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
RowShape rowShape(const RowSpec &spec);

//===- Linears on integer activations -------------------------------------===//

/// y = x W^T (+ bias) (+ y), x quantized to int8, weights in the order Bytes. Every accumulator is
/// an exact int32 of its group (the caller has checked K against numerics::maxDotLength), and in
/// fp32, groups in order,
///   t = fma(sw[n,g], float(acc[m,n,g] - zw[n,g] * sums[m,g] - zx[m] * wsums[n,g]), t)
///   y[m,n] = sx[m] * t (+ bias[n]) (+ y[m,n])
/// each sum rounded once: the bits of numerics::reference::integerLinear, whichever kernel of a
/// spec computes them, then rounded to the output's type. Parameters, those in brackets where the
/// spec has them:
///   codes, scales, [sums], [zeros], w, wscales, [wzeros], [wsums], [bias], y, y_stride, rows
struct LinearSpec {
  int64_t n = 0, k = 0;
  int bits = 8;                          ///< of the weights: 2, 4 or 8
  int64_t groupSize = 0;                 ///< 0 or a multiple of 32
  bool zeroPoints = false;               ///< of the weights: sums and wzeros are parameters
  bool inputZeroPoints = false;          ///< of the activations: zeros and wsums are parameters
  ScaleFormat scales = ScaleFormat::F32; ///< of the weights: F32 or F16
  bool bias = false;
  bool accumulate = false; ///< add to y instead of overwriting it: the residual connection
  Float output = Float::F32;
  /// y is the operand of float(), as int32: where ranks have parts of K, these sums are added
  /// before RescaleSpec scales them. There are no scales and wscales, one group, no bias and no
  /// accumulation.
  bool isPartial = false;

  int64_t groups() const { return groupCount(k, groupSize); }
};

/// y[m,n] = sx[m] * (sw[n] * float(sums[m,n])) (+ bias[n]) (+ y[m,n]): what LinearSpec does with
/// the sums of one group, to the bit. Parameters:
///   sums, sums_stride, scales, wscales, [bias], y, y_stride, rows
struct RescaleSpec {
  int64_t n = 0;
  int bits = 8;                          ///< of the weights
  ScaleFormat scales = ScaleFormat::F32; ///< of the weights: F32 or F16
  bool bias = false, accumulate = false;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const RescaleSpec &spec, const Chip &chip);

/// How a matrix product is cut: a block computes blockRows x blockColumns of y, a slab of K at a
/// time, `stages` slabs in shared memory; its warps share the tile as a grid.
struct GemmTile {
  int64_t rows, columns, slab; ///< of a block; slab in columns of K
  int64_t warpRows, warpColumns;
  int64_t stages;
  int64_t blocksPerSM;
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
  GemmTile tile{};  ///< of Matrix
  int64_t rows = 0; ///< of Dot: rows of y that a block computes
  Description description;
};

/// The kernels of a spec, for ever more rows; the last one takes any number.
std::vector<LinearKernel> linearKernels(const LinearSpec &spec, const Chip &chip);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const LinearSpec &spec,
                      const LinearKernel &kernel);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_KERNELS_H
