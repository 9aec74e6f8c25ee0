//===- SocketStar.cpp - Small collectives through rank 0 ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SocketStar.h"

#include "Reduce.h"
#include "easyquant/Support/Checksum.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace easyquant::comm {

static constexpr uint32_t kMagic = 0x45515354; // of this version of the frames

SocketStar::~SocketStar() {
  if (listener >= 0)
    ::close(listener);
  for (auto *list : {&peers, &strangers})
    for (Peer &peer : *list)
      if (peer.socket >= 0)
        ::close(peer.socket);
}

SocketStar::Header SocketStar::headerOf(Content content, uint64_t bytes) const {
  Header header = {};
  header.magic = kMagic;
  header.content = content;
  header.rank = rank;
  header.size = size;
  header.bytes = bytes;
  return header;
}

void SocketStar::put(Peer &peer, const Header &header, const void *payload) {
  if (peer.sent == peer.out.size()) {
    peer.out.clear();
    peer.sent = 0;
  }
  const auto append = [&](const void *bytes, size_t count) {
    const auto *begin = static_cast<const std::byte *>(bytes);
    peer.out.insert(peer.out.end(), begin, begin + count);
  };
  append(&header, sizeof header);
  if (header.bytes > 0)
    append(payload, header.bytes);
}

bool SocketStar::isFlushed() const {
  return std::all_of(peers.begin(), peers.end(),
                     [](const Peer &peer) { return peer.sent == peer.out.size(); });
}

std::span<std::byte> SocketStar::partOf(const Posted &posted, int of) const {
  const Collective &collective = posted.collective;
  auto *data = static_cast<std::byte *>(collective.data);
  const auto bytes = static_cast<size_t>(collective.bytes());
  if (collective.call != Call::AllGather)
    return {data, bytes};
  if (posted.counts.empty())
    return std::span(data, bytes)
        .subspan(bytes / static_cast<size_t>(size) * static_cast<size_t>(of),
                 bytes / static_cast<size_t>(size));
  int64_t begin = 0;
  for (int before = 0; before < of; ++before)
    begin += posted.counts[static_cast<size_t>(before)];
  const int64_t element = bytesOf(collective.type);
  return {data + begin * element,
          static_cast<size_t>(posted.counts[static_cast<size_t>(of)] * element)};
}

std::span<std::byte> SocketStar::contributionOf(const Posted &posted, int of) const {
  const Collective &collective = posted.collective;
  if (collective.call == Call::Barrier ||
      (collective.call == Call::Broadcast && collective.peer != of))
    return {};
  return partOf(posted, of);
}

uint64_t SocketStar::post(const Collective &collective) {
  Posted entry = {collective, {collective.counts.begin(), collective.counts.end()}, {}};
  const auto own = contributionOf(entry, rank);
  entry.header = headerOf(Content::Data, own.size());
  entry.header.call = collective.call;
  entry.header.type = collective.type;
  entry.header.reduction = collective.reduction;
  entry.header.root = collective.call == Call::Broadcast ? collective.peer : 0;
  entry.header.count = collective.count;
  if (!entry.counts.empty())
    entry.header.counts = XXH3_64bits(entry.counts.data(), entry.counts.size() * sizeof(int64_t));
  if (rank != 0)
    put(peers[0], entry.header, own.data());
  queue.push_back(std::move(entry));
  return ++posted;
}

Result<bool> SocketStar::isDone(uint64_t number) {
  const Result<void> moved = progress();
  if (finished >= number && isFlushed())
    return true; // whatever became of later ones
  if (!moved)
    return Unexpected(moved.error());
  return false;
}

Result<void> SocketStar::progress() {
  for (size_t i = rank == 0 ? 1 : 0; i < peers.size(); ++i)
    if (Result<void> moved = move(peers[i]); !moved)
      return moved;
  if (Result<void> answered = answer(); !answered)
    return answered;
  if (!isFlushed())
    for (size_t i = rank == 0 ? 1 : 0; i < peers.size(); ++i)
      if (Result<void> moved = move(peers[i]); !moved)
        return moved;
  return {};
}

