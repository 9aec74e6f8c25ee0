//===- MappedMemory.cpp - Memory from the system --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/MappedMemory.h"

#include "easyquant/Support/Parallel.h"
#include "easyquant/Support/Threads.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace easyquant {

static constexpr size_t kLargePage = size_t(2) << 20;

namespace {

/// An open file, closed with the object.
struct Descriptor {
  explicit Descriptor(const std::filesystem::path &path)
      // O_NONBLOCK: opening a FIFO would wait for a writer. It means nothing to regular files.
      : number(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {}
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  int number;
};

Unexpected cannotOpen(const std::filesystem::path &path) {
  return makeError(errno == ENOENT ? ErrorCode::NotFound : ErrorCode::IO, "{}: cannot open: {}",
                   path.string(), std::strerror(errno));
}

Unexpected cannotMap(const std::filesystem::path &path, size_t bytes) {
  return makeError(ErrorCode::IO, "{}: cannot map {} bytes: {}", path.string(), bytes,
                   std::strerror(errno));
}

} // namespace

Pages &Pages::operator=(Pages &&other) noexcept {
  std::swap(address, other.address);
  std::swap(length, other.length);
  return *this;
}

Pages::~Pages() {
  if (address)
    ::munmap(address, length);
}

Result<MappedFile> MappedFile::open(const std::filesystem::path &path) {
  Descriptor descriptor(path);
  if (descriptor.number < 0)
    return cannotOpen(path);
  struct stat status;
  if (::fstat(descriptor.number, &status) != 0 || !S_ISREG(status.st_mode))
    return makeError(ErrorCode::Unsupported, "{}: not a regular file", path.string());

  MappedFile file;
  file.name = path;
  if (status.st_size != 0) { // mmap refuses a length of 0
    auto size = static_cast<size_t>(status.st_size);
    void *address = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, descriptor.number, 0);
    if (address == MAP_FAILED)
      return cannotMap(path, size);
    file.pages = {address, size};
  }
  return file;
}

void MappedFile::release(std::span<const std::byte> part) const {
  // Whole pages inside the part only: a page shared with a neighbour may be in use.
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  auto begin = (reinterpret_cast<uintptr_t>(part.data()) + page - 1) / page * page;
  auto end = reinterpret_cast<uintptr_t>(part.data() + part.size()) / page * page;
  if (begin < end) // Advice only: nothing depends on its success.
    (void)::madvise(reinterpret_cast<void *>(begin), end - begin, MADV_DONTNEED);
}

Result<Buffer> Buffer::allocate(int64_t bytes, std::string_view what, std::string_view remedy) {
  // mmap takes no empty mapping, and a program may be given the address of an empty buffer.
  auto length = static_cast<size_t>((std::max(bytes, int64_t(1)) + (kPage - 1)) / kPage * kPage);
  void *address =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return makeError(ErrorCode::OutOfRange,
                     "{}: the system has not got the {} bytes that it needs ({}); {}", what, bytes,
                     std::strerror(errno), remedy);
  Buffer buffer;
  buffer.pages = {address, length};
  buffer.bytes = bytes;
  return buffer;
}

void Buffer::preferHugePages() const {
  if (pages.size() >= kLargePage)
    (void)::madvise(pages.data(), pages.size(), MADV_HUGEPAGE); // a hint: may be refused
}

Result<MappedRange> MappedRange::reserve(size_t bytes, std::string_view what) {
  MappedRange range;
  if (bytes == 0)
    return range;
  void *address =
      ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (address == MAP_FAILED)
    return makeError(ErrorCode::IO, "{}: cannot reserve {} bytes of addresses: {}", what, bytes,
                     std::strerror(errno));
  range.pages = {address, bytes};
  return range;
}

Result<void> MappedRange::map(size_t place, const MappedFile &file, size_t offset, size_t length) {
  if (length == 0)
    return {};
  Descriptor descriptor(file.path());
  if (descriptor.number < 0)
    return cannotOpen(file.path());
  struct stat status;
  // The file that was opened may have been replaced since.
  if (::fstat(descriptor.number, &status) != 0 ||
      static_cast<size_t>(status.st_size) != file.bytes().size())
    return makeError(ErrorCode::Corrupt, "{}: changed while it was opened", file.path().string());
  if (::mmap(pages.data() + place, length, PROT_READ, MAP_PRIVATE | MAP_FIXED, descriptor.number,
             static_cast<off_t>(offset)) == MAP_FAILED)
    return cannotMap(file.path(), length);
  return {};
}

/// Puts a copy of `length` bytes in the place of `at`, both multiples of a large page.
static bool moveToLargePages(std::byte *at, size_t length) {
  void *found = ::mmap(nullptr, length + kLargePage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (found == MAP_FAILED)
    return false;
  const Pages all(found, length + kLargePage);
  auto *copy = reinterpret_cast<std::byte *>((reinterpret_cast<uintptr_t>(found) + kLargePage - 1) /
                                             kLargePage * kLargePage);
  (void)::madvise(copy, length, MADV_HUGEPAGE); // a hint: may be refused
  std::memcpy(copy, at, length);
  // What is moved stays reserved, so that nobody else gets the addresses that are given back here.
  constexpr int flags = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
  return ::mprotect(copy, length, PROT_READ) == 0 &&
         ::mremap(copy, length, length, flags, at) != MAP_FAILED;
}

void MappedRange::moveToLargePages() {
  if (pages.size() < 2 * kLargePage) // which has one, wherever it begins
    return;
  constexpr size_t piece = 8 * kLargePage; // so much is there twice for each thread
  const auto address = reinterpret_cast<uintptr_t>(pages.data());
  const size_t first = (address + kLargePage - 1) / kLargePage * kLargePage - address;
  const size_t end = (address + pages.size()) / kLargePage * kLargePage - address;
  const auto pieces = static_cast<int64_t>((end - first + piece - 1) / piece);
  parallelFor(pieces, static_cast<unsigned>(availableThreads()), [&](int64_t index) {
    const size_t at = first + static_cast<size_t>(index) * piece;
    (void)easyquant::moveToLargePages(pages.data() + at, std::min(piece, end - at));
  });
}

} // namespace easyquant
