//===- Experts.h - Mixtures of experts on GPUs ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Conventions: easyquant/Codegen/GPU/Kernels.h. Each of M rows chooses `chosen` of `experts`
// experts (lm.route). The R = chosen * M choices are rows of their own, sorted by expert and then
// by row. The linears of a site, one for each expert, are one launch over these rows:
//
//   * its weight has the N x K of each expert, one below the other, packed as one weight. N is a
//     multiple of kExpertUnit, so that scales and zero points of an expert begin where 64 rows do;
//     float weights have a multiple of kExpertFloatUnit, the rows of a block of fragments;
//   * its work is a list of items, which SortChoicesSpec writes: up to T rows of one expert. So
//     weights of experts without rows are not read. As many blocks as the chip has room for take
//     items and tiles of columns in turns. The grid depends on nothing that is chosen;
//   * there is a list for each T of kItemRows, for few rows of an expert and for many. All kernels
//     of a spec sum over K in one order, with LinearSpec and WeightOnlySpec for tiles in shared
//     memory: which other rows chose an expert changes no bit of a row.
//
// Memory of the lists, `items`: R + 1 rows of 4 int32s for each T, side by side. Row 0 has the
// number of items of each list. Behind it item i has (expert, first row, rows, 0) in row i + 1.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_EXPERTS_H
#define EASYQUANT_CODEGEN_GPU_EXPERTS_H

#include "easyquant/Codegen/GPU/WeightOnly.h"

#include <array>

namespace easyquant::gpu {

/// Rows of weights that an expert has a multiple of, where they are codes and where floats.
inline constexpr int64_t kExpertUnit = 64, kExpertFloatUnit = 8;
/// Rows of an item of each list at most.
inline constexpr std::array<int64_t, 2> kItemRows = {16, 64};
/// int32s of an item, and of a row of the memory of all lists.
inline constexpr int64_t kItemFields = 4, kItemStride = kItemFields * std::ssize(kItemRows);
/// The kernel for few rows of an expert is taken up to so many for each expert, on average.
inline constexpr int64_t kFewRows = 16;

/// For each row its `chosen` choices, from the greatest score on, of equal ones the first expert:
/// `places`, the numbers of the experts, and `weights`, what lm.route says that they count. Both
/// are M x chosen, dense. Scores that choose are to the bit those of CPUs. Parameters:
///   logits, logits_stride, [bias], [factors], places, weights, rows
struct ChooseExpertsSpec {
  int64_t experts = 0, chosen = 0;
  bool renormalize = false, sigmoid = false;
  bool bias = false;    ///< of sigmoids, only chooses
  bool factors = false; ///< of experts, which weights are multiplied by
  double scale = 1;     ///< of weights
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const ChooseExpertsSpec &spec,
                      const Chip &chip);

/// Sorts the choices: `places` become where each lies among all, and of these `order` says of which
/// row each is. `items` are the lists. One block, whose warps count and place shares of the
/// choices; the order of all of them is that of experts and rows. Parameters:
///   places, order, items, rows
struct SortChoicesSpec {
  int64_t experts = 0, chosen = 0;
  bool few = false; ///< for up to kFewChoices choices, by as few warps
};
inline constexpr int64_t kFewChoices = 128;
Description getOrEmit(mlir::gpu::GPUModuleOp module, const SortChoicesSpec &spec, const Chip &chip);

/// y[m] = sum over j of weights[m, j] x[places[m, j]], in the order of j, then (+ logistic(gate[m])
/// shared[m]); each term by one fma, as on CPUs. Parameters:
///   places, weights, x, x_stride, [shared, shared_stride, gate, gate_stride], y, y_stride, rows
struct CombineSpec {
  int64_t columns = 0, chosen = 0;
  bool shared = false;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const CombineSpec &spec, const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_EXPERTS_H