Result<void> SocketStar::move(Peer &peer) {
  while (peer.sent < peer.out.size()) {
    const ssize_t count = ::send(peer.socket, peer.out.data() + peer.sent,
                                 peer.out.size() - peer.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (count < 0 && errno == EINTR)
      continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
      break;
    if (count < 0) { // what it said before it went is still to be read
      peer.ended = std::strerror(errno);
      peer.sent = peer.out.size();
      break;
    }
    peer.sent += static_cast<size_t>(count);
  }
  return receive(peer);
}

Result<void> SocketStar::receive(Peer &peer) {
  for (;;) {
    std::byte buffer[1 << 16];
    const ssize_t count = ::recv(peer.socket, buffer, sizeof buffer, MSG_DONTWAIT);
    if (count > 0) {
      peer.in.insert(peer.in.end(), buffer, buffer + count);
      continue;
    }
    if (count < 0 && errno == EINTR)
      continue;
    const int problem = count < 0 ? errno : 0;
    if (Result<void> taken = takeFrames(peer); !taken)
      return taken;
    if (problem == EAGAIN || problem == EWOULDBLOCK)
      return {};
    if (peer.ended.empty())
      peer.ended = problem ? std::strerror(problem) : "it closed its socket";
    return {};
  }
}

Result<void> SocketStar::takeFrames(Peer &peer) {
  size_t begin = 0;
  for (Header header; peer.in.size() - begin >= sizeof header;) {
    std::memcpy(&header, peer.in.data() + begin, sizeof header);
    if (header.magic != kMagic)
      return makeError(ErrorCode::Corrupt, "a socket brought bytes that are not ours; run the same "
                                           "version of EasyQuant on every rank");
    if (peer.in.size() - begin - sizeof header < header.bytes)
      break;
    const auto *payload = peer.in.data() + begin + sizeof header;
    if (header.content == Content::News) // the frames before it still count
      peer.news.assign(reinterpret_cast<const char *>(payload), header.bytes);
    else
      peer.frames.push_back({header, {payload, payload + header.bytes}});
    begin += sizeof header + header.bytes;
  }
  peer.in.erase(peer.in.begin(), peer.in.begin() + static_cast<ptrdiff_t>(begin));
  return {};
}

Result<void> SocketStar::isThere(const Peer &peer) const {
  if (!peer.news.empty())
    return makeError(ErrorCode::IO, "given up, because of {}", peer.news);
  if (!peer.ended.empty())
    return makeError(ErrorCode::IO, "rank {} has ended ({}); look at its messages",
                     &peer - peers.data(), peer.ended);
  return {};
}

Result<void> SocketStar::isWhole() {
  if (Result<void> moved = progress(); !moved)
    return moved;
  for (const Peer &peer : peers)
    if (Result<void> there = isThere(peer); !there)
      return there;
  return {};
}

/// Ends as many collectives as all parts are there for.
Result<void> SocketStar::answer() {
  while (!queue.empty()) {
    Posted &first = queue.front();
    bool isReady = true;
    for (size_t i = rank == 0 ? 1 : 0; i < peers.size(); ++i) {
      if (!peers[i].frames.empty())
        continue;
      if (Result<void> there = isThere(peers[i]); !there)
        return there;
      isReady = false;
    }
    if (!isReady)
      return {};
    if (rank == 0) {
      if (Result<void> answered = answerAll(first); !answered)
        return answered;
    } else {
      const Frame &frame = peers[0].frames.front();
      if (!frame.payload.empty())
        std::memcpy(first.collective.data, frame.payload.data(), frame.payload.size());
      peers[0].frames.pop_front();
    }
    queue.pop_front();
    ++finished;
  }
  return {};
}

Result<void> SocketStar::answerAll(Posted &posted) {
  const Collective &collective = posted.collective;
  std::vector<void *> contributions(1, collective.data);
  for (int peer = 1; peer < size; ++peer) {
    Frame &frame = peers[static_cast<size_t>(peer)].frames.front();
    const Header &theirs = frame.header, &ours = posted.header;
    if (theirs.call != ours.call || theirs.type != ours.type || theirs.count != ours.count ||
        theirs.reduction != ours.reduction || theirs.root != ours.root ||
        theirs.counts != ours.counts)
      return makeError(ErrorCode::InvalidArgument,
                       "rank {} started {} of {} {}; all ranks must start the same collectives in "
                       "the same order",
                       peer, nameOf(theirs.call), theirs.count, nameOf(theirs.type));
    const auto place = contributionOf(posted, peer);
    if (collective.call == Call::AllReduce)
      contributions.push_back(frame.payload.data());
    else if (!place.empty())
      std::memcpy(place.data(), frame.payload.data(), place.size());
  }
  if (collective.call == Call::AllReduce)
    reduceInOrder(collective.type, collective.reduction, collective.count, contributions);
  for (int peer = 1; peer < size; ++peer) {
    Peer &other = peers[static_cast<size_t>(peer)];
    const bool has = collective.call == Call::Barrier ||
                     (collective.call == Call::Broadcast && collective.peer == peer);
    Header header = posted.header;
    header.bytes = has ? 0 : static_cast<uint64_t>(collective.bytes());
    put(other, header, collective.data);
    other.frames.pop_front();
  }
  return {};
}

void SocketStar::end(const std::string &reason) {
  for (size_t i = rank == 0 ? 1 : 0; i < peers.size(); ++i)
    if (peers[i].socket >= 0 && peers[i].welcome)
      put(peers[i], headerOf(Content::News, reason.size()), reason.data());
  const auto limit = std::chrono::steady_clock::now() + std::chrono::milliseconds(200);
  for (Peer &peer : peers) {
    while (peer.socket >= 0 && peer.sent < peer.out.size() &&
           std::chrono::steady_clock::now() < limit) {
      const ssize_t count = ::send(peer.socket, peer.out.data() + peer.sent,
                                   peer.out.size() - peer.sent, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (count < 0 && errno != EAGAIN && errno != EINTR)
        break;
      peer.sent += static_cast<size_t>(std::max<ssize_t>(count, 0));
      if (count < 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    if (peer.socket >= 0) {
      // Unread bytes would make close() take back what was sent.
      ::shutdown(peer.socket, SHUT_WR);
      std::byte rest[4096];
      while (::recv(peer.socket, rest, sizeof rest, MSG_DONTWAIT) > 0) {
      }
      ::close(std::exchange(peer.socket, -1));
    }
  }
  strangers.clear();
}

} // namespace easyquant::comm
