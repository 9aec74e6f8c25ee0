//===- MappedFile.h - A file mapped read-only ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_MAPPEDFILE_H
#define EASYQUANT_FORMATS_MAPPEDFILE_H

#include "easyquant/Support/Result.h"

#include <cstddef>
#include <filesystem>
#include <span>

namespace easyquant::formats {

/// The bytes of a regular file, mapped for reading. The mapping lasts as long as the object, and a
/// moved-from object holds no bytes. A file that another process truncates while it is mapped
/// raises SIGBUS on access: that is the operating system's rule for mappings.
class MappedFile {
public:
  /// Errors: NotFound (no such file), Unsupported (a folder, pipe or device), IO (the rest).
  static Result<MappedFile> open(const std::filesystem::path &path);

  MappedFile() = default;
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return view; }
  const std::filesystem::path &path() const { return name; }

  /// Tells the operating system that `part`, a piece of bytes(), is not needed for now: its pages
  /// leave the resident set and come back from the file when they are touched. Safe while other
  /// threads read.
  void release(std::span<const std::byte> part) const;
  /// Whoever reads weights in pieces releases what is at least so large, so that the resident set
  /// does not grow with the model; less is not worth a call of the system.
  static constexpr size_t kReleaseBytes = size_t(1) << 16;

private:
  std::filesystem::path name;
  std::span<const std::byte> view;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_MAPPEDFILE_H
