//===- KernelHost.cpp - Calls kernels for a unit test ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   KernelHost LIBRARY
//
// Makes the calls of kernels of a shared object that come on stdin (Protocol.h).
//
//===----------------------------------------------------------------------===//

#include "Protocol.h"

#include <bit>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <sys/mman.h>
#include <utility>
#include <vector>

using namespace easyquant::cpu::emulated;

namespace {

[[noreturn]] void fail(const char *what) {
  std::fprintf(stderr, "KernelHost: %s\n", what);
  std::_Exit(1);
}

void read(void *to, size_t bytes) {
  if (std::fread(to, 1, bytes, stdin) != bytes)
    fail("a call ends before its end");
}

void write(const void *from, size_t bytes) {
  if (std::fwrite(from, 1, bytes, stdout) != bytes)
    fail("the answer cannot be written");
}

/// A region here, with a page behind that cannot be touched.
struct Copy {
  Region region;
  char *pages;

  explicit Copy(const Region &region) : region(region) {
    void *memory = mmap(nullptr, region.bytes + kPage, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
      fail("no memory");
    pages = static_cast<char *>(memory);
    if (mprotect(pages + region.bytes, kPage, PROT_NONE))
      fail("mprotect");
    read(pages, region.bytes);
  }
  void free() const { munmap(pages, region.bytes + kPage); }
};

/// The addresses of a descriptor, which come first, are those of the copy.
void relocate(std::vector<uint64_t> &descriptor, const std::vector<Copy> &copies) {
  for (int i = 0; i < 2; ++i)
    for (const Copy &copy : copies)
      if (uint64_t at = descriptor[i] - copy.region.address; at < copy.region.bytes) {
        descriptor[i] = reinterpret_cast<uint64_t>(copy.pages) + at;
        break;
      }
}

// Integers and addresses take registers of their own, floats others, and what is behind the first
// eight of either takes words of the stack, in its order (Procedure Call Standard of AArch64).
// Words of the stack that a function does not know do no harm.
constexpr size_t kRegisters = 8, kStack = 48;

template <size_t> using Word = uint64_t;
template <size_t> using Float = float;

template <size_t... R, size_t... S>
void invoke(void *entry, const uint64_t *integers, const float *floats, const uint64_t *stack,
            std::index_sequence<R...>, std::index_sequence<S...>) {
  reinterpret_cast<void (*)(Word<R>..., Float<R>..., Word<S>...)>(entry)(integers[R]...,
                                                                         floats[R]..., stack[S]...);
}

void makeCall(void *library, const Call &call) {
  std::string symbol(call.symbolBytes, '\0');
  read(symbol.data(), symbol.size());
  void *entry = dlsym(library, symbol.c_str());
  if (!entry)
    fail(dlerror());
  std::vector<Copy> copies;
  for (uint64_t i = 0; i < call.regions; ++i) {
    Region region;
    read(&region, sizeof(region));
    copies.emplace_back(region);
  }
  std::vector<std::vector<uint64_t>> descriptors(call.arguments);
  uint64_t integers[kRegisters] = {}, stack[kStack] = {};
  float floats[kRegisters] = {};
  size_t integerCount = 0, floatCount = 0, stackCount = 0;
  for (std::vector<uint64_t> &descriptor : descriptors) {
    Argument argument;
    read(&argument, sizeof(argument));
    if (argument.kind == Kind::Memory) {
      descriptor.resize(argument.value / sizeof(uint64_t));
      read(descriptor.data(), argument.value);
      relocate(descriptor, copies);
      argument.value = reinterpret_cast<uint64_t>(descriptor.data());
    }
    if (argument.kind == Kind::Float && floatCount < kRegisters)
      floats[floatCount++] = std::bit_cast<float>(static_cast<uint32_t>(argument.value));
    else if (argument.kind != Kind::Float && integerCount < kRegisters)
      integers[integerCount++] = argument.value;
    else if (stackCount < kStack)
      stack[stackCount++] = argument.value;
    else
      fail("a kernel of too many arguments");
  }
  invoke(entry, integers, floats, stack, std::make_index_sequence<kRegisters>(),
         std::make_index_sequence<kStack>());
  write(&kDone, sizeof(kDone));
  for (const Copy &copy : copies) {
    write(copy.pages, copy.region.bytes);
    copy.free();
  }
  std::fflush(stdout);
}

} // namespace

int main(int count, char **arguments) {
  // What kernels call.
  for (const char *name : {"libomp.so.5", "libm.so.6"})
    if (!dlopen(name, RTLD_NOW | RTLD_GLOBAL))
      fail(dlerror());
  void *library = count == 2 ? dlopen(arguments[1], RTLD_NOW) : nullptr;
  if (!library)
    fail(count == 2 ? dlerror() : "expected LIBRARY");
  Call call;
  while (std::fread(&call, sizeof(call), 1, stdin) == 1)
    makeCall(library, call);
}
