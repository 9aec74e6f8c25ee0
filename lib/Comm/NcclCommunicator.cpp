//===- NcclCommunicator.cpp - Collectives by NCCL -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Device memory goes through NCCL, host memory through the sockets that NCCL's id came by.
//
//===----------------------------------------------------------------------===//

#include "Backends.h"
#include "Nccl.h"
#include "SocketStar.h"

namespace easyquant::comm {
namespace {

class NcclCommunicator final : public Communicator {
public:
  NcclCommunicator(const Placement &placement, const OpenOptions &options,
                   const nccl::Library &library)
      : Communicator(placement.rank, placement.size, options.limits), library(library),
        star(placement.rank, placement.size, placement.masterAddress, placement.masterPort),
        useDevice(options.useDevice), streamIsDone(options.streamIsDone) {}
  ~NcclCommunicator() override { leave(); }

  std::string_view backend() const override { return "NCCL"; }
  bool hasPointToPoint() const override { return false; }

  Result<void> open();

protected:
  Result<std::unique_ptr<Operation>> begin(const Collective &collective) override;
  Result<void> enqueueOnDevice(const Collective &collective) override;
  Result<bool> isStreamDone(void *stream) override;
  Result<void> listen() override;
  void stop(const Error &reason) override;
  Result<void> finish() override;

private:
  struct OnHost final : Operation {
    OnHost(SocketStar &star, uint64_t number) : star(star), number(number) {}
    Result<bool> advance() override { return star.isDone(number); }
    std::string waitsFor() const override { return star.waitsFor(); }
    SocketStar &star;
    uint64_t number;
  };
  struct OnStream final : Operation {
    OnStream(NcclCommunicator &owner, void *stream) : owner(owner), stream(stream) {}
    Result<bool> advance() override {
      if (Result<bool> idle = owner.isIdle(); !idle || !*idle)
        return idle;
      return owner.isStreamDone(stream);
    }
    NcclCommunicator &owner;
    void *stream;
  };

  /// Whether NCCL has taken what it was asked for.
  Result<bool> isIdle() {
    nccl::Status state = nccl::kSuccess;
    if (const nccl::Status asked = library.commGetAsyncError(comm, &state); asked != nccl::kSuccess)
      state = asked;
    if (state == nccl::kSuccess || state == nccl::kInProgress)
      return state == nccl::kSuccess;
    return failed(state);
  }
  Unexpected failed(nccl::Status status) {
    // A rank that stops says why before it leaves NCCL, perhaps since the sockets were last read.
    if (Result<void> whole = star.isWhole(); !whole)
      return Unexpected(whole.error());
    return makeError(ErrorCode::IO,
                     "NCCL failed: {}; look at the messages of the other ranks, or set "
                     "NCCL_DEBUG=INFO",
                     library.describe(status, comm));
  }
  static Unexpected noStreams() {
    return makeError(ErrorCode::Unsupported,
                     "nothing says when a stream is done; give `streamIsDone`, or enqueue it");
  }
  Result<void> pollNccl(std::string_view what) {
    return pollUntil(what, [this]() -> Result<bool> {
      if (Result<void> whole = star.isWhole(); !whole)
        return Unexpected(whole.error());
      return isIdle();
    });
  }
  nccl::Status gather(const Collective &collective);

