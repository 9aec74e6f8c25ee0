//===- _ranks.cpp - Processes that evaluate one artifact together ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "_runtime.h"

#include "easyquant/Comm/Agreement.h"
#include "easyquant/Comm/Open.h"

#include <numeric>

using namespace easyquant;
using namespace easyquant::python;

namespace {

template <typename Call> auto withoutGIL(Call call) {
  nb::gil_scoped_release release;
  return call();
}

template <typename T> T valueOf(Result<T> result) {
  if (!result)
    raise(static_cast<eq_error_code>(result.error().code), result.error().message);
  if constexpr (!std::is_void_v<T>)
    return std::move(*result);
}

/// Python's handlers of signals wait while a collective does; a launcher ends ranks by SIGTERM.
class JoinedRanks {
public:
  JoinedRanks(const std::string &kind, double seconds) {
    comm::Placement placement;
    if (kind != "none")
      placement = valueOf(comm::findPlacement());
    comm::OpenOptions options;
    options.kind = kind == "mpi"    ? comm::Kind::MPI
                   : kind == "nccl" ? comm::Kind::NCCL
                                    : comm::Kind::Auto;
    options.limits.timeout = std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000));
    communicator = valueOf(withoutGIL([&] { return comm::openCommunicator(placement, options); }));
  }

  int rank() const { return communicator->rank(); }
  int size() const { return communicator->size(); }

  void agree(const std::vector<std::pair<std::string, std::string>> &subjects) {
    std::vector<comm::Agreed> agreed;
    for (const auto &[what, text] : subjects)
      agreed.push_back(comm::Agreed::of(what, text));
    valueOf(withoutGIL([&] { return comm::agree(*communicator, agreed); }));
  }

  std::vector<nb::bytes> gather(const nb::bytes &own) {
    std::vector<int64_t> counts(static_cast<size_t>(size()));
    counts[static_cast<size_t>(rank())] = static_cast<int64_t>(own.size());
    valueOf(withoutGIL([&] { return communicator->allGather(std::span(counts)); }));
    std::vector<char> all(
        static_cast<size_t>(std::accumulate(counts.begin(), counts.end(), int64_t(0))));
    const auto begin = std::accumulate(counts.begin(), counts.begin() + rank(), int64_t(0));
    std::copy_n(own.c_str(), own.size(), all.begin() + begin);
    valueOf(withoutGIL(
        [&] { return communicator->allGather(std::span(all), std::span<const int64_t>(counts)); }));
    std::vector<nb::bytes> parts;
    const char *next = all.data();
    for (int64_t count : counts) {
      parts.emplace_back(next, static_cast<size_t>(count));
      next += count;
    }
    return parts;
  }

  void abort(const std::string &reason) {
    if (!communicator->failure())
      communicator->abort({ErrorCode::IO, reason});
    withoutGIL([] { comm::letOthersSpeak(); });
  }
  void close() {
    valueOf(withoutGIL([&] { return communicator->close(); }));
  }

private:
  std::unique_ptr<comm::Communicator> communicator;
};

} // namespace

void python::defineRanks(nb::module_ &m) {
  using namespace nb::literals;
  nb::class_<JoinedRanks>(
      m, "Ranks",
      "The processes that a launcher started, this one among them; it opens MPI "
      "or NCCL. All methods are collective.")
      .def(nb::init<const std::string &, double>(), "comm"_a = "auto", "timeout"_a = 600.0,
           "comm: \"auto\", \"mpi\", \"nccl\", or \"none\" for one rank. timeout: the seconds that "
           "a rank waits for the others.")
      .def_prop_ro("rank", &JoinedRanks::rank)
      .def_prop_ro("size", &JoinedRanks::size)
      .def("agree", &JoinedRanks::agree, "subjects"_a,
           "Pairs of a name and a text that must be the same on every rank, else an Error.")
      .def("gather", &JoinedRanks::gather, "own"_a, "The bytes of all ranks, in rank order.")
      .def("abort", &JoinedRanks::abort, "reason"_a,
           "Of a rank that gives up: tells the others why, and lets them print first.")
      .def("close", &JoinedRanks::close, "The good end.");
}
