//===- MaskClusters.h - Logits of tokens in chosen clusters -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_MASKCLUSTERS_H
#define EASYQUANT_CODEGEN_GPU_MASKCLUSTERS_H

#include "easyquant/Codegen/GPU/Kernels.h"

namespace easyquant::gpu {

/// What lm.mask_clusters says, in place: logits, M x tokens, by scores, M x clusters, and the
/// cluster of each token, floats. Parameters:
///   logits, logits_stride, scores, scores_stride, clusters, rows
struct MaskClustersSpec {
  /// Threads keep scores in registers.
  static constexpr int64_t kMostClusters = 8192;
  int64_t tokens = 0, clusters = 0, chosen = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const MaskClustersSpec &spec,
                      const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_MASKCLUSTERS_H
