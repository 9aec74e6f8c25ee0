//===- FakeNccl.cpp - NCCL without GPUs -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A libnccl.so.2 whose ranks are threads or processes of one machine, on host memory: put its
// folder into LD_LIBRARY_PATH. Its id names a file of shared memory. It is nonblocking: a call is
// done, as NCCL's may be, when ncclCommGetAsyncError says so. What real NCCL answers with a hang or
// with wrong numbers is an error here: ranks that differ in call, count, type, reduction, root or
// the number of the stream (streams are counted in the order in which a rank first uses them). The
// environment:
//   FAKE_NCCL_VERSION=21400    the library's version
//   FAKE_NCCL_FAIL=3           this rank's call 3, counted from 1, fails
//   FAKE_NCCL_LOG=FILE         a line for each call of this process, in the end
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"
#include "Reduce.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <fstream>
#include <sys/mman.h>
#include <unistd.h>

using namespace easyquant;
using namespace easyquant::comm::nccl;

namespace {

enum : Status { kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };
enum class Kind : int { AllReduce, AllGather, Broadcast, Init, Finalize };
constexpr const char *kNames[] = {"all-reduce", "all-gather", "broadcast", "init", "finalize"};
constexpr size_t kMostBytes = size_t(1) << 20;
constexpr int kMostRanks = 8;

struct CallRecord {
  Kind kind;
  DataType type;
  RedOp op;
  int root, stream, size;
  size_t count;
  bool operator==(const CallRecord &) const = default;
};

/// What one rank shows the others.
struct Seat {
  std::atomic<uint64_t> posted, finished;
  std::atomic<bool> aborted;
  CallRecord call;
  alignas(64) std::byte data[kMostBytes];
};
struct Table {
  Seat seats[kMostRanks];
};

size_t bytesOf(DataType type) {
  return type == kInt8 ? 1 : type == kInt32 || type == kFloat32 ? 4 : 8;
}

comm::ElementType elementOf(DataType type) {
  switch (type) {
  case kInt32:
    return comm::ElementType::I32;
  case kInt64:
    return comm::ElementType::I64;
  case kFloat32:
    return comm::ElementType::F32;
  case kFloat64:
    return comm::ElementType::F64;
  default:
    return comm::ElementType::Byte;
  }
}

long setting(const char *name, long otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtol(text, nullptr, 10) : otherwise;
}

struct Pending {
  CallRecord call;
  const void *from;
  void *to;
};

class FakeComm {
public:
  FakeComm(int rank, int size, const UniqueId &id) : rank(rank), size(size), name(id.bytes) {
    const int file = ::shm_open(name.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ::ftruncate(file, sizeof(Table)) != 0) {
      fail(kSystemError, "no shared memory");
      return;
    }
    void *memory = ::mmap(nullptr, sizeof(Table), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ::close(file);
    table = static_cast<Table *>(memory);
    ask({{Kind::Init, 0, 0, 0, 0, size, 0}, nullptr, nullptr});
  }
  ~FakeComm() {
    if (table)
      ::munmap(table, sizeof(Table));
    if (const char *path = std::getenv("FAKE_NCCL_LOG"))
      std::ofstream(path, std::ios::app) << log;
  }

  int streamNumber(Stream stream) {
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i] == stream)
        return static_cast<int>(i);
    streams.push_back(stream);
    return static_cast<int>(streams.size()) - 1;
  }

  Status ask(const Pending &call) {
    if (state != kSuccess && state != kInProgress)
      return state;
    if (++calls == setting("FAKE_NCCL_FAIL", -1))
      return fail(kRemoteError, "told to fail");
    if (!queue.empty() && !inGroup)
      return fail(kInvalidUsage, "a call while the last one is in progress");
    const size_t parts = call.call.kind == Kind::AllGather ? size_t(size) : 1;
    if (call.call.count * bytesOf(call.call.type) * parts > kMostBytes)
      return fail(kInvalidArgument, "this stand-in takes a mebibyte at most");
    log += fmt::format("rank {} {} count {} type {} op {} root {} stream {}\n", rank,
                       kNames[int(call.call.kind)], call.call.count, call.call.type, call.call.op,
                       call.call.root, call.call.stream);
    queue.push_back(call);
    state = kInProgress;
    return kInProgress;
  }

  Status advance() {
    while (state == kInProgress && !queue.empty() && step()) {
    }
    if (state == kInProgress && queue.empty())
      state = kSuccess;
    return state;
  }

  void abort() {
    if (table)
      table->seats[rank].aborted = true;
  }
  void remove() const { ::shm_unlink(name.c_str()); }

  std::string problem;
  bool inGroup = false;

private:
  Status fail(Status status, std::string why) {
    problem = fmt::format("rank {}: {}", rank, why);
    return state = status;
  }

  /// Whether one more call is done.
  bool step() {
    Seat &own = table->seats[rank];
    const Pending &pending = queue.front();
    const size_t bytes = pending.call.count * bytesOf(pending.call.type);
    for (int peer = 0; peer < size; ++peer)
      if (table->seats[peer].aborted)
        return fail(kRemoteError, fmt::format("rank {} has aborted", peer)), false;
    if (own.posted == done) {
      for (int peer = 0; peer < size; ++peer)
        if (table->seats[peer].finished < done)
          return false;
      own.call = pending.call;
      if (bytes > 0)
        std::memcpy(own.data, pending.from, bytes);
      own.posted = done + 1;
    }
    for (int peer = 0; peer < size; ++peer) {
      if (table->seats[peer].posted <= done)
        return false;
      const CallRecord &theirs = table->seats[peer].call;
      if (!(theirs == pending.call))
        return fail(kInvalidUsage,
                    fmt::format("{} of {} on stream {}, but rank {} {} of {} on stream {}",
                                kNames[int(pending.call.kind)], pending.call.count,
                                pending.call.stream, peer, kNames[int(theirs.kind)], theirs.count,
                                theirs.stream)),
               false;
    }
    take(pending, bytes);
    own.finished = ++done;
    queue.pop_front();
    return true;
  }

