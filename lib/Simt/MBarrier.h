//===- MBarrier.h - Asynchronous work that an mbarrier waits for - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_MBARRIER_H
#define EASYQUANT_LIB_SIMT_MBARRIER_H

#include "Execution.h"

namespace easyquant::simt {

/// Copies that complete on an mbarrier are held back until somebody asks for its phase.
struct MBarrierTable {
  struct Deferred {
    Warp *warp;
    std::vector<PendingCopy> copies;
    uint32_t bytes;    ///< Taken from the barrier's transaction count when the copies arrive.
    uint32_t arrivals; ///< And so many arrivals are made.
  };
  std::map<uint64_t, std::vector<Deferred>> deferred; ///< By offset in shared memory.
};

/// `copies` arrive when somebody asks for the phase of the mbarrier at `address`; they then take
/// `bytes` from its transaction count and make `arrivals`. `raises`: those are counted on top of
/// the arrivals that the barrier expects.
void deferOnMBarrier(Warp &warp, const Instruction &i, unsigned lane, uint64_t address,
                     std::vector<PendingCopy> copies, uint32_t bytes, uint32_t arrivals,
                     bool raises);

class Decoder;
void decodeBulkCopy(Decoder &); ///< cp.async.bulk

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_MBARRIER_H
