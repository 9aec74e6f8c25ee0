//===- Arguments.h - Arguments of a kernel from the command line - -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_SIMT_ARGUMENTS_H
#define EASYQUANT_TOOLS_SIMT_ARGUMENTS_H

#include "Npy.h"

#include "easyquant/Simt/Simt.h"

namespace easyquant::simt {

/// Buffers and scalars that --arg options ask for.
class CommandLineArguments {
public:
  explicit CommandLineArguments(Device &device) : device(device) {}

  /// One --arg: in:FILE, inout:FILE, out:FILE:TYPE:SHAPE, scratch:TYPE:SHAPE, value:FILE,
  /// TYPE:NUMBER.
  Result<void> add(const std::string &text);
  /// The kinds have to be those of the kernel's parameters.
  Result<void> check(const KernelInfo &kernel) const;
  /// Writes the files of out and inout. Returns how many bytes of them the kernel never wrote.
  Result<uint64_t> writeBack() const;

  Arguments values;

private:
  struct Buffer {
    std::string path; ///< Empty: not written back.
    Array array;
    uint64_t address;
  };
  Result<void> addBuffer(const std::string &path, Array array, bool initialised, bool writesBack);
  Device &device;
  std::vector<Buffer> buffers;
  std::vector<std::string> kinds; ///< "pointer", "value" or a scalar type; as `values`.
};

} // namespace easyquant::simt

#endif // EASYQUANT_TOOLS_SIMT_ARGUMENTS_H
