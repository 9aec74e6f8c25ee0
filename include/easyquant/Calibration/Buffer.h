//===- Buffer.h - Large memory that is given back -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_BUFFER_H
#define EASYQUANT_CALIBRATION_BUFFER_H

#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>

namespace easyquant::calibration {

/// Zeroed, page-aligned memory mapped from the system. Unlike the heap's it leaves the resident set
/// when it is freed, which is what "one layer in memory at a time" rests on.
class Buffer {
public:
  Buffer() = default;
  /// Errors: OutOfRange (there is not that much memory).
  static Result<Buffer> allocate(int64_t bytes);
  Buffer(Buffer &&other) noexcept;
  Buffer &operator=(Buffer &&other) noexcept;
  ~Buffer();

  int64_t size() const { return bytes; }
  template <typename T = std::byte> T *data() const { return reinterpret_cast<T *>(address); }

private:
  void *address = nullptr;
  int64_t bytes = 0;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_CALIBRATION_BUFFER_H
