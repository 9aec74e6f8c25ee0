//===- Bucket.h - Many small buffers in one collective ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a small all-reduce costs is its latency: those of many buffers are done in one. A bucket is
// filled once and used again and again.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_COMM_BUCKET_H
#define EASYQUANT_COMM_BUCKET_H

#include "easyquant/Comm/Communicator.h"

#include <algorithm>

namespace easyquant::comm {

/// Buffers of host memory of one type, which are reduced in the same way.
template <typename T> class Bucket {
public:
  /// Every rank adds buffers of the same sizes in the same order. They stay where they are.
  void add(std::span<T> buffer) {
    buffers.push_back(buffer);
    if (buffer.size() == 1)
      singles.push_back(buffer.data());
    count += buffer.size();
  }
  size_t size() const { return buffers.size(); }

  /// Takes the buffers' values; they may change until `wait` puts the results there. One at a time.
  Result<Request> start(Communicator &communicator, Reduction reduction, Order order = Order::Any,
                        std::string_view site = {}) {
    staged.resize(count);
    T *to = staged.data();
    if (singles.size() == buffers.size()) {
      T *const *from = singles.data();
#pragma clang loop unroll_count(8)
      for (size_t i = 0; i < count; ++i)
        to[i] = *from[i];
    } else {
      for (const std::span<T> &buffer : buffers)
        to = std::copy(buffer.begin(), buffer.end(), to);
    }
    return communicator.start({.call = Call::AllReduce,
                               .type = elementTypeOf<T>(),
                               .reduction = reduction,
                               .order = order,
                               .data = staged.data(),
                               .count = static_cast<int64_t>(staged.size()),
                               .site = site});
  }

  /// The buffers keep their values if it fails.
  Result<void> wait(Communicator &communicator, Request request) {
    if (Result<void> waited = communicator.wait(request); !waited)
      return waited;
    const T *from = staged.data();
    if (singles.size() == buffers.size()) {
      T *const *to = singles.data();
#pragma clang loop unroll_count(8)
      for (size_t i = 0; i < count; ++i)
        *to[i] = from[i];
      return {};
    }
    for (const std::span<T> &buffer : buffers) {
      std::copy_n(from, buffer.size(), buffer.begin());
      from += buffer.size();
    }
    return {};
  }

  Result<void> allReduce(Communicator &communicator, Reduction reduction, Order order = Order::Any,
                         std::string_view site = {}) {
    Result<Request> request = start(communicator, reduction, order, site);
    if (!request)
      return Unexpected(request.error());
    return wait(communicator, *request);
  }

private:
  std::vector<std::span<T>> buffers;
  std::vector<T> staged;
  std::vector<T *> singles; ///< the buffers of one element: where all are, no lengths are looked at
  size_t count = 0;
};

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_BUCKET_H
