//===- Choose.h - GPU kernels that choose tokens ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A row of logits is kept on the device behind the step that has made it, and a token is chosen of
// it there (Formats/TokenChoice.h): the one that lib/Runtime's RowReader would choose, since sums
// are added in the same order and nothing else is rounded. Conventions are those of Kernels.h.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_CHOOSE_H
#define EASYQUANT_CODEGEN_GPU_CHOOSE_H

#include "easyquant/Codegen/GPU/Kernels.h"
#include "easyquant/Formats/TokenChoice.h"

namespace easyquant::gpu {

/// Copies rows of logits, one behind the other from row `first_row` on, to places from `first_slot`
/// on, formats::keptLogits(vocabulary) floats each, and finds the first greatest logit of each.
/// Parameters:
///   logits, kept, greatest, first_row, first_slot, rows
/// `greatest` are formats::GreatestLogits by the number of the place, zero before.
struct KeepLogitsSpec {
  int64_t vocabulary = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const KeepLogitsSpec &spec, const Chip &chip);

/// Makes `rows` formats::LogitChanges, no two of which are of one logit, in rows of logits one
/// behind the other. Parameters:
///   logits, changes, rows
struct ChangeLogitsSpec {
  int64_t vocabulary = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const ChangeLogitsSpec &spec,
                      const Chip &chip);

/// For each of `rows` formats::TokenChoices, the greatest logit and the sum of the weights of each
/// block of formats::kLogitBlock logits of its row. Parameters:
///   kept, greatest, choices, settings, tops, sums, rows
/// settings are formats::ChoiceSettings; tops and sums are rows x blocks floats.
struct WeighLogitsSpec {
  int64_t vocabulary = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const WeighLogitsSpec &spec, const Chip &chip);

/// The token of each choice, an int32, by tops and sums that WeighLogitsSpec has made;
/// formats::kLeftToHost where more than kMostCandidates tokens would have to be looked at: all with
/// a logit of the k-th greatest block and more, respectively those that can be in a nucleus.
/// Parameters:
///   kept, greatest, choices, settings, tops, sums, tokens, rows
struct ChooseTokensSpec {
  static constexpr int64_t kMostCandidates = formats::kMostCandidates;
  int64_t vocabulary = 0;
};
Description getOrEmit(mlir::gpu::GPUModuleOp module, const ChooseTokensSpec &spec,
                      const Chip &chip);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_CHOOSE_H
