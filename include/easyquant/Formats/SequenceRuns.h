//===- SequenceRuns.h - A sequence several times in a step ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Where layers have a recurrent state, the same sequence may be in the table of a GPU's step
// several times, one behind the other (GpuStep.h): a run. Only kernels of these layers tell its
// entries apart, by numbers in the place of slots.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_SEQUENCERUNS_H
#define EASYQUANT_FORMATS_SEQUENCERUNS_H

#include <cstdint>

namespace easyquant::formats {

/// `slot` of an entry behind the first one of a run: it goes on with the state, and from the
/// position, that the entry before it has left. That state is read from no slot.
inline constexpr int32_t kGoesOn = -1;
/// `next_slot` where nobody is to read the state that an entry leaves.
inline constexpr int32_t kNobodyReads = -1;

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_SEQUENCERUNS_H
