//===- FailingNew.cpp - A tool whose memory is refused ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Preloaded (LD_PRELOAD), it lets the $FAIL_NEW-th operator new fail, and all that follow, counted
// from the program's first call of signal() on, with which mains begin. With $FAIL_NEW_OVER only
// those of more bytes count.
//
//===----------------------------------------------------------------------===//

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <dlfcn.h>
#include <new>

static std::atomic<int64_t> remaining = -1;
static size_t least = 0;

extern "C" sighandler_t signal(int number, sighandler_t handler) noexcept {
  if (remaining < 0)
    if (const char *count = std::getenv("FAIL_NEW")) {
      const char *over = std::getenv("FAIL_NEW_OVER");
      least = over ? std::strtoull(over, nullptr, 10) : 0;
      remaining = std::strtoll(count, nullptr, 10);
    }
  return reinterpret_cast<decltype(&signal)>(::dlsym(RTLD_NEXT, "signal"))(number, handler);
}

void *operator new(size_t bytes) {
  if (remaining > 0 && bytes >= least && (remaining == 1 || --remaining == 1))
    throw std::bad_alloc();
  void *memory = std::malloc(bytes);
  return memory ? memory : throw std::bad_alloc();
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
