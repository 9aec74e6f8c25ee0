//===- StreamedFile.h - A file that is written in pieces --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_STREAMEDFILE_H
#define EASYQUANT_SUPPORT_STREAMEDFILE_H

#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>

namespace easyquant {

/// A file too large to be in memory, written from its first byte to its last under a temporary
/// name; finish() gives it its own, and what was there before stays until then. Unless it succeeds,
/// nothing of it is left. What is no regular file, such as a pipe, is written as it is.
class StreamedFile {
public:
  /// Creates the file and reserves room for so many bytes, so that a full disk shows before hours
  /// of work rather than after. Errors: IO.
  static Result<StreamedFile> create(const std::filesystem::path &path, int64_t bytes);

  StreamedFile(StreamedFile &&other) noexcept;
  StreamedFile &operator=(StreamedFile &&other) noexcept;
  StreamedFile(const StreamedFile &) = delete;
  StreamedFile &operator=(const StreamedFile &) = delete;
  ~StreamedFile();

  const std::filesystem::path &path() const { return name; }
  /// Is it neither finished nor moved from?
  bool isOpen() const { return descriptor >= 0; }

  /// Appends. Errors: IO (disk full, ...).
  Result<void> write(std::span<const std::byte> bytes);
  /// Flushes the file to the disk and gives it its name. Errors: IO.
  Result<void> finish();

private:
  StreamedFile() = default;
  void discard();

  std::filesystem::path name, staging; ///< where it is written until it is whole
  int descriptor = -1;
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_STREAMEDFILE_H
