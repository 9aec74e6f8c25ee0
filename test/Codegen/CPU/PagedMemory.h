//===- PagedMemory.h - Pages of several layers anywhere ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_PAGEDMEMORY_H
#define EASYQUANT_TEST_CODEGEN_CPU_PAGEDMEMORY_H

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace easyquant::cpu {

/// How the pages of a sequence lie in its cache.
enum class Pages { InOrder, Shuffled };

/// The cache of one sequence in a model of three layers, of which the kernel under test has the
/// second one: its window, and pages with gaps between them.
class PagedMemory {
public:
  PagedMemory(CacheBytes bytes, int64_t count, Pages order, int8_t fill)
      : table(count), bytes(bytes), memory(size(bytes, count), fill) {
    std::vector<int64_t> places(count);
    for (int64_t i = 0; i < count; ++i)
      places[i] = i;
    if (order == Pages::Shuffled)
      std::shuffle(places.begin(), places.end(), std::mt19937(7));
    for (int64_t i = 0; i < count; ++i)
      table[i] = 3 * bytes.window + kGap + places[i] * stride(bytes);
  }

  PagedMemory(const PagedMemory &other)
      : table(other.table), bytes(other.bytes), memory(other.memory.elementCount(), 0) {
    std::memcpy(memory.data(), other.memory.data(), memory.elementCount());
  }

  int64_t layer() const { return bytes.page; }
  /// The layer's part of a window, and the bytes of all layers' parts.
  int64_t window() const { return bytes.window; }
  int64_t windows() const { return 3 * bytes.window; }
  /// Byte `at` of the layer's part of a page.
  int64_t place(int64_t page, int64_t at) const { return table[page] + layer() + at; }
  template <typename T> T read(int64_t byte) const {
    T x;
    std::memcpy(&x, memory.data() + byte, sizeof(T));
    return x;
  }
  template <typename T> void write(int64_t byte, T x) {
    std::memcpy(memory.data() + byte, &x, sizeof(T));
  }

  MemRef<int8_t, 1> view() const {
    return MemRef<int8_t, 1>(memory.data(), {static_cast<int64_t>(memory.elementCount())});
  }
  MemRef<int64_t, 1> pages() { return MemRef<int64_t, 1>(table.data(), {std::ssize(table)}); }
  std::vector<int8_t> contents() const {
    return {memory.data(), memory.data() + memory.elementCount()};
  }

  std::vector<int64_t> table;

private:
  static constexpr int64_t kGap = 192;
  static int64_t stride(CacheBytes bytes) { return 3 * bytes.page + kGap; }
  static int64_t size(CacheBytes bytes, int64_t count) {
    return 3 * bytes.window + kGap + count * stride(bytes);
  }
  CacheBytes bytes;
  GuardedBuffer<int8_t> memory;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_TEST_CODEGEN_CPU_PAGEDMEMORY_H
