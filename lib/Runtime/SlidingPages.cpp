//===- SlidingPages.cpp - Pages of layers with a window -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Layers that read the newest tokens alone have pages of their own, which a sequence gives back
// when all that lies in them is behind the window. It keeps a few more, so that it can be cut back
// a little; cut back further it begins again.
//
//===----------------------------------------------------------------------===//

#include "Executor.h"

#include <algorithm>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

bool Batch::hasWindows(const Sequence &sequence, int64_t position) const {
  if (!pool->sizes().sliding)
    return true;
  const std::vector<int64_t> &pages = sequence.slidingPages;
  const int64_t first = pool->firstRead(position), end = pool->sizes().pagesOf(position);
  // Pages that are gone come first.
  return first >= end || pages[static_cast<size_t>(first)] >= 0;
}

/// Gives back the pages [first, end) of a sequence that it still has.
static void giveBack(NumberPool &pool, std::vector<int64_t> &pages, int64_t first,
                     int64_t end) noexcept {
  for (int64_t i = std::max<int64_t>(0, first); i < std::min(end, std::ssize(pages)); ++i)
    if (int64_t page = std::exchange(pages[static_cast<size_t>(i)], -1); page >= 0)
      pool.release(page);
}

Result<void> Batch::slide(Sequence &sequence, int64_t position, int64_t end) {
  PagePool &pool = *this->pool;
  std::vector<int64_t> &pages = sequence.slidingPages;
  // Should the call fail, the sequence goes on at its state.
  giveBack(pool.slidingPages, pages, pool.sizes().pagesOf(sequence.state.position),
           pool.firstRead(position));
  const auto count = static_cast<size_t>(pool.sizes().pagesOf(end));
  pages.reserve(count + 1);
  const size_t held = pages.size();
  for (auto i = static_cast<size_t>(pool.firstWritten(position)); i < held; ++i) {
    if (!pool.slidingPages.isShared(pages[i]))
      continue;
    pages.push_back(pool.slidingPages.take()); // behind the others, should the copy fail
    if (auto copied = executor->copyInCache(pool.placeOfSlidingPage(pages[i]),
                                            pool.placeOfSlidingPage(pages.back()),
                                            pool.sizes().slidingPageBytes());
        !copied)
      return copied;
    std::swap(pages[i], pages.back());
    pool.slidingPages.release(pages.back());
    pages.pop_back();
  }
  while (pages.size() < count)
    pages.push_back(pool.slidingPages.take());
  return {};
}

void Batch::trimWindows(Sequence &sequence) noexcept {
  std::vector<int64_t> &pages = sequence.slidingPages;
  const int64_t held = pool->sizes().pagesOf(sequence.state.position);
  giveBack(pool->slidingPages, pages, held, std::ssize(pages));
  if (std::ssize(pages) > held)
    pages.resize(static_cast<size_t>(held));
  giveBack(pool->slidingPages, pages, 0, pool->firstRead(sequence.state.position) - keptPages);
}

void Batch::addPlaces(const Sequence &sequence, PagePlaces &places) const {
  for (int64_t page : sequence.pages)
    places.pages.push_back(pool->placeOfPage(page));
  if (!pool->sizes().sliding)
    return;
  for (size_t i = 0; i < sequence.pages.size(); ++i) {
    const int64_t page = i < sequence.slidingPages.size() ? sequence.slidingPages[i] : -1;
    places.slidingPages.push_back(page < 0 ? 0 : pool->placeOfSlidingPage(page));
  }
}
