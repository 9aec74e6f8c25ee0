//===- MappedFile.cpp - A file mapped read-only ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/MappedFile.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

using namespace easyquant;
using namespace easyquant::formats;

Result<MappedFile> MappedFile::open(const std::filesystem::path &path) {
  // O_NONBLOCK: opening a FIFO would wait for a writer. It means nothing to regular files.
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return makeError(errno == ENOENT ? ErrorCode::NotFound : ErrorCode::IO, "{}: cannot open: {}",
                     path.string(), std::strerror(errno));
  struct stat status;
  if (::fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor);
    return makeError(ErrorCode::Unsupported, "{}: not a regular file", path.string());
  }

  MappedFile file;
  file.name = path;
  if (status.st_size != 0) { // mmap refuses a length of 0
    auto size = static_cast<size_t>(status.st_size);
    void *address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    if (address == MAP_FAILED) {
      int reason = errno;
      ::close(descriptor);
      return makeError(ErrorCode::IO, "{}: cannot map {} bytes: {}", path.string(), size,
                       std::strerror(reason));
    }
    file.view = {static_cast<const std::byte *>(address), size};
  }
  ::close(descriptor);
  return file;
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : name(std::move(other.name)), view(std::exchange(other.view, {})) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(name, other.name);
  std::swap(view, other.view);
  return *this;
}

MappedFile::~MappedFile() {
  if (!view.empty())
    ::munmap(const_cast<std::byte *>(view.data()), view.size());
}

void MappedFile::release(std::span<const std::byte> part) const {
  // Whole pages inside the part only: a page shared with a neighbour may be in use.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) // Advice only: nothing depends on its success.
    (void)::madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}
