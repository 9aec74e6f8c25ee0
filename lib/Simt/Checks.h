//===- Checks.h - What a launch checks beyond bounds and alignment - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_CHECKS_H
#define EASYQUANT_LIB_SIMT_CHECKS_H

#include "Execution.h"

namespace easyquant::simt {

/// The checks of a launch. All of them record findings and let the kernel go on.
class Checker {
public:
  explicit Checker(Launch &launch) : launch(launch) {}

  /// Before an instruction runs: undefined registers as addresses, guards and stored values.
  void before(Warp &warp, const Instruction &i, Mask executing);
  /// After it: what it wrote is as defined as what it read.
  void after(Warp &warp, const Instruction &i, Mask executing, Frame &frame);

  /// Bytes [offset, offset + bytes) of the block's shared memory.
  void shared(Warp &warp, const Instruction &i, unsigned lane, uint64_t offset, unsigned bytes,
              AccessKind kind);
  /// The bytes of an asynchronous copy are in flight until finishCopy.
  void startCopy(Warp &warp, const Instruction &i, const PendingCopy &copy);
  void finishCopy(Warp &warp, const PendingCopy &copy);
  void global(Warp &warp, const Instruction &i, unsigned lane, Allocation &allocation,
              uint64_t offset, unsigned bytes, AccessKind kind);
  void local(Warp &warp, const Instruction &i, unsigned lane, uint64_t offset, unsigned bytes,
             AccessKind kind);
  /// Several lanes of one store write different values to one place.
  void sameAddressStores(Warp &warp, const Instruction &i, Mask mask, unsigned bytes,
                         std::byte *const (&pointers)[kLanes], const std::byte *values,
                         size_t stride);

  // -- happens-before
  void warpSync(Warp &warp, Mask lanes);
  void barrierArrive(Barrier &barrier, Warp &warp);
  void barrierLeave(Barrier &barrier, Warp &warp);
  /// Publishes what the warp knows at an address that others synchronize on, and learns from it.
  void releaseAt(Warp &warp, uint64_t address);
  void acquireAt(Warp &warp, uint64_t address);

private:
  void judge(Warp &warp, const Instruction &i, RegisterList list, Mask reading, const char *role);
  void order(Warp &warp, const Instruction &i, unsigned lane, AccessHistory &history,
             AccessKind kind, bool isShared, bool isAtomic);
  /// A strong access: acquires and releases what it may.
  void synchronize(Warp &warp, const Instruction &i, AccessKind kind, uint64_t address);
  bool happenedBefore(const Warp &warp, unsigned lane, const AccessRecord &earlier) const;

  struct SyncPoint {
    uint32_t block = ~0u; ///< Whose clocks these are.
    std::vector<uint32_t> clocks;
    std::vector<uint32_t> blocks; ///< Blocks that released here, sorted.
  };
  Launch &launch;
  std::map<std::pair<uint32_t, uint64_t>, SyncPoint> syncPoints;
};

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_CHECKS_H
