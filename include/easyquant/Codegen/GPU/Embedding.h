//===- Embedding.h - Rows of tables ------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conventions: easyquant/Codegen/GPU/Kernels.h. Tokens are M int32 in device memory, inside the
// vocabulary (the caller has checked them); `row_places` are a formats::RowPlace for each row.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_EMBEDDING_H
#define EASYQUANT_CODEGEN_GPU_EMBEDDING_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Numerics/FragmentPacking.h"

namespace easyquant::gpu {

/// y[m] = table[tokens[m]], y of f32. A table of codes is a packed weight of N = vocab, K =
/// columns, the one that a tied head multiplies with: w, wscales and wzeros as
/// easyquant/Numerics/FragmentPacking.h has them; y = scale * (code - zero point), the difference
/// exact. In a sharded table each of several ranks has `vocab` rows, rank r those from r * vocab
/// on; y of other tokens is zero. Parameters:
///   tokens, (table | w, wscales, [wzeros]), [rank], y, y_stride, rows
struct EmbeddingSpec {
  int64_t vocab = 0, columns = 0;
  int bits = 0; ///< of codes: 2, 3 (M16N8K16 only), 4 or 8; 0: row-major floats; 16: float
                ///< fragments, `w` without scales
  Float table = Float::F32; ///< of floats
  numerics::FragmentOrder order = numerics::FragmentOrder::M16N8K32;
  int64_t groupSize = 0; ///< 0 or a multiple of 32
  bool zeroPoints = false;
  ScaleFormat scales = ScaleFormat::F32; ///< F32 or F16
  bool sharded = false;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const EmbeddingSpec &spec, const Chip &chip);

/// y[m] += table[position of row m], in place, floats. Parameters:
///   table, row_places, y, y_stride, rows
struct PositionEmbeddingSpec {
  int64_t positions = 0, columns = 0; ///< of the table
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const PositionEmbeddingSpec &spec,
                      const Chip &chip);

/// y[m] = x[numbers[m]], floats; `numbers` are M int32 in device memory, each a row of x, which y
/// does not overlap. Parameters:
///   x, x_stride, numbers, y, y_stride, rows
struct GatherSpec {
  int64_t columns = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const GatherSpec &spec, const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_EMBEDDING_H
