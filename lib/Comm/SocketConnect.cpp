//===- SocketConnect.cpp - How ranks find rank 0 --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SocketStar.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace easyquant::comm {

static void setOptions(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  // A machine that is gone says nothing: after a minute of silence the system asks it.
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

Result<bool> SocketStar::connect() {
  if (size == 1)
    return true;
  return rank == 0 ? acceptPeers() : connectToRoot();
}

std::string SocketStar::waitsFor() const {
  if (rank != 0)
    return fmt::format("rank 0 at {}:{}{}{}", address, port, lastProblem.empty() ? "" : ": ",
                       lastProblem);
  std::string missing;
  for (int peer = 1; peer < size; ++peer) {
    const Peer &other = peers[static_cast<size_t>(peer)];
    if (!other.welcome || (!queue.empty() && other.frames.empty()))
      missing += fmt::format("{}rank {}", missing.empty() ? "" : ", ", peer);
  }
  return queue.empty() ? fmt::format("{} to connect to port {}", missing, port) : missing;
}

Result<bool> SocketStar::connectToRoot() {
  Peer &root = peers[0];
  if (root.welcome) {
    if (Result<void> moved = move(root); !moved)
      return Unexpected(moved.error());
    return isFlushed();
  }
  const auto now = std::chrono::steady_clock::now();
  if (root.socket < 0) {
    if (now < nextTry)
      return false;
    nextTry = now + std::chrono::milliseconds(100);
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hints, &found);
    if (error == EAI_AGAIN) {
      lastProblem = ::gai_strerror(error);
      return false;
    }
    if (error != 0)
      return makeError(ErrorCode::NotFound,
                       "MASTER_ADDR: found \"{}\", expected a name or address of rank 0's machine "
                       "({}); correct it on every rank",
                       address, ::gai_strerror(error));
    const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(found, ::freeaddrinfo);
    root.socket = ::socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (root.socket < 0)
      return makeError(ErrorCode::IO, "cannot make a socket: {}", std::strerror(errno));
    if (::connect(root.socket, found->ai_addr, found->ai_addrlen) != 0 && errno != EINPROGRESS) {
      lastProblem = std::strerror(errno);
      ::close(std::exchange(root.socket, -1));
      return false;
    }
  }
  pollfd ready = {root.socket, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0)
    return false;
  int problem = 0;
  socklen_t length = sizeof problem;
  ::getsockopt(root.socket, SOL_SOCKET, SO_ERROR, &problem, &length);
  if (problem != 0) { // rank 0 may not have come so far
    lastProblem = std::strerror(problem);
    ::close(std::exchange(root.socket, -1));
    return false;
  }
  setOptions(root.socket);
  root.welcome = true;
  put(root, headerOf(Content::Hello, 0), nullptr);
  return false;
}

static Result<int> listenAt(int port) {
  const int socket = ::socket(AF_INET6, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  const bool six = socket >= 0;
  const int listener =
      six ? socket : ::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (listener < 0)
    return makeError(ErrorCode::IO, "cannot make a socket: {}", std::strerror(errno));
  const int yes = 1, no = 0;
  ::setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  int bound;
  if (six) {
    ::setsockopt(listener, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 any = {};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    bound = ::bind(listener, reinterpret_cast<sockaddr *>(&any), sizeof any);
  } else {
    sockaddr_in any = {};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    bound = ::bind(listener, reinterpret_cast<sockaddr *>(&any), sizeof any);
  }
  if (bound == 0 && ::listen(listener, SOMAXCONN) == 0)
    return listener;
  const int problem = errno;
  ::close(listener);
  return makeError(ErrorCode::IO,
                   "MASTER_PORT: cannot listen at port {} ({}); give all ranks another one", port,
                   std::strerror(problem));
}

Result<bool> SocketStar::acceptPeers() {
  if (listener < 0) {
    Result<int> opened = listenAt(port);
    if (!opened)
      return Unexpected(opened.error());
    listener = *opened;
  }
  for (int socket;
       (socket = ::accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;) {
    setOptions(socket);
    strangers.emplace_back().socket = socket;
  }
  for (Peer &stranger : strangers)
    if (Result<void> known = welcome(stranger); !known)
      return Unexpected(known.error());
  std::erase_if(strangers, [](const Peer &stranger) { return stranger.socket < 0; });
  const bool all =
      std::all_of(peers.begin() + 1, peers.end(), [](const Peer &p) { return p.welcome; });
  if (all) {
    ::close(std::exchange(listener, -1));
    for (Peer &stranger : strangers)
      ::close(std::exchange(stranger.socket, -1));
  }
  return all;
}

/// Reads who it is. What does not speak our language, such as a port scanner, is shown the door.
Result<void> SocketStar::welcome(Peer &stranger) {
  Header hello = {};
  const ssize_t count = ::recv(stranger.socket, &hello, sizeof hello, MSG_PEEK);
  if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return {};
  const Header expected = headerOf(Content::Hello, 0);
  if (count > 0 && count < static_cast<ssize_t>(sizeof hello) &&
      std::memcmp(&hello, &expected, std::min<size_t>(count, sizeof hello.magic)) == 0)
    return {};
  if (count != sizeof hello || hello.magic != expected.magic || hello.content != Content::Hello) {
    ::close(std::exchange(stranger.socket, -1));
    return {};
  }
  std::string wrong;
  if (hello.size != size || hello.rank < 1 || hello.rank >= size)
    wrong = fmt::format("rank {} of {} connected to rank 0 of {}", hello.rank, hello.size, size);
  else if (peers[static_cast<size_t>(hello.rank)].welcome)
    wrong = fmt::format("two ranks {} of {} connected", hello.rank, size);
  if (!wrong.empty()) {
    const std::string reason =
        wrong + "; start all ranks with the same WORLD_SIZE and a RANK of their own";
    put(stranger, headerOf(Content::News, reason.size()), reason.data());
    peers.push_back(std::exchange(stranger, {})); // hears the reason with the others
    peers.back().welcome = true;
    return makeError(ErrorCode::InvalidArgument, "{}", reason);
  }
  ::recv(stranger.socket, &hello, sizeof hello, 0);
  stranger.welcome = true;
  peers[static_cast<size_t>(hello.rank)] = std::exchange(stranger, {});
  return {};
}

} // namespace easyquant::comm
