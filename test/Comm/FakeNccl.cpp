//===- FakeNccl.cpp - NCCL without GPUs -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A libnccl.so.2 whose ranks are threads or processes of one machine, on host memory: put its
// folder into LD_LIBRARY_PATH. Its id names a file of shared memory. It is nonblocking: a call is
// done, as NCCL's may be, when ncclCommGetAsyncError says so. In a process with the CUDA driver of
// FakeCuda.cpp its collectives are on that one's memory, and are done where the stream comes to
// them, or the graph that they were captured into. What real NCCL answers with a hang or
// with wrong numbers is an error here: ranks that differ in call, count, type, reduction, root or
// the number of the stream (streams are counted in the order in which a rank first uses them). The
// environment:
//   FAKE_NCCL_VERSION=21400    the library's version
//   FAKE_NCCL_FAIL=3           this rank's call 3, counted from 1, fails
//   FAKE_NCCL_SLOW=50          milliseconds that this rank takes to say how a call stands
//   FAKE_NCCL_LOG=FILE         a line for each call of this process, in the end
//
//===----------------------------------------------------------------------===//

#include "Nccl.h"
#include "Reduce.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <fstream>
#include <memory>
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

/// FakeCuda.cpp, if it is the driver of this process.
struct StandInDriver {
  int (*enqueue)(void *stream, int (*work)(void *), void *argument) = nullptr;
  void (*read)(void *to, const void *from, size_t bytes) = nullptr;
  void (*write)(void *to, const void *from, size_t bytes) = nullptr;

  static const StandInDriver &get() {
    static const StandInDriver driver = [] {
      StandInDriver found;
      void *library = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
      auto find = [&](auto &function, const char *name) {
        if (library)
          function =
              reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
      };
      find(found.enqueue, "fakeCudaEnqueue");
      find(found.read, "fakeCudaRead");
      find(found.write, "fakeCudaWrite");
      return found;
    }();
    return driver;
  }
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
  }

  /// What is still in a stream then does nothing.
  void destroy() {
    state = kInvalidUsage;
    if (const char *path = std::getenv("FAKE_NCCL_LOG"))
      std::ofstream(path, std::ios::app) << log;
    ::shm_unlink(name.c_str());
  }

  int streamNumber(Stream stream) {
    for (size_t i = 0; i < streams.size(); ++i)
      if (streams[i] == stream)
        return static_cast<int>(i);
    streams.push_back(stream);
    return static_cast<int>(streams.size()) - 1;
  }

  Status ask(const Pending &call) {
    if (Status taken = take(call); taken != kSuccess)
      return taken;
    if (!queue.empty() && !inGroup)
      return fail(kInvalidUsage, "a call while the last one is in progress");
    note(call, "");
    queue.push_back(call);
    state = kInProgress;
    return kInProgress;
  }

  /// The memory is the driver's. `work` lives as long as the process.
  Status askOnStream(const Pending &call, Stream stream, int (*work)(void *), void *argument) {
    if (Status taken = take(call); taken != kSuccess)
      return taken;
    note(call, StandInDriver::get().enqueue(stream, work, argument) ? " captured" : "");
    return kSuccess;
  }
  /// Whether a collective of a stream is done, or never will be.
  bool stepOnStream(const Pending &call) {
    const StandInDriver &driver = StandInDriver::get();
    return (state != kSuccess && state != kInProgress) || step(call, driver.read, driver.write) ||
           state != kSuccess;
  }

  Status advance() {
    auto copy = [](void *to, const void *from, size_t bytes) { std::memcpy(to, from, bytes); };
    while (state == kInProgress && !queue.empty() && step(queue.front(), copy, copy))
      queue.pop_front();
    if (state == kInProgress && queue.empty())
      state = kSuccess;
    return state;
  }

  void abort() {
    if (table)
      table->seats[rank].aborted = true;
  }

  std::string problem;
  bool inGroup = false;

