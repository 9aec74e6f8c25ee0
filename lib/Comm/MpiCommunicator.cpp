//===- MpiCommunicator.cpp - Collectives by MPI ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// All calls are nonblocking ones. Three duplicates of the world keep apart collectives, messages,
// and the news of a rank that gives up. After a failure MPI is not called again: a call may hang
// where a peer is gone, and the memory of what is under way is written by nobody once nobody calls.
//
//===----------------------------------------------------------------------===//

#include "Backends.h"
#include "DoublingReduce.h"
#include "Mpi.h"

#include <climits>
#include <thread>

namespace easyquant::comm {
namespace {

class MpiCommunicator final : public Communicator {
public:
  MpiCommunicator(int rank, int size, Limits limits, const mpi::Library &library)
      : Communicator(rank, size, limits), library(library) {}
  ~MpiCommunicator() override { leave(); }

  std::string_view backend() const override { return "MPI"; }

  /// Starts MPI, unless the process has done so.
  Result<void> open(Launcher launcher);

protected:
  Result<std::unique_ptr<Operation>> begin(const Collective &collective) override;
  Result<void> listen() override;
  void stop(const Error &reason) override;
  Result<void> finish() override;

private:
  /// One request of MPI.
  struct Requested final : Operation {
    explicit Requested(const MpiCommunicator &owner) : owner(owner) {}
    Result<bool> advance() override { return owner.isDone(request); }
    const MpiCommunicator &owner;
    mpi::Request request = nullptr;
    std::vector<int> counts, offsets; ///< of an all-gather, to stay until it is done
  };

  Result<void> checked(int status, std::string_view call) const {
    if (status == mpi::kSuccess)
      return {};
    return makeError(ErrorCode::IO, "{} failed: {}; look at the messages of the other ranks", call,
                     library.describe(status));
  }
  Result<bool> isDone(mpi::Request &request) const {
    int done = 0;
    if (Result<void> tested = checked(library.test(&request, &done, nullptr), "MPI_Test"); !tested)
      return Unexpected(tested.error());
    return done != 0;
  }
  mpi::Datatype typeOf(ElementType type) const {
    const mpi::Datatype types[] = {library.byte, library.int32, library.int64, library.float32,
                                   library.float64};
    return types[static_cast<int>(type)];
  }
  mpi::Op opOf(Reduction reduction) const {
    const mpi::Op ops[] = {library.sum, library.min, library.max};
    return ops[static_cast<int>(reduction)];
  }
  int startGather(const Collective &collective, Requested &operation) const;
  Result<std::unique_ptr<Operation>> beginReduce(const Collective &collective);

