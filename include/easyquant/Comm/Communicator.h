//===- Communicator.h - Collectives among ranks -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A Communicator joins `size` ranks. A collective is started on every rank, in the same order, and
// works in place on the caller's memory; `start` does not wait, `wait` polls under a time limit.
//
// Errors name rank, collective, bytes, the peer where it is known, and what to do. A collective
// that fails, outlasts the limit or is interrupted poisons the communicator: every later call
// returns the same error at once, and ranks that still hear are told. Failures of peers and of what
// joins them have code IO.
//
// Order of sums. `Order::Fixed` is one tree that depends on the number of ranks alone. For n ranks,
// with 2^k the largest power of two up to n, ranks 2i and 2i+1 are added first for i < n - 2^k,
// then neighbours, neighbours of these, and so on. The operand of the lower ranks is on the left.
// Threads and the sockets beside NCCL always add so, and MPI does up to kSmallBytes and where Fixed
// is asked for. MPI's library has its own order for larger sums, and NCCL its own on devices (Fixed
// sums of floats are refused there). All ranks get equal bits from our sums. The manuals of MPI and
// NCCL recommend that for theirs, but do not promise it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_COMM_COMMUNICATOR_H
#define EASYQUANT_COMM_COMMUNICATOR_H

#include "easyquant/Support/Result.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace easyquant::comm {

enum class ElementType : uint8_t { Byte, I32, I64, F32, F64 };
enum class Reduction : uint8_t { Sum, Min, Max };
enum class Order : uint8_t { Any, Fixed };
enum class Call : uint8_t { AllReduce, AllGather, Broadcast, Barrier, Send, Receive };
enum class Memory : uint8_t { Host, Device };

/// Sums of up to so many bytes are added in the fixed order by MPI, too.
constexpr int64_t kSmallBytes = int64_t(16) << 10;

/// Bytes of one element.
int64_t bytesOf(ElementType type);
std::string_view nameOf(ElementType type);
std::string_view nameOf(Call call);
std::string_view nameOf(Reduction reduction);

/// What one rank contributes to a collective, and where it gets the result.
struct Collective {
  Call call = Call::Barrier;
  ElementType type = ElementType::Byte;
  Reduction reduction = Reduction::Sum; ///< of AllReduce, which takes no Byte
  Order order = Order::Any;             ///< of AllReduce
  Memory memory = Memory::Host;
  void *data = nullptr; ///< not to be touched, and to stay, until the collective is waited for
  int64_t count = 0;    ///< elements of `data`; of AllGather those of all ranks together
  /// For AllGather: elements of each rank, which lie in `data` in rank order; empty: all the same.
  std::span<const int64_t> counts{};
  int peer = 0;            ///< of Broadcast who has the bytes; of Send and Receive the other rank
  void *stream = nullptr;  ///< of Memory::Device: the CUDA stream in whose order it is done
  std::string_view site{}; ///< for messages; stays as long as `data`

  int64_t bytes() const { return count * bytesOf(type); }
};

struct Limits {
  /// How long a collective may take. The default is the one of torch.distributed with NCCL.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Set by a signal handler or another thread: a call that waits returns Interrupted.
  const std::atomic<bool> *interrupted = nullptr;
};

/// A started collective, to be waited for before its memory is read or freed. A plain number.
struct Request {
  uint64_t ticket = 0;
};

/// Used by one thread at a time.
class Communicator {
public:
  virtual ~Communicator() = default;
  Communicator(const Communicator &) = delete;
  Communicator &operator=(const Communicator &) = delete;

  int rank() const { return ownRank; }
  int size() const { return ranks; }
  /// "threads", "MPI", "NCCL": for messages and reports.
  virtual std::string_view backend() const = 0;
  /// Whether Send and Receive are there.
  virtual bool hasPointToPoint() const { return true; }

  /// Errors: InvalidArgument (not poisoning: sizes, roots and types that cannot be), Unsupported
  /// (not by this backend), IO.
  Result<Request> start(const Collective &collective);
  /// Also drives all that was started before. Errors: IO (a peer, the time limit), Interrupted.
  Result<void> wait(Request request);
  /// One look: whether it is done.
  Result<bool> poll(Request request);
  /// start and wait.
  Result<void> run(const Collective &collective);
  /// A collective on device memory in the order of its stream, which nobody waits for here: what is
  /// captured into a graph, or followed by kernels on the same stream.
  Result<void> enqueue(const Collective &collective);
  /// Waits under the limits for all work of a CUDA stream, what was enqueued on it included.
  Result<void> synchronize(void *stream);
  /// What went wrong meanwhile with what was enqueued, or with a peer.
  Result<void> check();

