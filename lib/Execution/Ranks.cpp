//===- Ranks.cpp - Processes that compile one model together --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/Ranks.h"

#include "easyquant/Comm/BroadcastFile.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Support/Folders.h"

#include "mlir/IR/DialectInterface.h"

#include <filesystem>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;

namespace easyquant::execution {
/// What a context knows of its ranks.
struct RanksInterface : DialectInterface::Base<RanksInterface> {
  RanksInterface(Dialect *dialect, comm::Communicator *communicator)
      : Base(dialect), communicator(communicator) {}
  comm::Communicator *communicator;
};
} // namespace easyquant::execution

/// A message at a time: MPI counts bytes in 31 bits.
static constexpr int64_t kMessageBytes = int64_t(64) << 20;

Ranks Ranks::of(MLIRContext *context) {
  auto *dialect = context->getLoadedDialect<equant::EquantDialect>();
  auto *joined = dialect ? dialect->getRegisteredInterface<RanksInterface>() : nullptr;
  return Ranks(joined && joined->communicator->size() > 1 ? joined->communicator : nullptr);
}

Result<void> Ranks::join(MLIRContext &context, comm::Communicator &communicator) {
  if (kSampleShares % communicator.size() != 0)
    return makeError(ErrorCode::InvalidArgument,
                     "rank {} of {}: found {} ranks, expected 1, 2, 4 or {}, among which samples "
                     "can be shared out evenly; start as many",
                     communicator.rank(), communicator.size(), communicator.size(), kSampleShares);
  context.getOrLoadDialect<equant::EquantDialect>()->addInterface<RanksInterface>(&communicator);
  return {};
}

Result<void> Ranks::agree(std::span<const comm::Agreed> subjects) const {
  return communicator ? comm::agree(*communicator, subjects) : Result<void>();
}

Result<int64_t> Ranks::least(int64_t value) const {
  if (communicator)
    if (auto done = communicator->allReduce(std::span(&value, 1), comm::Reduction::Min); !done)
      return Unexpected(done.error());
  return value;
}

Result<bool> Ranks::all(bool here) const {
  return least(here).map([](int64_t value) { return value == 1; });
}

Result<void> Ranks::broadcastBytes(Bytes &bytes, int root) const {
  auto size = static_cast<int64_t>(bytes.size());
  if (auto done = communicator->broadcast(std::span(&size, 1), root); !done)
    return done;
  bytes.resize(static_cast<size_t>(size));
  for (int64_t at = 0; at < size; at += kMessageBytes)
    if (auto done = communicator->broadcast(
            std::span(bytes).subspan(at, std::min(kMessageBytes, size - at)), root);
        !done)
      return done;
  return {};
}

Result<std::vector<Bytes>> Ranks::gather(Bytes own) const {
  std::vector<Bytes> all(static_cast<size_t>(size()));
  all[static_cast<size_t>(rank())] = std::move(own);
  for (int root = 0; communicator && root < size(); ++root)
    if (auto done = broadcastBytes(all[static_cast<size_t>(root)], root); !done)
      return Unexpected(done.error());
  return all;
}

Result<Bytes> Ranks::exchange(const Bytes &own, int partner) const {
  if (!communicator->hasPointToPoint()) {
    Bytes theirs;
    for (int root = 0; root < size(); ++root) {
      Bytes bytes = root == rank() ? own : Bytes();
      if (auto done = broadcastBytes(bytes, root); !done)
        return Unexpected(done.error());
      if (root == partner)
        theirs = std::move(bytes);
    }
    return theirs;
  }
  // Both ways at once.
  auto swap = [&](const void *from, void *to, int64_t sent, int64_t received) -> Result<void> {
    const auto start = [&](comm::Call call, void *data, int64_t count) {
      return communicator->start(
          {.call = call, .data = data, .count = count, .peer = partner, .site = "sums"});
    };
    auto receive = start(comm::Call::Receive, to, received);
    auto send = receive ? start(comm::Call::Send, const_cast<void *>(from), sent) : receive;
    if (!send)
      return Unexpected(send.error());
    if (auto done = communicator->wait(*receive); !done)
      return done;
    return communicator->wait(*send);
  };
  const auto sent = static_cast<int64_t>(own.size());
  int64_t received = 0;
  if (auto done = swap(&sent, &received, sizeof sent, sizeof received); !done)
    return Unexpected(done.error());
  Bytes theirs(static_cast<size_t>(received));
  for (int64_t at = 0; at < std::max(sent, received); at += kMessageBytes) {
    const int64_t out = std::clamp<int64_t>(sent - at, 0, kMessageBytes),
                  in = std::clamp<int64_t>(received - at, 0, kMessageBytes);
    if (auto done =
            swap(out ? own.data() + at : nullptr, in ? theirs.data() + at : nullptr, out, in);
        !done)
      return Unexpected(done.error());
  }
  return theirs;
}

Result<void> Ranks::broadcast(std::span<float> values, int root) const {
  constexpr size_t kElements = kMessageBytes / sizeof(float);
  for (size_t at = 0; communicator && at < values.size(); at += kElements)
    if (auto done = communicator->broadcast(
            values.subspan(at, std::min(kElements, values.size() - at)), root);
        !done)
      return done;
  return {};
}

Result<bool> Ranks::shareFile(const std::string &path, bool exists) const {
  if (!communicator)
    return exists;
  std::vector<int64_t> have(static_cast<size_t>(size()));
  have[static_cast<size_t>(rank())] = exists;
  if (auto done = communicator->allGather(std::span(have)); !done)
    return Unexpected(done.error());
  const auto first = std::ranges::find(have, 1);
  if (first == have.end())
    return false;
  if (std::ranges::find(have, 0) == have.end())
    return true;
  const std::string destination = exists ? "" : path;
  if (!destination.empty())
    if (auto made = makeFolders(std::filesystem::path(path).parent_path()); !made)
      return Unexpected(made.error());
  if (auto done = comm::broadcastFile(*communicator, path, destination,
                                      static_cast<int>(first - have.begin()));
      !done)
    return Unexpected(done.error());
  return true;
}
