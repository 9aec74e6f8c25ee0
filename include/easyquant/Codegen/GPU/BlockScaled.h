//===- BlockScaled.h - Linears on FP4 with scales of blocks -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// NVFP4 on NVFP4 where a chip has such products (Chip::multipliesFP4): codes of f4E2M1FN in groups
// of 16 columns with scales of f8E4M3FN, on both sides, by mma.block_scale m16n8k64. Weights lie as
// for linears on float activations, in the order M16N8K16, so that one file serves all chips.
//
// In that order lane q of four has columns 2q, 2q + 1, 2q + 8 and 2q + 9 of each group, while a
// register of mma.block_scale has eight columns of one group. So lanes exchange halves of their
// words, and a group's columns come in an order of their own, in which activations are written,
// too: byte i of a group has column c(i) in its low four bits and c(i) + 8 above them,
// c = 0, 1, 4, 5, 2, 3, 6, 7. Sums do not mind.
//
// Activations
//   * codes: rows of blockCodeBytes(K) bytes, 8 a group; columns from K on are 0
//   * scales: rows of blockSteps(K) words, four groups each, the first one lowest; groups beyond K
//     have 1
//   * outer: a float a row
//
//   y[m,n] = outer[m] wouter[n] t (+ bias[n]) (+ y[m,n])
//   t = sum over groups g of sx[m,g] sw[n,g] (sum over k in g of x[m,k] w[n,k])
//
// Products of codes, their sums over a group and products of scales are exact in f32. Against the
// real numbers y is wrong by no more than (K / 8 + 32) 2^-22 of the sum of the magnitudes of what
// it sums, where tensor cores add the terms of four groups to f32 with the bits of f32, as the
// simulator does; NVIDIA states no bound.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_BLOCKSCALED_H
#define EASYQUANT_CODEGEN_GPU_BLOCKSCALED_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Numerics/FragmentPacking.h"

namespace easyquant::gpu {

using numerics::kBlockColumns;
using numerics::kBlockStep;

/// Steps of K, of which each has a word of scales.
constexpr int64_t blockSteps(int64_t k) { return divideCeil(k, kBlockStep); }
/// Bytes of a row of codes.
constexpr int64_t blockCodeBytes(int64_t k) { return blockSteps(k) * kBlockStep / 2; }

/// Rows as such codes, to the bit those of Numerics/Quantize.h with the outer scale that is given,
/// one float in device memory. Parameters:
///   x, x_stride, scale, codes, scales, outer, rows
struct BlockCodesSpec {
  int64_t columns = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const BlockCodesSpec &spec, const Chip &chip);

/// Parameters, those in brackets where the spec has them:
///   codes, scales, outer, w, wscales, [wouter], [bias], y, y_stride, [items], rows
/// The codec is f4E2M1FN in groups of 16 with scales of f8E4M3FN.
struct BlockScaledSpec : WeightCodec {
  int64_t n = 0, k = 0;
  bool bias = false;
  bool accumulate = false; ///< add to y instead of overwriting it: the residual connection
  Float output = Float::F32;
  int64_t experts = 0; ///< so many linears in one (Experts.h); 0: one

  /// Rows of the weight, which has those of one expert below those of another.
  int64_t weightRows() const { return n * std::max<int64_t>(1, experts); }
  int64_t steps() const { return blockSteps(k); }
};

/// Are products of weights and activations of these schemes such?
bool isBlockScaled(const numerics::Scheme &weight, const numerics::Scheme &input);

/// One of the kernels that compute a spec; `maxRows` says up to which M it is the one to take.
struct BlockScaledKernel {
  enum Form {
    Dot,   ///< weights straight to registers, K split over warps: for up to 16 rows
    Matrix ///< tiles in shared memory
  };
  Form form = Matrix;
  int64_t maxRows = 0;
  GemmTile tile{}; ///< of Matrix
  Description description;
};

/// The kernels of a spec, for ever more rows; the last one takes any number.
std::vector<BlockScaledKernel> blockScaledKernels(const BlockScaledSpec &spec, const Chip &chip);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const BlockScaledSpec &spec,
                      const BlockScaledKernel &kernel);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_BLOCKSCALED_H
