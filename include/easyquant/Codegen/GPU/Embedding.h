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
/// columns, the one that a tied head multiplies with, as easyquant/Numerics/FragmentPacking.h has
/// it; y is to the bit that of numerics::dequantize. In a sharded table each of several ranks has
/// `vocab` rows, rank r those from r * vocab on; y of other tokens is zero. Parameters:
///   tokens, (table | w, wscales, [wzeros], [wminima], [wouter], [codebook]), [rank], y, y_stride,
///   rows
struct EmbeddingSpec {
  int64_t vocab = 0, columns = 0;
  /// What the table consists of.
  enum class Rows {
    Floats,    ///< row-major
    Fragments, ///< floats of 16 bits, `w` without scales
    Codes
  };
  Rows rows = Rows::Floats;
  Float table = Float::F32; ///< of floats
  WeightCodec codec;        ///< of codes
  numerics::FragmentOrder order = numerics::FragmentOrder::M16N8K32;
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
  bool chosen = false; ///< a kernel of the step has written the numbers, else the host before it
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const GatherSpec &spec, const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_EMBEDDING_H
