//===- Agreement.cpp - Whether all ranks do the same work -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Agreement.h"

#include "easyquant/Support/Checksum.h"

#include <algorithm>
#include <array>

namespace easyquant::comm {

namespace {
/// 32 hex digits, as they are printed.
using Digest = std::array<char, 32>;

Digest digestOf(std::span<const std::byte> bytes) {
  Digest digest;
  std::ranges::copy(checksumOf(bytes), digest.begin());
  return digest;
}

std::string_view textOf(const Digest &digest) { return {digest.data(), digest.size()}; }
} // namespace

/// The value that most ranks have, or that of rank 0 where no value has more.
static const Digest &mostCommon(std::span<const Digest> digests) {
  const auto votes = [&](const Digest &digest) { return std::ranges::count(digests, digest); };
  const Digest *best = digests.data();
  for (const Digest &digest : digests)
    if (votes(digest) > votes(*best))
      best = &digest;
  return *best;
}

static Result<void> compare(Communicator &communicator, std::string_view what,
                            std::span<const Digest> digests) {
  const Digest &expected = mostCommon(digests);
  std::string others;
  for (size_t rank = 0; rank < digests.size(); ++rank)
    if (digests[rank] != expected)
      others +=
          fmt::format("{}rank {} has {}", others.empty() ? "" : ", ", rank, textOf(digests[rank]));
  if (others.empty())
    return {};
  return makeError(ErrorCode::InvalidArgument,
                   "rank {} of {}: ranks disagree on {}: {}, the others have {} (XXH3-128); start "
                   "every rank with the same one",
                   communicator.rank(), communicator.size(), what, others, textOf(expected));
}

Result<void> agree(Communicator &communicator, std::span<const Agreed> subjects) {
  const auto size = static_cast<size_t>(communicator.size());
  const auto own = static_cast<size_t>(communicator.rank());
  // The subjects' names first: ranks that compare other things would compare apples with pears.
  std::string names;
  for (const Agreed &subject : subjects)
    names.append(subject.what).push_back('\n');
  std::vector<Digest> all(size);
  all[own] = digestOf(std::as_bytes(std::span(names)));
  const auto gather = [&] {
    return communicator.allGather(std::span(all.data()->data(), all.size() * sizeof(Digest)), {},
                                  "agreement");
  };
  if (Result<void> gathered = gather(); !gathered)
    return gathered;
  if (Result<void> same = compare(communicator, "what has to be the same (their versions)", all);
      !same)
    return same;

  std::vector<Digest> mine;
  mine.reserve(subjects.size());
  for (const Agreed &subject : subjects)
    mine.push_back(digestOf(subject.bytes));
  all.assign(size * subjects.size(), {});
  std::ranges::copy(mine, all.begin() + static_cast<ptrdiff_t>(own * subjects.size()));
  if (!subjects.empty())
    if (Result<void> gathered = gather(); !gathered)
      return gathered;
  for (size_t i = 0; i < subjects.size(); ++i) {
    std::vector<Digest> digests;
    for (size_t rank = 0; rank < size; ++rank)
      digests.push_back(all[rank * subjects.size() + i]);
    if (Result<void> same = compare(communicator, subjects[i].what, digests); !same)
      return same;
  }
  return {};
}

} // namespace easyquant::comm
