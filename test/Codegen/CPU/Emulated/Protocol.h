//===- Protocol.h - Calls of kernels in another process ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A unit test sends a call, and KernelHost, which was built for the kernel's processor, makes it:
//
//   Call, the symbol, Region and its bytes for each, Argument (and of memory the descriptor) for
//   each
//
// The answer is the bytes of all regions, behind kDone. Nothing comes from a host that has failed:
// it ends, and says why on stderr. Both sides are little-endian and have 64 bits.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_EMULATED_PROTOCOL_H
#define EASYQUANT_TEST_CODEGEN_CPU_EMULATED_PROTOCOL_H

#include <cstdint>

namespace easyquant::cpu::emulated {

inline constexpr uint64_t kPage = 4096, kDone = 0x6b65726e656c;

struct Call {
  uint64_t symbolBytes, regions, arguments;
};
/// Whole pages of the test's memory. A page behind that no region has cannot be touched.
struct Region {
  uint64_t address, bytes;
};
enum class Kind : uint64_t { Memory, Integer, Float };
struct Argument {
  Kind kind;
  uint64_t value; ///< of Memory the bytes of the descriptor, else the bits
};

} // namespace easyquant::cpu::emulated

#endif // EASYQUANT_TEST_CODEGEN_CPU_EMULATED_PROTOCOL_H
