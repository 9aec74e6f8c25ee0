//===- Agreement.h - Whether all ranks do the same work ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_COMM_AGREEMENT_H
#define EASYQUANT_COMM_AGREEMENT_H

#include "easyquant/Comm/Communicator.h"

namespace easyquant::comm {

/// What must be the same on every rank.
struct Agreed {
  std::string_view what; ///< "the recipe": for the message
  std::span<const std::byte> bytes;

  static Agreed of(std::string_view what, std::string_view text) {
    return {what, std::as_bytes(std::span(text))};
  }
};

/// Compares the XXH3-128 hashes of all of `subjects` before any work is done. Collective. Errors:
/// InvalidArgument, the same on every rank but for its own number: which ranks differ in which
/// subject from most of them (from rank 0, where no value has more than others); those of the
/// communicator.
Result<void> agree(Communicator &communicator, std::span<const Agreed> subjects);

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_AGREEMENT_H
