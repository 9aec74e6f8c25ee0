//===- WeightOnly.h - Linears on float activations --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// y = x W^T (+ bias) (+ y) on f16 or bf16 activations, with weights of any scheme, or of the
// activations' own type (a float linear). Weights lie as Numerics/FragmentPacking.h says, in the
// order M16N8K16; the conventions are those of Kernels.h.
//
// What codes stand for, integers less their zero points, FP8, FP4 and tables of int8 values, is
// exact in f16 and bf16. Other values of tables are rounded to the activations' type. They are
// multiplied on the tensor cores with sums in fp32; scales multiply the sums:
//   t[m,n] = sum over g of sw[n,g] * (sum over k in g of x[m,k] v[n,k])
//   y[m,n] = outer[n] t (+ bias[n]) (+ y[m,n]), rounded to the output's type.
// With minima v is the code less the lowest one, and m[n,g] * (sum over k in g of x[m,k]) is added
// to t behind each group. Products are exact. The order of the sums is a matter of the kernel, the
// same in every launch. Against the same formula in real numbers the error is at most
//   (K / 8 + 32) 2^-22 S[m,n], S the sum of the magnitudes of all terms,
// before the last rounding.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_WEIGHTONLY_H
#define EASYQUANT_CODEGEN_GPU_WEIGHTONLY_H

#include "easyquant/Codegen/GPU/Kernels.h"

namespace easyquant::gpu {

/// Parameters, those in brackets where the spec or the kernel has them:
///   x         rows x K of `input`, its rows x_stride elements apart
///   x_stride  a multiple of 8 elements whatever K: every row begins at a multiple of 16 bytes.
///             Columns from K on are not read
///   w         fragments, order M16N8K16; floats for 16 bits
///   [wscales] below 16 bits
///   [wzeros], [wminima], [wouter], [codebook]
///   [bias]    N floats
///   y, y_stride
///   [partials, counters]  scratch memory of kernels whose blocks share K (WeightOnlyKernel)
///   [items]   of experts (Experts.h)
///   rows
struct WeightOnlySpec : WeightCodec { ///< bits may be 16: floats of type `input`, without scales;
                                      ///< groupSize: 0, 16 or a multiple of 32
  int64_t n = 0, k = 0;
  bool bias = false;
  bool accumulate = false;   ///< add to y instead of overwriting it: the residual connection
  Float input = Float::BF16; ///< F16 or BF16
  Float output = Float::F32;
  int64_t experts = 0; ///< so many linears in one (Experts.h); 0: one
  /// The bits of a row are the same whatever the number of rows: neither warps nor blocks share K.
  bool oneOrder = false;

  /// Rows of the weight, which has those of one expert below those of another.
  int64_t weightRows() const { return n * std::max<int64_t>(1, experts); }
  bool isFloat() const { return bits == 16; }
  int64_t groups() const { return groupCount(k, groupSize); }
};

/// How a product of few rows is cut: a block computes whole blocks of packed weights, its warps
/// (and `splits` blocks) share K, and each warp takes `unit` packed blocks of 32 columns at a time.
struct StreamShape {
  int64_t rows;    ///< of y in a block: 1, 8 or 16
  int64_t columns; ///< of y in a block
  int64_t warps;   ///< of a block
  int64_t unit; ///< packed blocks between two applications of scales; within a group, or whole ones
  int64_t splits; ///< blocks that share K

  /// Elements between the sums of two tokens in shared memory, padded so that the lanes of a store
  /// are in different banks.
  int64_t tokenStride() const { return columns + 4; }
  int64_t sharedBytes() const { return warps * rows * tokenStride() * 4; } ///< static
};

/// One of the kernels that compute a spec; `maxRows` says up to which M it is the one to take.
struct WeightOnlyKernel {
  enum Form {
    Stream, ///< for few rows: weights from memory to registers, K split over warps
    Matrix  ///< tiles in shared memory
  };
  Form form = Matrix;
  int64_t maxRows = 0;
  GemmTile tile{};      ///< of Matrix; its slab in columns of K
  StreamShape stream{}; ///< of Stream
  Description description;

  /// Bytes of `partials`, of whatever contents; 0 where the kernel has no such parameter.
  int64_t partialBytes(int64_t rows) const;
  /// int32s of `counters`: zero before a launch and after it. Kernels of one stream may share them.
  int64_t counterCount(int64_t rows) const;
};

/// The kernels of a spec, for ever more rows; each takes any number.
std::vector<WeightOnlyKernel> weightOnlyKernels(const WeightOnlySpec &spec, const Chip &chip);
/// The kernel of a tile whose K so many blocks share, each whole groups. The spec has no experts,
/// and minima of groups alone.
WeightOnlyKernel shareColumns(const WeightOnlySpec &spec, WeightOnlyKernel kernel, int64_t splits);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const WeightOnlySpec &spec,
                      const WeightOnlyKernel &kernel);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_WEIGHTONLY_H
