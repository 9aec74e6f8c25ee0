//===- Chip.cpp - GPUs that kernels are generated for ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Chip.h"

#include <string>

namespace easyquant::gpu {

static constexpr int64_t KiB = 1024;

// A block may have one KiB less than its multiprocessor: the driver keeps that much for itself.
static constexpr Chip kChips[] = {
    {ChipId::SM80, "sm_80", 163 * KiB, 164 * KiB, 2048, 108, 13.4, 2048},
    {ChipId::SM86, "sm_86", 99 * KiB, 100 * KiB, 1536, 84, 4.8, 1024},
    {ChipId::SM87, "sm_87", 163 * KiB, 164 * KiB, 1536, 16, 9.8, 2048},
    {ChipId::SM89, "sm_89", 99 * KiB, 100 * KiB, 1536, 142, 2.4, 1024},
    {ChipId::SM90a, "sm_90a", 227 * KiB, 228 * KiB, 2048, 132, 19.9, 4096},
    {ChipId::SM120a, "sm_120a", 99 * KiB, 100 * KiB, 1536, 188, 3.6, 1024},
};

std::span<const Chip> chips() { return kChips; }

const Chip &chip(ChipId id) { return kChips[static_cast<size_t>(id)]; }

Result<Chip> findChip(std::string_view name) {
  std::string known;
  for (const Chip &chip : kChips) {
    if (chip.name == name)
      return chip;
    known += (known.empty() ? "" : ", ") + std::string(chip.name);
  }
  return makeError(ErrorCode::Unsupported, "no kernels for chip \"{}\": choose one of {}", name,
                   known);
}

} // namespace easyquant::gpu