  const mpi::Library &library;
  bool startedHere = false;
  mpi::Comm collectives = nullptr, messages = nullptr, news = nullptr;
  int sequence = 0; ///< of all-reduces, as tags
  std::vector<std::byte> spare;
  std::string lastWords;
};

Result<void> MpiCommunicator::open(Launcher launcher) {
  int initialized = 0;
  library.initialized(&initialized);
  if (!initialized) {
    int provided = 0;
    if (Result<void> started = checked(
            library.initThread(nullptr, nullptr, mpi::kThreadSerialized, &provided), "MPI_Init");
        !started)
      return started;
    startedHere = true;
    if (provided < mpi::kThreadSerialized)
      return makeError(ErrorCode::Unsupported,
                       "{}: this MPI may be called by the main thread alone (thread level {}, "
                       "expected {}); use an Open MPI that was built with threads",
                       whoAmI(), provided, mpi::kThreadSerialized);
  }
  library.commSetErrhandler(library.commWorld, library.errorsReturn);
  int rank = -1, size = -1;
  library.commRank(library.commWorld, &rank);
  library.commSize(library.commWorld, &size);
  if (rank != this->rank() || size != this->size())
    return makeError(ErrorCode::InvalidArgument, "{} says {}, but MPI that it is rank {} of {}; {}",
                     nameOf(launcher), whoAmI(), rank, size,
                     launcher == Launcher::SRun
                         ? "start with srun --mpi=pmix, or with mpirun"
                         : "start with the mpirun of the Open MPI whose library is found");
  for (mpi::Comm *duplicate : {&collectives, &messages, &news}) {
    mpi::Request request = nullptr;
    Result<void> made =
        checked(library.commIdup(library.commWorld, duplicate, &request), "MPI_Comm_idup");
    if (made)
      made = pollUntil(fmt::format("{}: opening MPI", whoAmI()), [&] { return isDone(request); });
    if (!made)
      return made;
    library.commSetErrhandler(*duplicate, library.errorsReturn);
  }
  return {};
}

int MpiCommunicator::startGather(const Collective &collective, Requested &operation) const {
  int64_t offset = 0;
  for (int rank = 0; rank < size(); ++rank) {
    const int64_t count = collective.counts.empty() ? collective.count / size()
                                                    : collective.counts[static_cast<size_t>(rank)];
    operation.counts.push_back(static_cast<int>(count));
    operation.offsets.push_back(static_cast<int>(offset));
    offset += count;
  }
  const mpi::Datatype type = typeOf(collective.type);
  return library.iallgatherv(mpi::kInPlace, 0, type, collective.data, operation.counts.data(),
                             operation.offsets.data(), type, collectives, &operation.request);
}

Result<std::unique_ptr<Communicator::Operation>>
MpiCommunicator::beginReduce(const Collective &collective) {
  constexpr int kTags = 1 << 15; // every MPI has that many
  sequence = (sequence + 1) % kTags;
  auto exchange = [this, tag = sequence](bool sends, void *data, int64_t bytes, int peer,
                                         mpi::Request *request) -> Result<void> {
    const int count = static_cast<int>(bytes);
    return sends
               ? checked(library.isend(data, count, library.byte, peer, tag, collectives, request),
                         "MPI_Isend")
               : checked(library.irecv(data, count, library.byte, peer, tag, collectives, request),
                         "MPI_Irecv");
  };
  auto isDone = [this](mpi::Request &request) { return this->isDone(request); };
  return std::make_unique<
      DoublingReduce<Operation, mpi::Request, decltype(exchange), decltype(isDone)>>(
      collective, rank(), size(), spare, exchange, isDone);
}

Result<std::unique_ptr<Communicator::Operation>>
MpiCommunicator::begin(const Collective &collective) {
  if (collective.memory == Memory::Device)
    return makeError(ErrorCode::Unsupported, "MPI works on host memory only; use NCCL");
  const bool ordered = collective.call == Call::AllReduce &&
                       (collective.order == Order::Fixed || collective.bytes() <= kSmallBytes);
  if ((ordered ? collective.bytes() : collective.count) > INT_MAX)
    return makeError(ErrorCode::OutOfRange, "found {} {}, expected at most {}; cut it into parts",
                     ordered ? collective.bytes() : collective.count,
                     ordered ? "bytes" : "elements", INT_MAX);
  if (ordered)
    return beginReduce(collective);

  auto operation = std::make_unique<Requested>(*this);
  mpi::Request *request = &operation->request;
  const mpi::Datatype type = typeOf(collective.type);
  const int count = static_cast<int>(collective.count);
  int status = mpi::kSuccess;
  switch (collective.call) {
  case Call::AllReduce:
    status = library.iallreduce(mpi::kInPlace, collective.data, count, type,
                                opOf(collective.reduction), collectives, request);
    break;
  case Call::AllGather:
    status = startGather(collective, *operation);
    break;
  case Call::Broadcast:
    status = library.ibcast(collective.data, count, type, collective.peer, collectives, request);
    break;
  case Call::Barrier:
    status = library.ibarrier(collectives, request);
    break;
  case Call::Send:
    status = library.isend(collective.data, count, type, collective.peer, 0, messages, request);
    break;
  case Call::Receive:
    status = library.irecv(collective.data, count, type, collective.peer, 0, messages, request);
    break;
  }
  if (Result<void> started = checked(status, "MPI"); !started)
    return Unexpected(started.error());
  return operation;
}

Result<void> MpiCommunicator::listen() {
  mpi::Status status = {};
  int arrived = 0;
  if (Result<void> probed =
          checked(library.iprobe(mpi::kAnySource, 0, news, &arrived, &status), "MPI_Iprobe");
      !probed || !arrived)
    return probed;
  int bytes = 0;
  library.getCount(&status, library.byte, &bytes);
  std::string text(static_cast<size_t>(bytes), '\0');
  library.recv(text.data(), bytes, library.byte, status.source, 0, news, nullptr);
  return makeError(ErrorCode::IO, "given up, because of {}", text);
}

void MpiCommunicator::stop(const Error &reason) {
  if (!news)
    return;
  // Short enough to be sent without the receiver's doing; who has stopped does not hold us up.
  constexpr size_t kLongestNews = 1024;
  lastWords = reason.message.substr(0, kLongestNews);
  std::vector<mpi::Request> requests;
  for (int peer = 0; peer < size(); ++peer) {
    mpi::Request request = nullptr;
    if (peer != rank() && library.isend(lastWords.data(), static_cast<int>(lastWords.size()),
                                        library.byte, peer, 0, news, &request) == mpi::kSuccess)
      requests.push_back(request);
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  while (!requests.empty() && std::chrono::steady_clock::now() < end) {
    std::erase_if(requests, [&](mpi::Request &request) { return isDone(request).value_or(true); });
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Result<void> MpiCommunicator::finish() {
  return startedHere ? checked(library.finalize(), "MPI_Finalize") : Result<void>();
}

} // namespace

Result<std::unique_ptr<Communicator>> openMpi(const Placement &placement, const Limits &limits) {
  Result<const mpi::Library *> library = mpi::Library::get();
  if (!library)
    return Unexpected(library.error());
  auto communicator =
      std::make_unique<MpiCommunicator>(placement.rank, placement.size, limits, **library);
  if (Result<void> opened = communicator->open(placement.launcher); !opened) {
    communicator->abort(opened.error());
    return Unexpected(opened.error());
  }
  return communicator;
}

} // namespace easyquant::comm
