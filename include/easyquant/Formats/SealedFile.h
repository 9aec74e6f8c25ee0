//===- SealedFile.h - Safetensors files with a checksum -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Files that a run leaves for itself and for later runs carry the checksum of everything in them
// (names, types, shapes, data, metadata) as metadata "xxh3_128": a disk that loses a bit must not
// change a model.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_SEALEDFILE_H
#define EASYQUANT_FORMATS_SEALEDFILE_H

#include "easyquant/Formats/Safetensors.h"

namespace easyquant::formats {

/// A tensor to be written; the bytes are borrowed.
struct ComputedTensor {
  std::string name;
  DType type = DType::F32; ///< F32, I8 (codes, one a byte), I32 or I64
  std::vector<int64_t> shape;
  std::span<const std::byte> bytes;

  /// `data` has the elements of `shape`, row-major.
  static ComputedTensor floats(std::string name, std::vector<int64_t> shape,
                               std::span<const float> data);
  static ComputedTensor codes(std::string name, std::vector<int64_t> shape,
                              std::span<const int8_t> data);
  static ComputedTensor integers(std::string name, std::vector<int64_t> shape,
                                 std::span<const int32_t> data);
};

using FileMetadata = std::map<std::string, std::string>;

/// Writes a file under a temporary name and renames it. Errors: InvalidArgument (a name twice,
/// bytes that do not fill a shape, a float that is not finite, naming it), IO.
Result<void> writeSealed(const std::filesystem::path &path, std::span<const ComputedTensor> tensors,
                         const FileMetadata &metadata);

/// Opens a file and compares it with its checksum, if it has one: files that are given may come
/// from elsewhere. Errors: NotFound, Corrupt, IO.
Result<SafetensorsFile> openSealed(const std::filesystem::path &path);

/// Is there a file of writeSealed with just these metadata? Errors: Corrupt, where it is damaged.
Result<bool> isSealed(const std::filesystem::path &path, const FileMetadata &metadata);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_SEALEDFILE_H
