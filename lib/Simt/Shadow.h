//===- Shadow.h - Who touched which byte ---------------------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Happens-before at the granularity that GPU programs synchronize at. Every warp has a clock that
// advances at each synchronization; an access remembers (block, thread, clock). Across warps of a
// block, an access is ordered before another if the other warp has learnt of a later clock of the
// first one's (Warp::known), through a barrier, an mbarrier or a released atomic. Within a warp,
// lanes are ordered by bar.warp.sync and by barriers. Blocks are ordered only by atomics after a
// fence.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_SHADOW_H
#define EASYQUANT_LIB_SIMT_SHADOW_H

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace easyquant::simt {

/// One access: who, when, and at which instruction.
struct AccessRecord {
  uint32_t block = ~0u; ///< ~0u: none.
  uint16_t thread = 0;
  uint16_t atomic = 0;
  uint32_t clock = 0;
  uint32_t pc = 0;
};

/// The history of a byte, or of four: the last write and the last two readers.
struct AccessHistory {
  AccessRecord write, read, otherRead;
};

/// Histories of a range of bytes, made page by page. A page starts with one history for four bytes,
/// and gets one a byte at its first access that is smaller or not aligned.
class ShadowMemory {
public:
  explicit ShadowMemory(uint64_t bytes) : pages((bytes + kPage - 1) / kPage) {}

  /// Calls `visit(AccessHistory &)` for everything that [offset, offset + bytes) covers.
  template <typename Visit> void visit(uint64_t offset, unsigned bytes, Visit &&visitor) {
    bool words = offset % 4 == 0 && bytes % 4 == 0;
    for (uint64_t i = offset; i < offset + bytes;) {
      Page &page = pages[i / kPage];
      if (page.histories.empty())
        page.histories.resize(words ? kPage / 4 : kPage), page.byBytes = !words;
      else if (!words && !page.byBytes)
        split(page);
      unsigned step = page.byBytes ? 1 : 4;
      visitor(page.histories[i % kPage / step]);
      i += step;
    }
  }

private:
  static constexpr uint64_t kPage = 4096;
  struct Page {
    bool byBytes = false;
    std::vector<AccessHistory> histories;
  };
  static void split(Page &page) {
    std::vector<AccessHistory> fine(kPage);
    for (uint64_t i = 0; i < kPage; ++i)
      fine[i] = page.histories[i / 4];
    page.histories = std::move(fine);
    page.byBytes = true;
  }
  std::vector<Page> pages;
};

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_SHADOW_H
