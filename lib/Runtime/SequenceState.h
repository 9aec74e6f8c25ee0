//===- SequenceState.h - What a sequence keeps from step to step -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Online scales of a sequence, and the bytes that a caller saves them as: eight that say what this
// is, the checksum of what they belong to as 32 hex digits, then the doubles of all sites
// (Numerics/OnlineScales.h). Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_SEQUENCESTATE_H
#define EASYQUANT_LIB_RUNTIME_SEQUENCESTATE_H

#include "easyquant/Formats/Manifest.h"

#include <cstddef>
#include <span>
#include <vector>

namespace easyquant::runtime {

/// Doubles that a sequence keeps.
int64_t stateFields(const formats::Manifest::Online &online);
/// What it begins with.
std::vector<double> startingState(const formats::Manifest::Online &online);

/// Whether a sequence can keep these.
bool isState(const formats::Manifest::Online &online, std::span<const double> state);

/// Bytes of a saved state; 0 of a model without state.
int64_t savedStateBytes(const formats::Manifest &manifest);
/// `to` is savedStateBytes long.
void saveState(const formats::Manifest &manifest, std::span<const double> state,
               std::span<std::byte> to);
/// Errors: InvalidArgument (no saved state, of another size, or of another model), Corrupt (numbers
/// that no sequence keeps).
Result<std::vector<double>> restoreState(const formats::Manifest &manifest,
                                         std::span<const std::byte> from);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_SEQUENCESTATE_H
