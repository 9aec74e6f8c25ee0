//===- Buffer.cpp - Large memory that is given back -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Calibration/Buffer.h"

#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <utility>

using namespace easyquant;
using namespace easyquant::calibration;

Result<Buffer> Buffer::allocate(int64_t bytes) {
  Buffer buffer;
  if (bytes == 0)
    return buffer;
  void *address =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (address == MAP_FAILED)
    return makeError(ErrorCode::OutOfRange,
                     "{} bytes of memory for calibration were refused: {}; use fewer or shorter "
                     "samples",
                     bytes, std::strerror(errno));
  buffer.address = address;
  buffer.bytes = bytes;
  return buffer;
}

Buffer::Buffer(Buffer &&other) noexcept
    : address(std::exchange(other.address, nullptr)), bytes(std::exchange(other.bytes, 0)) {}

Buffer &Buffer::operator=(Buffer &&other) noexcept {
  std::swap(address, other.address);
  std::swap(bytes, other.bytes);
  return *this;
}

Buffer::~Buffer() {
  if (address)
    ::munmap(address, bytes);
}
