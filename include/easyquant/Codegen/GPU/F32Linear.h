//===- F32Linear.h - Float linears that keep the bits of f32 ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What decides or adds up along a text, such as a router's numbers or the decays of a gated delta
// net, has few outputs, so that f32 costs little; tensor cores would take its input as bf16.
//
//   y[m,n] = sum over k of x[m,k] w[n,k] (+ bias[n]) (+ y[m,n])
//
// A lane sums every 32nd run of columns by fused multiply-adds, and lanes are added as a tree: sums
// of a row have one order, however many rows there are. |error| <= (K / 32 + 8) 2^-24 of the sum of
// magnitudes.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_F32LINEAR_H
#define EASYQUANT_CODEGEN_GPU_F32LINEAR_H

#include "easyquant/Codegen/GPU/Kernels.h"

namespace easyquant::gpu {

/// All are f32, w is N x K. Parameters, those in brackets where the spec has them:
///   x, x_stride, w, [bias], y, y_stride, rows
struct F32LinearSpec {
  int64_t n = 0, k = 0;
  bool bias = false;
  bool accumulate = false; ///< add to y instead of overwriting it: the residual connection
};

/// One of the kernels that compute a spec; `maxRows` says up to which M it is the one to take.
struct F32LinearKernel {
  int64_t maxRows = 0;
  int64_t rows = 0, outputs = 0; ///< of y that a warp makes
  int64_t atOnce = 0;            ///< runs of columns that are loaded before they are multiplied
  Description description;
};

/// The kernels of a spec, for ever more rows; the last one takes any number.
std::vector<F32LinearKernel> f32LinearKernels(const F32LinearSpec &spec, const Chip &chip);
Description getOrEmit(mlir::gpu::GPUModuleOp module, const F32LinearSpec &spec,
                      const F32LinearKernel &kernel);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_F32LINEAR_H
