//===- FailingAllocation.cpp - Memory that is refused on purpose ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FailingAllocation.h"

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace easyquant::runtime::test;

static std::atomic<bool> counting = false;
static std::atomic<int64_t> remaining = 0;
static std::atomic<size_t> largest = 0;
/// The creation of a thread is one allocation, whatever it consists of.
static thread_local bool inside = false;

/// Whether this allocation, which `caller` asks for, is to fail.
static bool isRefused(size_t bytes, const void *caller) {
  if (!counting || inside)
    return false;
  Dl_info info;
  inside = true;
  bool isOpenMP = ::dladdr(caller, &info) != 0 && info.dli_fname &&
                  std::strstr(info.dli_fname, "libomp") != nullptr;
  inside = false;
  for (size_t known = largest; isOpenMP && bytes > known;)
    largest.compare_exchange_weak(known, bytes);
  return !isOpenMP && --remaining == 0;
}

FailingAllocation::FailingAllocation(int64_t number) {
  remaining = number;
  largest = 0;
  counting = true;
}
FailingAllocation::~FailingAllocation() { counting = false; }
bool FailingAllocation::hasFailed() { return remaining <= 0; }
size_t FailingAllocation::largestOfOpenMP() { return largest; }

#if __has_feature(address_sanitizer)

void *operator new(size_t bytes) {
  void *memory = isRefused(bytes, __builtin_return_address(0)) ? nullptr : std::malloc(bytes);
  return memory ? memory : throw std::bad_alloc();
}
void *operator new(size_t bytes, const std::nothrow_t &) noexcept {
  return isRefused(bytes, __builtin_return_address(0)) ? nullptr : std::malloc(bytes);
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }

#else

extern "C" {
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

static void *refuse() {
  errno = ENOMEM;
  return nullptr;
}

void *malloc(size_t bytes) {
  return isRefused(bytes, __builtin_return_address(0)) ? refuse() : __libc_malloc(bytes);
}
void *calloc(size_t count, size_t bytes) {
  return isRefused(count * bytes, __builtin_return_address(0)) ? refuse()
                                                               : __libc_calloc(count, bytes);
}
void *realloc(void *memory, size_t bytes) {
  return isRefused(bytes, __builtin_return_address(0)) ? refuse() : __libc_realloc(memory, bytes);
}
void *aligned_alloc(size_t alignment, size_t bytes) {
  return isRefused(bytes, __builtin_return_address(0)) ? refuse()
                                                       : __libc_memalign(alignment, bytes);
}
int posix_memalign(void **memory, size_t alignment, size_t bytes) {
  *memory =
      isRefused(bytes, __builtin_return_address(0)) ? nullptr : __libc_memalign(alignment, bytes);
  return *memory ? 0 : ENOMEM;
}

void *mmap(void *address, size_t length, int protection, int flags, int file, off_t offset) {
  if (isRefused(length, __builtin_return_address(0))) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void *>(
      ::syscall(SYS_mmap, address, length, protection, flags, file, offset));
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *argument) {
  size_t stack = 0;
  if (attributes)
    ::pthread_attr_getstacksize(attributes, &stack);
  if (isRefused(stack, __builtin_return_address(0)))
    return EAGAIN;
  static auto *create =
      reinterpret_cast<decltype(&pthread_create)>(::dlsym(RTLD_NEXT, "pthread_create"));
  inside = true;
  int result = create(thread, attributes, run, argument);
  inside = false;
  return result;
}
}

#endif
