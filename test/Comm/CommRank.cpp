//===- CommRank.cpp - One rank of a test of communicators -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// comm-rank [--comm auto|nccl|mpi] [--timeout MILLISECONDS] [--odd RANK] WHAT [ARGUMENTS]
//   sums                 all collectives, against what they must give; prints a checksum of results
//   stop, die, leave     what rank --odd does before a collective of the others
//   agree                rank --odd has another recipe
//   file FROM TO         a file for all ranks: TO.RANK
//   device               host memory as device memory, for the stand-in of NCCL
//   mismatch             rank --odd starts another collective on the device
//
//===----------------------------------------------------------------------===//

#include "Reduce.h"
#include "easyquant/Comm/Agreement.h"
#include "easyquant/Comm/BroadcastFile.h"
#include "easyquant/Comm/Bucket.h"
#include "easyquant/Comm/Open.h"
#include "easyquant/Support/Checksum.h"

#include <csignal>
#include <cstdlib>
#include <iostream>

using namespace easyquant;
using namespace easyquant::comm;

static std::atomic<bool> interrupted = false;

namespace {

struct Arguments {
  std::string what;
  std::vector<std::string> more;
  int odd = -1;
  OpenOptions options;
};

/// Results that every rank must have to the bit.
struct Results {
  Checksum checksum;
  template <typename T> void add(const std::vector<T> &values) {
    checksum.update(values.data(), values.size() * sizeof(T));
  }
};

template <typename T> std::vector<T> valuesOf(int rank, size_t count) {
  std::vector<T> values(count);
  uint64_t state = static_cast<uint64_t>(rank) + 1;
  for (T &value : values) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    value = static_cast<T>(static_cast<double>(state >> 40) / 997 - 8000);
  }
  return values;
}

Unexpected wrong(const Communicator &communicator, std::string_view what) {
  return makeError(ErrorCode::Corrupt, "rank {}: wrong result of {}", communicator.rank(), what);
}

/// All-reduces of every type, reduction and order, below and above what MPI adds itself.
template <typename T> Result<void> checkReduces(Communicator &communicator, Results &results) {
  for (size_t count : {size_t(1), size_t(1000), size_t(20000)})
    for (Reduction reduction : {Reduction::Sum, Reduction::Min, Reduction::Max})
      for (Order order : {Order::Fixed, Order::Any}) {
        std::vector<std::vector<T>> all;
        std::vector<void *> contributions;
        for (int rank = 0; rank < communicator.size(); ++rank)
          all.push_back(valuesOf<T>(rank, count));
        std::vector<T> values = all[static_cast<size_t>(communicator.rank())];
        for (auto &part : all)
          contributions.push_back(part.data());
        reduceInOrder(elementTypeOf<T>(), reduction, static_cast<int64_t>(count), contributions);
        if (Result<void> reduced = communicator.allReduce(std::span(values), reduction, order);
            !reduced)
          return reduced;
        for (size_t i = 0; i < count; ++i) {
          const double close = order == Order::Fixed ? 0 : 1e-4 * 8000;
          if (!(std::abs(double(values[i]) - double(all[0][i])) <= close))
            return wrong(communicator, "all-reduce");
        }
        results.add(values);
      }
  return {};
}

Result<void> checkOthers(Communicator &communicator, Results &results) {
  const auto size = static_cast<size_t>(communicator.size());
  std::vector<int64_t> counts(size), gathered;
  for (size_t rank = 0; rank < size; ++rank)
    counts[rank] = static_cast<int64_t>(rank * 3);
  std::vector<int64_t> expected;
  for (size_t rank = 0; rank < size; ++rank)
    for (int64_t value : valuesOf<int64_t>(int(rank), static_cast<size_t>(counts[rank]))) {
      expected.push_back(value);
      gathered.push_back(int(rank) == communicator.rank() ? value : 0);
    }
  if (Result<void> done = communicator.allGather(std::span(gathered), counts); !done)
    return done;
  if (gathered != expected)
    return wrong(communicator, "all-gather");
  results.add(gathered);
  const int root = communicator.size() - 1;
  std::string text = communicator.rank() == root ? "last" : "none";
  if (Result<void> done = communicator.broadcast(std::span(text), root); !done)
    return done;
  if (text != "last")
    return wrong(communicator, "broadcast");
  std::vector<float> scales(224, static_cast<float>(communicator.rank()));
  Bucket<float> bucket;
  for (float &scale : scales)
    bucket.add(std::span(&scale, 1));
  if (Result<void> done = bucket.allReduce(communicator, Reduction::Max); !done)
    return done;
  if (scales != std::vector<float>(224, static_cast<float>(root)))
    return wrong(communicator, "a bucket");
  return communicator.barrier();
}

Result<void> sums(Communicator &communicator, const Arguments &arguments) {
  Results results;
  Result<void> done = checkReduces<float>(communicator, results);
  if (done)
    done = checkReduces<double>(communicator, results);
  if (done)
    done = checkReduces<int32_t>(communicator, results);
  if (done)
    done = checkReduces<int64_t>(communicator, results);
  if (done)
    done = checkOthers(communicator, results);
  if (done)
    std::cout << fmt::format("rank {} of {} by {}: {}\n", communicator.rank(), communicator.size(),
                             communicator.backend(), results.checksum.hex())
              << std::flush;
  return done;
}

