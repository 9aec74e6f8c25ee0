//===- Recurrent.h - Layers that keep a state of sequences ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// lm.conv1d and lm.gated_delta on the rows of all sequences of a step. What a sequence keeps is
// `stateValues` f32 numbers, a slot of `state`, of which a layer has those from number `first` on.
// A kernel reads a sequence's slot, where its rows begin behind position 0, else takes zeros, and
// writes its next one, which is another: a step that is left has changed nothing. A sequence may be
// in the step several times (Formats/SequenceRuns.h). Its bits depend neither on others nor on how
// its text is cut.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_RECURRENT_H
#define EASYQUANT_CODEGEN_GPU_RECURRENT_H

#include "easyquant/Codegen/GPU/Kernels.h"

namespace easyquant::gpu {

/// A causal depthwise convolution, the last W - 1 rows of which a sequence keeps, oldest first:
///   y[t, c] = sum over i of w[c, i] x[t - W + 1 + i, c] (+ bias[c]), by fma in the order of i,
/// the bits of CPUs, and with `silu` y / (1 + e^-y), wrong by (2^-20 + 2^-23 |y|) of it at most.
/// x and y are rows of C floats, w C x W floats, bias C floats. Parameters:
///   x, x_stride, w, [bias], state, first, sequences, row_places, y, y_stride, rows
struct Conv1dSpec {
  int64_t columns = 0, width = 0; ///< C and W
  int64_t stateValues = 0;        ///< of all layers
  bool bias = false, silu = false;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const Conv1dSpec &spec, const Chip &chip);

/// The recurrence of gated delta nets (Yang et al., 2025), token by token in fp32, as
/// lm.gated_delta defines it. q and k are rows of keyHeads * Dk floats, v and y of valueHeads * Dv,
/// decay and beta of valueHeads; log_rate and bias valueHeads floats. A head keeps Dk x Dv numbers,
/// rows of Dv, head by head. Lanes share columns of them, and sums over Dk are taken by each
/// lane's own rows, then by halving between lanes: an order that follows from Dk alone. The largest
/// error of y and of the state is below 2^-19 of the largest magnitude, as on CPUs. Parameters:
///   q, q_stride, k, k_stride, v, v_stride, decay, decay_stride, beta, beta_stride, log_rate, bias,
///   state, first, sequences, row_places, y, y_stride, rows
struct GatedDeltaSpec {
  int64_t keyHeads = 0, keyDim = 0, valueHeads = 0, valueDim = 0; ///< Dk is at most kMaxDeltaKeys
  bool tiled = false;      ///< value head h has key head h mod keyHeads, else one by one
  int64_t stateValues = 0; ///< of all layers
};
/// The columns of a head's state are in registers, a column in those of a warp at most.
inline constexpr int64_t kMaxDeltaKeys = 512;
Description getOrEmit(mlir::gpu::GPUModuleOp module, const GatedDeltaSpec &spec, const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_RECURRENT_H
