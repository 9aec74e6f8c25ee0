//===- SocketStar.h - Small collectives through rank 0 ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// One TCP socket from each rank to rank 0, which listens at MASTER_ADDR:MASTER_PORT. What goes
// through it is what NCCL does not do: its id, the hashes, tokens and figures of host memory. Each
// rank sends its part to rank 0, which compares calls, computes and answers, one collective after
// the other. A rank that is gone shows as a closed socket at once.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_COMM_SOCKETSTAR_H
#define EASYQUANT_LIB_COMM_SOCKETSTAR_H

#include "easyquant/Comm/Communicator.h"

#include <deque>

namespace easyquant::comm {

class SocketStar {
public:
  SocketStar(int rank, int size, std::string address, int port)
      : rank(rank), size(size), address(std::move(address)), port(port),
        peers(rank == 0 ? static_cast<size_t>(size) : 1) {}
  ~SocketStar();

  /// To be polled until it is true: all sockets are there. Errors: NotFound (no such host), IO,
  /// InvalidArgument (who connects is no rank of this job).
  Result<bool> connect();
  /// What `connect` and collectives wait for.
  std::string waitsFor() const;

  /// Starts a collective of host memory; the number to ask for.
  uint64_t post(const Collective &collective);
  /// Moves bytes without waiting; whether that collective is done. Errors: IO (a closed socket,
  /// what another rank told), InvalidArgument (ranks started different collectives).
  Result<bool> isDone(uint64_t number);
  Result<void> progress();
  /// Whether all sockets are open. Errors: IO, naming the rank that is gone, or what one told.
  Result<void> isWhole();
  /// Tells the others, and closes.
  void end(const std::string &reason);

private:
  enum class Content : uint32_t { Hello, Data, News };
  struct Header {
    uint32_t magic;
    Content content;
    int32_t rank, size;
    Call call;
    ElementType type;
    Reduction reduction;
    uint8_t unused;
    int32_t root;
    int64_t count;
    uint64_t counts; ///< a hash of the counts of an all-gather
    uint64_t bytes;  ///< that follow
  };
  struct Frame {
    Header header;
    std::vector<std::byte> payload;
  };
  struct Peer {
    int socket = -1;
    bool welcome = false; ///< has said who it is
    std::vector<std::byte> in, out;
    size_t sent = 0;   ///< of `out`
    std::string news;  ///< why it has given up; empty: it has not
    std::string ended; ///< why nothing more comes from it; empty: it lives
    std::deque<Frame> frames;
  };
  struct Posted {
    Collective collective;
    std::vector<int64_t> counts;
    Header header;
  };

  Result<bool> connectToRoot();
  Result<bool> acceptPeers();
  Result<void> welcome(Peer &stranger);
  Header headerOf(Content content, uint64_t bytes) const;
  void put(Peer &peer, const Header &header, const void *payload);
  Result<void> move(Peer &peer);
  Result<void> receive(Peer &peer);
  Result<void> takeFrames(Peer &peer);
  Result<void> answer();
  Result<void> answerAll(Posted &posted);
  bool isFlushed() const;
  /// Errors: IO, what it told or that its socket is closed.
  Result<void> isThere(const Peer &peer) const;
  /// The bytes of `data` that belong to `of`.
  std::span<std::byte> partOf(const Posted &posted, int of) const;
  /// What a rank contributes, or gets.
  std::span<std::byte> contributionOf(const Posted &posted, int of) const;

  const int rank, size;
  const std::string address;
  const int port;
  int listener = -1;
  std::string lastProblem;
  std::chrono::steady_clock::time_point nextTry{};
  std::vector<Peer> peers; ///< of rank 0: by rank; else rank 0
  std::vector<Peer> strangers;
  std::deque<Posted> queue;
  uint64_t posted = 0, finished = 0;
};

} // namespace easyquant::comm

#endif // EASYQUANT_LIB_COMM_SOCKETSTAR_H