  /// Ends the work of all ranks: tells those that still hear why, and poisons.
  void abort(const Error &reason);
  /// The error that later calls return; none while all is well.
  const std::optional<Error> &failure() const { return poison; }
  /// The good end, called by all: waits for the others. Without it, the destructor tells them that
  /// this rank has left, and who still waits for it gets an error.
  Result<void> close();

  template <typename T>
  Result<void> allReduce(std::span<T> values, Reduction reduction, Order order = Order::Any,
                         std::string_view site = {});
  /// `values` has the elements of all ranks, those of this one in their place.
  template <typename T>
  Result<void> allGather(std::span<T> values, std::span<const int64_t> counts = {},
                         std::string_view site = {});
  template <typename T>
  Result<void> broadcast(std::span<T> values, int root = 0, std::string_view site = {});
  Result<void> barrier() { return run({.call = Call::Barrier}); }

protected:
  /// A collective under way. Destroyed when it is done or given up. Its errors, and those of
  /// `begin`, say the reason alone.
  class Operation {
  public:
    virtual ~Operation() = default;
    /// Does what can be done without waiting; true: done.
    virtual Result<bool> advance() = 0;
    /// Ranks that it waits for, as far as is known: "rank 2", or nothing.
    virtual std::string waitsFor() const { return {}; }
  };

  Communicator(int rank, int size, Limits limits) : limits(limits), ownRank(rank), ranks(size) {}

  virtual Result<std::unique_ptr<Operation>> begin(const Collective &collective) = 0;
  virtual Result<void> enqueueOnDevice(const Collective &collective);
  /// Whether all work of a CUDA stream is done.
  virtual Result<bool> isStreamDone(void *stream);
  /// What is to be heard from peers, asked every now and then while something is waited for.
  virtual Result<void> listen() { return {}; }
  /// Tells the others, as far as possible without waiting for them, and stops what is under way.
  virtual void stop(const Error &reason) = 0;
  /// After a good end.
  virtual Result<void> finish() { return {}; }
  /// To be called by the destructors of backends, first.
  void leave();

  /// Polls `done` under the limits, for what is no collective: opening, above all. `what` begins
  /// the message, as in "rank 1 of 2: opening NCCL"; `waitsFor` says for what or whom.
  Result<void> pollUntil(std::string_view what, const std::function<Result<bool>()> &done,
                         const std::function<std::string()> &waitsFor = {});
  /// "rank 1 of 4: all-reduce (sum) of 224 f32 (896 bytes) at model.layers.0"
  std::string describe(const Collective &collective) const;
  std::string whoAmI() const;

  const Limits limits;

private:
  struct Pending {
    uint64_t ticket;
    Collective collective;
    std::unique_ptr<Operation> operation;
  };
  Result<void> validate(const Collective &collective) const;
  Error about(const Collective &collective, const Error &reason) const;
  Result<bool> advanceUpTo(uint64_t ticket);
  Unexpected fail(Error error);

  const int ownRank, ranks;
  uint64_t tickets = 0;
  std::vector<Pending> pending; ///< in the order of their tickets
  std::optional<Error> poison;
  bool closed = false;
};

template <typename T> constexpr ElementType elementTypeOf() {
  if constexpr (std::is_same_v<T, float>)
    return ElementType::F32;
  else if constexpr (std::is_same_v<T, double>)
    return ElementType::F64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return ElementType::I32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return ElementType::I64;
  else {
    static_assert(sizeof(T) == 1, "f32, f64, i32, i64, or bytes");
    return ElementType::Byte;
  }
}

template <typename T>
Result<void> Communicator::allReduce(std::span<T> values, Reduction reduction, Order order,
                                     std::string_view site) {
  return run({.call = Call::AllReduce,
              .type = elementTypeOf<T>(),
              .reduction = reduction,
              .order = order,
              .data = values.data(),
              .count = static_cast<int64_t>(values.size()),
              .site = site});
}

template <typename T>
Result<void> Communicator::allGather(std::span<T> values, std::span<const int64_t> counts,
                                     std::string_view site) {
  return run({.call = Call::AllGather,
              .type = elementTypeOf<T>(),
              .data = values.data(),
              .count = static_cast<int64_t>(values.size()),
              .counts = counts,
              .site = site});
}

template <typename T>
Result<void> Communicator::broadcast(std::span<T> values, int root, std::string_view site) {
  return run({.call = Call::Broadcast,
              .type = elementTypeOf<T>(),
              .data = values.data(),
              .count = static_cast<int64_t>(values.size()),
              .peer = root,
              .site = site});
}

/// mpirun ends all ranks when the first one ends badly. A process that ends because of a failed
/// communicator calls this after it has printed its error: it sleeps for a second, so that the
/// others can print theirs.
void letOthersSpeak();

} // namespace easyquant::comm

#endif // EASYQUANT_COMM_COMMUNICATOR_H
