//===- Npy.h - Arrays of NumPy ----------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A .npy file is a magic number, a version, the length of a header, the header, which is a literal
// of a Python dictionary, and the elements. The header is untrusted: nothing is allocated by its
// numbers. Format: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_NPY_H
#define EASYQUANT_FORMATS_NPY_H

#include "easyquant/Formats/DType.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace easyquant::formats {

struct NpyHeader {
  DType dtype = DType::F32;
  std::vector<int64_t> shape; ///< empty: a scalar
  int64_t dataOffset = 0;     ///< first byte of the elements, row-major and little-endian
};

/// Parses and checks the header of a whole file in memory, whose elements are then as many bytes as
/// the shape says; `fileName` is for messages only. Corrupt for what is no .npy file, Unsupported
/// for elements in Fortran's order, of another order of bytes or of a type that DType has not; each
/// names the file.
Result<NpyHeader> parseNpyHeader(std::span<const std::byte> file, std::string_view fileName);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_NPY_H
