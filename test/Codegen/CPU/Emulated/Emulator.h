//===- Emulator.h - Calls kernels for other processors ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels for Arm run in qemu-aarch64, in a process that has the shared object (KernelHost). A call
// takes the pages along in which its memrefs lie and brings back what was written to them; what
// guards a buffer on this side guards it there.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_CPU_EMULATED_EMULATOR_H
#define EASYQUANT_TEST_CODEGEN_CPU_EMULATED_EMULATOR_H

#include "Protocol.h"

#include "easyquant/Codegen/CPU/Kernels.h"

#include <cstdio>
#include <string>
#include <sys/types.h>
#include <vector>

namespace easyquant::cpu::emulated {

/// An argument of a call, and of memory the bytes [begin, end) that its elements are in.
struct Passed {
  Argument argument;
  const void *descriptor = nullptr;
  uintptr_t begin = 0, end = 0;
};

class Emulator {
public:
  /// Empty where it is there, else what is missing.
  static std::string missing();

  /// Starts a process that has this shared object, on a CPU that has no more than `target` needs
  /// where QEMU has a model of one.
  Emulator(const Target &target, const std::string &library);
  /// A process that has not ended well is a test failure.
  ~Emulator();
  Emulator(const Emulator &) = delete;
  Emulator &operator=(const Emulator &) = delete;

  /// A call that does not come back is a test failure.
  void call(const std::string &symbol, const std::vector<Passed> &arguments);

private:
  pid_t process = -1;
  FILE *calls = nullptr, *answers = nullptr;
};

} // namespace easyquant::cpu::emulated

#endif // EASYQUANT_TEST_CODEGEN_CPU_EMULATED_EMULATOR_H