/// One rank stops, dies or leaves where the others reduce.
Result<void> lose(Communicator &communicator, const Arguments &arguments) {
  std::vector<float> values(1000);
  if (Result<void> first = communicator.allReduce(std::span(values), Reduction::Sum); !first)
    return first;
  if (communicator.rank() == arguments.odd) {
    if (arguments.what == "leave")
      return makeError(ErrorCode::IO, "rank {}: the disk is full", arguments.odd);
    ::raise(arguments.what == "stop" ? SIGSTOP : SIGKILL);
  }
  return communicator.allReduce(std::span(values), Reduction::Sum, Order::Any, "o_proj");
}

Result<void> agreeOn(Communicator &communicator, const Arguments &arguments) {
  const bool odd = communicator.rank() == arguments.odd;
  const Agreed subjects[] = {Agreed::of("the model", "m"),
                             Agreed::of("the recipe", odd ? "W4A16" : "W8A8")};
  return agree(communicator, subjects);
}

Result<void> sendFile(Communicator &communicator, const Arguments &arguments) {
  return broadcastFile(communicator, arguments.more[0],
                       fmt::format("{}.{}", arguments.more[1], communicator.rank()),
                       /*root=*/0, 1 << 16);
}

/// Device memory of the stand-in is host memory.
Result<void> device(Communicator &communicator, const Arguments &arguments) {
  int streams[2] = {};
  const int rank = communicator.rank(), size = communicator.size();
  Collective collective = {.call = Call::AllReduce,
                           .type = ElementType::F32,
                           .reduction = Reduction::Max,
                           .memory = Memory::Device,
                           .stream = &streams[0]};
  std::vector<float> values = {float(rank), float(-rank)};
  collective.data = values.data();
  collective.count = arguments.what == "mismatch" && rank == arguments.odd ? 1 : 2;
  if (Result<void> done = communicator.run(collective); !done)
    return done;
  if (values != std::vector<float>{float(size - 1), 0})
    return wrong(communicator, "all-reduce on the device");
  std::vector<int64_t> counts;
  std::vector<int32_t> gathered, expected;
  for (int peer = 0; peer < size; ++peer) {
    counts.push_back(peer + 1);
    expected.insert(expected.end(), size_t(peer) + 1, peer);
    gathered.insert(gathered.end(), size_t(peer) + 1, peer == rank ? peer : -1);
  }
  collective = {.call = Call::AllGather,
                .type = ElementType::I32,
                .memory = Memory::Device,
                .data = gathered.data(),
                .count = static_cast<int64_t>(gathered.size()),
                .counts = counts,
                .stream = &streams[1]};
  if (Result<void> done = communicator.run(collective); !done)
    return done;
  if (gathered != expected)
    return wrong(communicator, "all-gather on the device");
  // Refused before anything is asked of NCCL: floats in its order are not in ours.
  collective = {.call = Call::AllReduce,
                .type = ElementType::F32,
                .order = Order::Fixed,
                .memory = Memory::Device,
                .data = values.data(),
                .count = 2,
                .stream = &streams[0]};
  if (Result<void> refused = communicator.run(collective);
      refused || refused.error().code != ErrorCode::Unsupported)
    return wrong(communicator, "a sum in fixed order");
  collective.order = Order::Any;
  if (Result<void> done = communicator.enqueue(collective); !done)
    return done;
  return communicator.check();
}

Result<Arguments> readArguments(int argc, char **argv) {
  Arguments arguments;
  const std::vector<std::string> words(argv + 1, argv + argc);
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "--comm") {
      const std::string kind = words.at(++i);
      arguments.options.kind = kind == "nccl" ? Kind::NCCL : kind == "mpi" ? Kind::MPI : Kind::Auto;
    } else if (words[i] == "--timeout") {
      arguments.options.limits.timeout = std::chrono::milliseconds(std::stoi(words.at(++i)));
    } else if (words[i] == "--odd") {
      arguments.odd = std::stoi(words.at(++i));
    } else if (arguments.what.empty()) {
      arguments.what = words[i];
    } else {
      arguments.more.push_back(words[i]);
    }
  }
  arguments.options.limits.interrupted = &interrupted;
  arguments.options.streamIsDone = [](void *) -> Result<bool> { return true; };
  return arguments;
}

Result<void> run(const Arguments &arguments) {
  Result<std::unique_ptr<Communicator>> communicator = openCommunicator(arguments.options);
  if (!communicator)
    return Unexpected(communicator.error());
  const std::string &what = arguments.what;
  const auto body = what == "sums"                             ? sums
                    : what == "agree"                          ? agreeOn
                    : what == "file"                           ? sendFile
                    : (what == "device" || what == "mismatch") ? device
                                                               : lose;
  Result<void> done = body(**communicator, arguments);
  if (!done) {
    (*communicator)->abort(done.error());
    return done;
  }
  return (*communicator)->close();
}

} // namespace

int main(int argc, char **argv) {
  std::signal(SIGTERM, [](int) { interrupted = true; });
  Result<Arguments> arguments = readArguments(argc, argv);
  Result<void> done = run(*arguments);
  if (done)
    return 0;
  std::cerr << "error: " + done.error().message + "\n" << std::flush;
  letOthersSpeak();
  return 1;
}
