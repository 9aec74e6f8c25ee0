//===- GuardedBuffer.h - Memory that notices being overrun ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Elements that end right before a page which cannot be touched: a kernel that reads or writes past
// the end dies there. The bytes in front of the elements are checked on destruction.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_GUARDEDBUFFER_H
#define EASYQUANT_TEST_CODEGEN_CPU_GUARDEDBUFFER_H

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <new>
#include <span>
#include <sys/mman.h>

namespace easyquant::cpu {

template <typename T> class GuardedBuffer {
public:
  explicit GuardedBuffer(size_t count, T value = T()) : count(count) {
    size_t bytes = count * sizeof(T) + kFront;
    size = (bytes + kPage - 1) / kPage * kPage + kPage;
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED ||
        mprotect(static_cast<char *>(memory) + size - kPage, kPage, PROT_NONE))
      throw std::bad_alloc();
    pages = static_cast<unsigned char *>(memory);
    elements = reinterpret_cast<T *>(pages + size - kPage - count * sizeof(T));
    std::memset(pages, kPattern, reinterpret_cast<unsigned char *>(elements) - pages);
    std::fill_n(elements, count, value);
  }
  ~GuardedBuffer() {
    auto *end = reinterpret_cast<unsigned char *>(elements);
    EXPECT_TRUE(std::all_of(pages, end, [](unsigned char byte) { return byte == kPattern; }))
        << "bytes in front of the buffer were written";
    munmap(pages, size);
  }
  GuardedBuffer(const GuardedBuffer &) = delete;
  GuardedBuffer &operator=(const GuardedBuffer &) = delete;

  T *data() const { return elements; }
  size_t elementCount() const { return count; }
  T &operator[](size_t i) const { return elements[i]; }
  std::span<T> span() const { return {elements, count}; }
  void fill(T value) { std::fill_n(elements, count, value); }

private:
  static constexpr size_t kPage = 4096, kFront = 256;
  static constexpr unsigned char kPattern = 0xA5;
  unsigned char *pages;
  T *elements;
  size_t count, size;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_TEST_CODEGEN_CPU_GUARDEDBUFFER_H
