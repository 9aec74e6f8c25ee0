//===- Chip.h - GPUs that kernels are generated for -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_GPU_CHIP_H
#define EASYQUANT_CODEGEN_GPU_CHIP_H

#include "easyquant/Support/Result.h"

#include <algorithm>
#include <cstdint>
#include <span>
#include <string_view>

namespace easyquant::gpu {

enum class ChipId { SM80, SM86, SM87, SM89, SM90a, SM120a };

/// What kernel generators ask about a chip. Source of the limits: CUDA C++ Programming Guide 13.0,
/// "Technical specifications per compute capability". The numbers of multiprocessors, bandwidths
/// and clocks are in NVIDIA's data sheets of A100, A40, Orin, L40S, H200 and RTX PRO 6000
/// Blackwell, the largest products.
struct Chip {
  ChipId id;
  std::string_view name;       ///< "sm_80", what -mcpu and ptxas take
  int64_t sharedBytesPerBlock; ///< most dynamic shared memory a block may opt in to
  int64_t sharedBytesPerSM;    ///< shared memory of a multiprocessor
  int64_t threadsPerSM;        ///< most resident threads
  int64_t multiprocessors;     ///< of the largest product
  double memoryBytes;          ///< a cycle that its memory delivers to each of these
  int64_t byteProducts;        ///< of int8 that each makes in a cycle; of 16 bits half as many

  /// Most dynamic shared memory of a block of which so many are on a multiprocessor at a time: the
  /// driver keeps a KiB of each for itself.
  int64_t sharedBytesOf(int64_t blocksPerSM) const {
    constexpr int64_t kReserved = 1024;
    return std::min(sharedBytesPerSM / blocksPerSM - kReserved, sharedBytesPerBlock);
  }
  /// Can a kernel begin before the one launched before it has ended (griddepcontrol)?
  bool overlapsLaunches() const { return id >= ChipId::SM90a; }
  /// Has it products of FP8? sm_90a has its own, which are not made here: mma is emulated there.
  bool multipliesFP8() const { return id == ChipId::SM89 || id == ChipId::SM120a; }
  /// Has it products of FP4 with scales of blocks (mma.block_scale)?
  bool multipliesFP4() const { return id == ChipId::SM120a; }
  /// Registers of a lane that a kernel of few rows may plan with: ptxas has more loads under way on
  /// sm_120a.
  int64_t streamRegisters() const { return id == ChipId::SM120a ? 88 : 96; }
  /// Do drivers assemble its PTX for later chips? They do not where a letter ends the name.
  bool isCompatible() const { return name.back() >= '0' && name.back() <= '9'; }
};

/// All chips, oldest first.
std::span<const Chip> chips();
const Chip &chip(ChipId id);
/// Fails with Unsupported, naming all that there are.
Result<Chip> findChip(std::string_view name);

} // namespace easyquant::gpu

#endif // EASYQUANT_CODEGEN_GPU_CHIP_H
