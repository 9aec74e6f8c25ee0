//===- Npy.h - Arrays in numpy's .npy files ------------------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_SIMT_NPY_H
#define EASYQUANT_TOOLS_SIMT_NPY_H

#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace easyquant::simt {

/// Contiguous in C order, little-endian. Format: numpy's "NEP 1", versions 1 to 3.
struct Array {
  std::string descr; ///< "<f4", "|i1", ...
  std::vector<uint64_t> shape;
  std::vector<std::byte> data;
};

Result<Array> readNpy(const std::string &path);
Result<void> writeNpy(const std::string &path, const Array &array);

} // namespace easyquant::simt

#endif // EASYQUANT_TOOLS_SIMT_NPY_H