private:
  Status fail(Status status, std::string why) {
    problem = fmt::format("rank {}: {}", rank, why);
    return state = status;
  }

  Status take(const Pending &call) {
    if (state != kSuccess && state != kInProgress)
      return state;
    if (++calls == setting("FAKE_NCCL_FAIL", -1))
      return fail(kRemoteError, "told to fail");
    const size_t parts = call.call.kind == Kind::AllGather ? size_t(size) : 1;
    if (call.call.count * bytesOf(call.call.type) * parts > kMostBytes)
      return fail(kInvalidArgument, "this stand-in takes a mebibyte at most");
    return kSuccess;
  }

  void note(const Pending &call, const char *how) {
    log += fmt::format("rank {} {} count {} type {} op {} root {} stream {}{}\n", rank,
                       kNames[int(call.call.kind)], call.call.count, call.call.type, call.call.op,
                       call.call.root, call.call.stream, how);
  }

  using Copy = void(void *to, const void *from, size_t bytes);
  /// Whether one more call is done, on memory that is read and written so.
  bool step(const Pending &pending, Copy *read, Copy *write) {
    Seat &own = table->seats[rank];
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
        read(own.data, pending.from, bytes);
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
    finish(pending, bytes, write);
    own.finished = ++done;
    return true;
  }

  void finish(const Pending &pending, size_t bytes, Copy *write) {
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
      write(pending.to, contributions[0], bytes);
      break;
    }
    case Kind::AllGather:
      for (int peer = 0; peer < size; ++peer)
        write(static_cast<std::byte *>(pending.to) + size_t(peer) * bytes, table->seats[peer].data,
              bytes);
      break;
    case Kind::Broadcast:
      write(pending.to, table->seats[pending.call.root].data, bytes);
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

/// Streams may still have work of a communicator that is gone.
using Handle = std::shared_ptr<FakeComm>;
FakeComm *of(Comm comm) { return reinterpret_cast<Handle *>(comm)->get(); }

struct StreamWork {
  Handle comm;
  Pending pending;
  static int run(void *work) {
    auto *self = static_cast<StreamWork *>(work);
    return self->comm->stepOnStream(self->pending);
  }
};

/// The group of this thread.
thread_local int groupDepth = 0;
thread_local FakeComm *grouped = nullptr;

Status ask(Comm comm, const CallRecord &call, const void *from, void *to, Stream stream = nullptr) {
  FakeComm *fake = of(comm);
  if (stream && StandInDriver::get().enqueue) {
    static std::deque<StreamWork> works; // a graph may do them again and again
    StreamWork &work =
        works.emplace_back(*reinterpret_cast<Handle *>(comm), Pending{call, from, to});
    return fake->askOnStream(work.pending, stream, StreamWork::run, &work);
  }
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
  *comm = reinterpret_cast<Comm>(new Handle(std::make_shared<FakeComm>(rank, size, id)));
  return kInProgress;
}

Status ncclCommGetAsyncError(Comm comm, Status *state) {
  usleep(static_cast<useconds_t>(1000 * setting("FAKE_NCCL_SLOW", 0)));
  *state = of(comm)->advance();
  return kSuccess;
}

Status ncclCommFinalize(Comm comm) {
  return ask(comm, {Kind::Finalize, 0, 0, 0, 0, 0, 0}, nullptr, nullptr);
}

Status ncclCommDestroy(Comm comm) {
  of(comm)->destroy();
  delete reinterpret_cast<Handle *>(comm);
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
             to, stream);
}

Status ncclAllGather(const void *from, void *to, size_t count, DataType type, Comm comm,
                     Stream stream) {
  return ask(comm, {Kind::AllGather, type, 0, 0, of(comm)->streamNumber(stream), 0, count}, from,
             to, stream);
}

Status ncclBroadcast(const void *from, void *to, size_t count, DataType type, int root, Comm comm,
                     Stream stream) {
  return ask(comm, {Kind::Broadcast, type, 0, root, of(comm)->streamNumber(stream), 0, count}, from,
             to, stream);
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
