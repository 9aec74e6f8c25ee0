//===- Bytes.h - Structures as bytes, for other ranks -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What ranks of one program hand to each other, not a file format: numbers are as they are in
// memory. A structure lists what it holds in `fields`:
//
//      template <typename Visit> void fields(Visit &&visit) { visit(sums), visit(rows); }
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_BYTES_H
#define EASYQUANT_SUPPORT_BYTES_H

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace easyquant {

using Bytes = std::vector<std::byte>;

/// A sequence whose elements are written one behind the other: a vector or a string.
template <typename T>
concept ByteSequence = requires(T &value, size_t size) {
  typename T::value_type;
  value.resize(size);
};

class ByteWriter {
public:
  template <typename T> void operator()(T &value) {
    if constexpr (requires { value.fields(*this); }) {
      value.fields(*this);
    } else if constexpr (ByteSequence<T>) {
      uint64_t size = value.size();
      (*this)(size);
      if constexpr (std::is_trivially_copyable_v<typename T::value_type>)
        append(std::as_bytes(std::span(value)));
      else
        for (auto &element : value)
          (*this)(element);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      append(std::as_bytes(std::span(&value, 1)));
    }
  }
  Bytes take() && { return std::move(bytes); }

private:
  void append(std::span<const std::byte> part) {
    bytes.insert(bytes.end(), part.begin(), part.end());
  }
  Bytes bytes;
};

/// Reads what ByteWriter wrote, in the same order. Where bytes are missing it reads nothing more,
/// and `isWhole` is false.
class ByteReader {
public:
  explicit ByteReader(std::span<const std::byte> bytes) : rest(bytes) {}

  template <typename T> void operator()(T &value) {
    if constexpr (requires { value.fields(*this); }) {
      value.fields(*this);
    } else if constexpr (ByteSequence<T>) {
      uint64_t size = 0;
      (*this)(size);
      // Each element has a byte at least.
      if (size > rest.size()) {
        good = false;
        return;
      }
      value.resize(size);
      if constexpr (std::is_trivially_copyable_v<typename T::value_type>)
        take(std::as_writable_bytes(std::span(value)));
      else
        for (auto &element : value)
          (*this)(element);
    } else {
      static_assert(std::is_trivially_copyable_v<T>);
      take(std::as_writable_bytes(std::span(&value, 1)));
    }
  }
  /// Were all bytes there, and are all read?
  bool isWhole() const { return good && rest.empty(); }

private:
  void take(std::span<std::byte> to) {
    good = good && to.size() <= rest.size();
    if (!good || to.empty())
      return;
    std::memcpy(to.data(), rest.data(), to.size());
    rest = rest.subspan(to.size());
  }
  std::span<const std::byte> rest;
  bool good = true;
};

template <typename T> Bytes bytesOf(T &value) {
  ByteWriter writer;
  writer(value);
  return std::move(writer).take();
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_BYTES_H
