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

/// Buffers of host memory of one type, which are reduced in the same way. Those that are added in
/// the order in which they lie in memory, without gaps, cost least.
template <typename T> class Bucket {
public:
  /// Every rank adds buffers of the same sizes in the same order. They stay where they are.
  void add(std::span<T> buffer) {
    if (!runs.empty() && runs.back().data() + runs.back().size() == buffer.data())
      runs.back() = {runs.back().data(), runs.back().size() + buffer.size()};
    else
      runs.push_back(buffer);
    ++buffers;
    count += buffer.size();
  }
  size_t size() const { return buffers; }

  /// Takes the buffers' values; they may change until `wait` puts the results there. One at a time.
  Result<Request> start(Communicator &communicator, Reduction reduction, Order order = Order::Any,
                        std::string_view site = {}) {
    staged.resize(count);
    T *to = staged.data();
    for (const std::span<T> &run : runs)
      to = copy(run.data(), run.size(), to);
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
    for (const std::span<T> &run : runs) {
      copy(from, run.size(), run.data());
      from += run.size();
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
  /// Many are single numbers, for which calling memmove takes longer than copying.
  static T *copy(const T *from, size_t length, T *to) {
    if (length != 1)
      return std::copy_n(from, length, to);
    *to = *from;
    return to + 1;
  }

  std::vector<std::span<T>> runs; ///< buffers that lie behind one another are one
  std::vector<T> staged;
  size_t count = 0, buffers = 0;
};

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_BUCKET_H
