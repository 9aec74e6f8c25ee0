//===- Memory.h - Allocations and variables of a simulated device - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SIMT_MEMORY_H
#define EASYQUANT_LIB_SIMT_MEMORY_H

#include "DecodedKernel.h"
#include "Shadow.h"

#include "easyquant/Simt/Simt.h"

namespace easyquant::simt {

struct Allocation {
  uint64_t address, size;
  std::byte *data; ///< Aligned to 256 bytes.
  std::unique_ptr<std::byte[]> storage;
  std::string name;
  bool readOnly = false;
  /// One bit a byte, set when written. Empty: all of it is initialised.
  std::vector<uint64_t> written;
  /// Made by the first checked access of a launch.
  std::unique_ptr<ShadowMemory> shadow;

  bool contains(uint64_t first, uint64_t bytes) const {
    return first >= address && bytes <= size && first - address <= size - bytes;
  }
  void markWritten(uint64_t offset, uint64_t bytes) {
    if (!written.empty())
      for (uint64_t i = offset; i < offset + bytes; ++i)
        written[i / 64] |= 1ull << i % 64;
  }
  bool isWritten(uint64_t offset, uint64_t bytes) const {
    if (written.empty())
      return true;
    for (uint64_t i = offset; i < offset + bytes; ++i)
      if (!(written[i / 64] >> i % 64 & 1))
        return false;
    return true;
  }
};

/// The variables of a module on a device, and its kernels decoded.
struct ModuleImage {
  std::shared_ptr<const Module> module;
  std::unordered_map<std::string_view, Allocation *> variables;
  std::map<std::string, std::unique_ptr<DecodedKernel>, std::less<>> decodedKernels;
};

struct Device::State {
  std::vector<std::unique_ptr<Allocation>> allocations; ///< By address.
  uint64_t nextAddress = kGlobalBase;
  std::map<const Module *, std::unique_ptr<ModuleImage>> images;

  /// The allocation that `address` lies in; null: none.
  Allocation *find(uint64_t address) const;
  /// The allocation whose end or beginning is nearest, for messages; null: there is none.
  Allocation *nearest(uint64_t address) const;
  Result<Allocation *> allocate(uint64_t bytes, uint64_t align, std::string name);
  Result<ModuleImage *> load(const std::shared_ptr<const Module> &module);
};

} // namespace easyquant::simt

#endif // EASYQUANT_LIB_SIMT_MEMORY_H