  const nccl::Library &library;
  SocketStar star;
  std::function<Result<void>()> useDevice;
  std::function<Result<bool>(void *)> streamIsDone;
  nccl::Comm comm = nullptr;
};

nccl::DataType typeOf(ElementType type) {
  constexpr nccl::DataType types[] = {nccl::kInt8, nccl::kInt32, nccl::kInt64, nccl::kFloat32,
                                      nccl::kFloat64};
  return types[static_cast<int>(type)];
}

nccl::RedOp opOf(Reduction reduction) {
  constexpr nccl::RedOp ops[] = {nccl::kSum, nccl::kMin, nccl::kMax};
  return ops[static_cast<int>(reduction)];
}

Result<void> NcclCommunicator::open() {
  const std::string what = fmt::format("{}: opening NCCL", whoAmI());
  Result<void> connected =
      pollUntil(what, [this] { return star.connect(); }, [this] { return star.waitsFor(); });
  if (!connected)
    return connected;
  if (useDevice)
    if (Result<void> used = useDevice(); !used)
      return used;
  nccl::UniqueId id = {};
  if (rank() == 0)
    if (const nccl::Status made = library.getUniqueId(&id); made != nccl::kSuccess)
      return failed(made);
  if (Result<void> told = broadcast(std::span<char>(id.bytes)); !told)
    return told;
  nccl::Config config;
  const nccl::Status begun = library.commInitRankConfig(&comm, size(), id, rank(), &config);
  if (begun != nccl::kSuccess && begun != nccl::kInProgress)
    return failed(begun);
  return pollNccl(what);
}

/// NCCL gathers equal counts alone; others are a broadcast from each rank, in one group.
nccl::Status NcclCommunicator::gather(const Collective &collective) {
  auto *data = static_cast<std::byte *>(collective.data);
  const int64_t element = bytesOf(collective.type);
  const auto stream = static_cast<nccl::Stream>(collective.stream);
  const nccl::DataType type = typeOf(collective.type);
  if (collective.counts.empty()) {
    const int64_t each = collective.count / size();
    return library.allGather(data + rank() * each * element, data, static_cast<size_t>(each), type,
                             comm, stream);
  }
  nccl::Status status = library.groupStart();
  for (int root = 0; root < size() && status == nccl::kSuccess; ++root) {
    const int64_t count = collective.counts[static_cast<size_t>(root)];
    if (count > 0)
      status = library.broadcast(data, data, static_cast<size_t>(count), type, root, comm, stream);
    if (status == nccl::kInProgress)
      status = nccl::kSuccess;
    data += count * element;
  }
  const nccl::Status ended = library.groupEnd();
  return status == nccl::kSuccess ? ended : status;
}

Result<void> NcclCommunicator::enqueueOnDevice(const Collective &collective) {
  if (collective.memory != Memory::Device)
    return makeError(ErrorCode::Unsupported, "only device memory is reduced in a stream's order");
  const auto stream = static_cast<nccl::Stream>(collective.stream);
  const auto count = static_cast<size_t>(collective.count);
  nccl::Status status = nccl::kSuccess;
  switch (collective.call) {
  case Call::AllReduce:
    if (collective.order == Order::Fixed && collective.reduction == Reduction::Sum &&
        (collective.type == ElementType::F32 || collective.type == ElementType::F64))
      return makeError(ErrorCode::Unsupported,
                       "NCCL adds floats in an order of its own; gather them, "
                       "and add them in yours");
    status = library.allReduce(collective.data, collective.data, count, typeOf(collective.type),
                               opOf(collective.reduction), comm, stream);
    break;
  case Call::AllGather:
    status = gather(collective);
    break;
  case Call::Broadcast:
    status = library.broadcast(collective.data, collective.data, count, typeOf(collective.type),
                               collective.peer, comm, stream);
    break;
  case Call::Barrier:
  case Call::Send:
  case Call::Receive:
    return makeError(ErrorCode::Unsupported, "NCCL has none for device memory here");
  }
  if (status != nccl::kSuccess && status != nccl::kInProgress)
    return failed(status);
  // The next work on the stream may be enqueued, and a capture ended, only when NCCL has taken
  // it.
  return status == nccl::kSuccess ? Result<void>() : pollNccl("enqueueing");
}

Result<std::unique_ptr<Communicator::Operation>>
NcclCommunicator::begin(const Collective &collective) {
  if (collective.memory == Memory::Host)
    return std::make_unique<OnHost>(star, star.post(collective));
  if (!streamIsDone)
    return noStreams();
  if (Result<void> enqueued = enqueueOnDevice(collective); !enqueued)
    return Unexpected(enqueued.error());
  return std::make_unique<OnStream>(*this, collective.stream);
}

Result<bool> NcclCommunicator::isStreamDone(void *stream) {
  if (!streamIsDone)
    return noStreams();
  return streamIsDone(stream);
}

Result<void> NcclCommunicator::listen() {
  if (Result<void> whole = star.isWhole(); !whole)
    return whole;
  if (!comm)
    return {};
  Result<bool> idle = isIdle();
  return idle ? Result<void>() : Unexpected(idle.error());
}

void NcclCommunicator::stop(const Error &reason) {
  star.end(reason.message);
  if (comm)
    library.commAbort(std::exchange(comm, nullptr));
}

Result<void> NcclCommunicator::finish() {
  const nccl::Status begun = library.commFinalize(comm);
  if (begun != nccl::kSuccess && begun != nccl::kInProgress)
    return failed(begun);
  Result<void> ended =
      pollUntil(fmt::format("{}: closing NCCL", whoAmI()), [this] { return isIdle(); });
  if (ended)
    library.commDestroy(std::exchange(comm, nullptr));
  return ended;
}

} // namespace

Result<std::unique_ptr<Communicator>> openNccl(const Placement &placement,
                                               const OpenOptions &options) {
  if (placement.size > 1 && (placement.masterAddress.empty() || placement.masterPort == 0))
    return makeError(
        ErrorCode::NotFound,
        "rank {} of {}: {} not set; NCCL's ranks meet at rank 0's machine: set "
        "MASTER_ADDR to its name and MASTER_PORT to a free port on every rank (mpirun -x "
        "MASTER_ADDR=... -x MASTER_PORT=...)",
        placement.rank, placement.size,
        placement.masterAddress.empty() ? "MASTER_ADDR is" : "MASTER_PORT is");
  Result<const nccl::Library *> library = nccl::Library::get();
  if (!library)
    return makeError(library.error().code, "rank {} of {}: {}", placement.rank, placement.size,
                     library.error().message);
  auto communicator = std::make_unique<NcclCommunicator>(placement, options, **library);
  if (Result<void> opened = communicator->open(); !opened) {
    communicator->abort(opened.error());
    return Unexpected(opened.error());
  }
  return communicator;
}

} // namespace easyquant::comm
