//===- Phase.h - What time is spent on --------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_PHASE_H
#define EASYQUANT_FORMATS_PHASE_H

#include <cstddef>
#include <span>

namespace easyquant::formats {

/// What a kernel counts as, on CPUs and GPUs alike: the numbers are those that programs for CPUs
/// give their profiler hook (docs/Architecture.md), the names those of launches. Phases without
/// kernels are the runtime's. Load: to the device; Comm: among devices; Sync: waiting, and back
/// from the device.
enum class Phase { Load, Quantize, Gemm, Attention, Comm, Sync, Other };
inline constexpr const char *kPhaseNames[] = {"load", "quantize", "gemm", "attention",
                                              "comm", "sync",     "other"};
inline constexpr size_t kPhases = std::size(kPhaseNames);

constexpr const char *nameOf(Phase phase) { return kPhaseNames[static_cast<size_t>(phase)]; }
constexpr std::span<const char *const> namesOf(Phase) { return kPhaseNames; }

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_PHASE_H
