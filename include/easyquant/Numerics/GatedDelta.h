//===- GatedDelta.h - Gradients of gated delta nets --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_GATEDDELTA_H
#define EASYQUANT_NUMERICS_GATEDDELTA_H

#include "easyquant/Numerics/Matrix.h"

#include <cstdint>
#include <span>

namespace easyquant::numerics {

/// Heads of an lm.gated_delta, and its constants, one for each head of values.
struct GatedDelta {
  int64_t keyHeads = 0, valueHeads = 0;
  bool tiled = false; ///< value head h has key head h mod keyHeads, else one by one
  std::span<const float> logRate, bias;
};

/// What it reads, or the gradients of that.
template <typename T> struct DeltaRows {
  MatrixView<T> query, key, value, decay, strength;
};

/// The gradients of all that an lm.gated_delta reads, whose rows are all tokens that there are. Key
/// heads are shared among threads.
void gatedDeltaGradient(const GatedDelta &net, ConstMatrix dy, const DeltaRows<const float> &in,
                        const DeltaRows<float> &out, unsigned threads);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_GATEDDELTA_H
