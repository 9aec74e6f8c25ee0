//===- MappedMemory.h - Memory from the system ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pages that are mapped as long as an object lives: those of a file, zeroed ones, and a range of
// addresses that several files share. A file that another process truncates while it is mapped
// raises SIGBUS on access: that is the operating system's rule for mappings.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_MAPPEDMEMORY_H
#define EASYQUANT_SUPPORT_MAPPEDMEMORY_H

#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>

namespace easyquant {

/// A mapping, undone with the object; a moved-from object has none.
class Pages {
public:
  Pages() = default;
  Pages(void *address, size_t length)
      : address(static_cast<std::byte *>(address)), length(length) {}
  Pages(Pages &&other) noexcept { *this = std::move(other); }
  Pages &operator=(Pages &&other) noexcept;
  ~Pages();

  std::byte *data() const { return address; }
  size_t size() const { return length; }

private:
  std::byte *address = nullptr;
  size_t length = 0;
};

/// The bytes of a regular file, mapped for reading.
class MappedFile {
public:
  /// Errors: NotFound (no such file), Unsupported (a folder, pipe or device), IO (the rest).
  static Result<MappedFile> open(const std::filesystem::path &path);

  std::span<const std::byte> bytes() const { return {pages.data(), pages.size()}; }
  std::string_view text() const {
    return {reinterpret_cast<const char *>(pages.data()), pages.size()};
  }
  const std::filesystem::path &path() const { return name; }

  /// Tells the operating system that `part`, a piece of bytes(), is not needed for now: its pages
  /// leave the resident set and come back from the file when they are touched. Safe while other
  /// threads read.
  void release(std::span<const std::byte> part) const;
  /// Readers of weights release pieces of at least so many bytes, so that the resident set does not
  /// grow with the model. A smaller piece is not worth a call of the system.
  static constexpr size_t kReleaseBytes = size_t(1) << 16;

private:
  std::filesystem::path name;
  Pages pages;
};

/// Zeroed memory, aligned to a page. What is never touched costs nothing, and unlike the heap's it
/// leaves the resident set when it is freed.
class Buffer {
public:
  /// The most that a buffer may be larger than asked for.
  static constexpr int64_t kPage = 4096;

  /// At least a page. Errors: OutOfRange ("`what`: the system has not got the ... bytes that it
  /// needs; `remedy`").
  static Result<Buffer> allocate(int64_t bytes, std::string_view what, std::string_view remedy);

  int64_t size() const { return pages.size() == 0 ? 0 : bytes; }
  template <typename T = std::byte> T *data() const { return reinterpret_cast<T *>(pages.data()); }
  /// Asks for large pages: worth it for what is touched all over in each step.
  void preferHugePages() const;

private:
  Pages pages;
  int64_t bytes = 0;
};

/// A range of addresses, into which files are mapped one behind another; nothing else can come
/// between.
class MappedRange {
public:
  /// `what` is for messages. Errors: IO.
  static Result<MappedRange> reserve(size_t bytes, std::string_view what);
  /// Maps a part of `file`, from its byte `offset` on, to the range's byte `place`: both at pages.
  /// Errors: Corrupt (the file has changed since it was opened), IO.
  Result<void> map(size_t place, const MappedFile &file, size_t offset, size_t length);
  /// Puts copies into memory of large pages in the place of what is mapped, at the same addresses:
  /// worth it for what each step reads and caches do not hold, since files come in small pages,
  /// whose addresses take a walk through the system's tables each. What the system has no memory
  /// for stays as it is. All of the range has to be mapped; nobody else may read it meanwhile.
  void moveToLargePages();

  const std::byte *data() const { return pages.data(); }

private:
  Pages pages;
};

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_MAPPEDMEMORY_H