  void take(const Pending &pending, size_t bytes) {
    switch (pending.call.kind) {
    case Kind::AllReduce: {
      const auto op = pending.call.op == kSum   ? comm::Reduction::Sum
                      : pending.call.op == kMin ? comm::Reduction::Min
                                                : comm::Reduction::Max;
      std::vector<std::vector<std::byte>> copies;
      std::vector<void *> contributions;
      for (int peer = 0; peer < size; ++peer)
        copies.emplace_back(table->seats[peer].data, table->seats[peer].data + bytes);
      for (auto &copy : copies)
        contributions.push_back(copy.data());
      comm::reduceInOrder(elementOf(pending.call.type), op,
                          static_cast<int64_t>(pending.call.count), contributions);
      std::memcpy(pending.to, contributions[0], bytes);
      break;
    }
    case Kind::AllGather:
      for (int peer = 0; peer < size; ++peer)
        std::memcpy(static_cast<std::byte *>(pending.to) + size_t(peer) * bytes,
                    table->seats[peer].data, bytes);
      break;
    case Kind::Broadcast:
      std::memcpy(pending.to, table->seats[pending.call.root].data, bytes);
      break;
    case Kind::Init:
    case Kind::Finalize:
      break;
    }
  }

  const int rank, size;
  const std::string name;
  Table *table = nullptr;
  std::vector<Stream> streams;
  std::deque<Pending> queue;
  uint64_t done = 0;
  long calls = 0;
  Status state = kSuccess;
  std::string log;
};

FakeComm *of(Comm comm) { return reinterpret_cast<FakeComm *>(comm); }

/// Of the thread whose group it is.
thread_local int groupDepth = 0;
thread_local FakeComm *grouped = nullptr;

Status ask(Comm comm, const CallRecord &call, const void *from, void *to) {
  FakeComm *fake = of(comm);
  fake->inGroup = groupDepth > 0;
  if (groupDepth > 0)
    grouped = fake;
  return fake->ask({call, from, to});
}

} // namespace

extern "C" {

Status ncclGetVersion(int *version) {
  *version = static_cast<int>(setting("FAKE_NCCL_VERSION", 22800));
  return kSuccess;
}

Status ncclGetUniqueId(UniqueId *id) {
  static std::atomic<int> ids = 0;
  *id = {};
  std::snprintf(id->bytes, sizeof id->bytes, "/fake-nccl-%d-%d", int(::getpid()), ids++);
  return kSuccess;
}

Status ncclCommInitRankConfig(Comm *comm, int size, UniqueId id, int rank, Config *config) {
  if (config->magic != Config().magic || config->size != sizeof(Config) || config->blocking != 0 ||
      size > kMostRanks || rank < 0 || rank >= size)
    return kInvalidArgument;
  *comm = reinterpret_cast<Comm>(new FakeComm(rank, size, id));
  return kInProgress;
}

Status ncclCommGetAsyncError(Comm comm, Status *state) {
  *state = of(comm)->advance();
  return kSuccess;
}

Status ncclCommFinalize(Comm comm) {
  return ask(comm, {Kind::Finalize, 0, 0, 0, 0, 0, 0}, nullptr, nullptr);
}

Status ncclCommDestroy(Comm comm) {
  of(comm)->remove();
  delete of(comm);
  return kSuccess;
}

Status ncclCommAbort(Comm comm) {
  of(comm)->abort();
  return ncclCommDestroy(comm);
}

Status ncclGroupStart() {
  ++groupDepth;
  return kSuccess;
}

Status ncclGroupEnd() {
  if (--groupDepth > 0 || !grouped)
    return kSuccess;
  return std::exchange(grouped, nullptr)->advance();
}

Status ncclAllReduce(const void *from, void *to, size_t count, DataType type, RedOp op, Comm comm,
                     Stream stream) {
  return ask(comm, {Kind::AllReduce, type, op, 0, of(comm)->streamNumber(stream), 0, count}, from,
             to);
}

Status ncclAllGather(const void *from, void *to, size_t count, DataType type, Comm comm,
                     Stream stream) {
  return ask(comm, {Kind::AllGather, type, 0, 0, of(comm)->streamNumber(stream), 0, count}, from,
             to);
}

Status ncclBroadcast(const void *from, void *to, size_t count, DataType type, int root, Comm comm,
                     Stream stream) {
  return ask(comm, {Kind::Broadcast, type, 0, root, of(comm)->streamNumber(stream), 0, count}, from,
             to);
}

const char *ncclGetErrorString(Status status) {
  switch (status) {
  case kSuccess:
    return "no error";
  case kRemoteError:
    return "remote process exited or there was a network error";
  case kInvalidUsage:
    return "invalid usage";
  default:
    return "unhandled system error";
  }
}

const char *ncclGetLastError(Comm comm) { return comm ? of(comm)->problem.c_str() : ""; }

} // extern "C"
