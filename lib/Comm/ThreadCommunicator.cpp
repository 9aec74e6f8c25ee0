//===- ThreadCommunicator.cpp - Threads of one process as ranks -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The last rank to come does the work of all, under the group's lock. Nobody touches the memory of
// a rank that has given up, since a rank that gives up ends the group under the same lock.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Open.h"

#include "Reduce.h"

#include <cstring>
#include <deque>
#include <map>
#include <mutex>

namespace easyquant::comm {
namespace {

/// One collective, or one message between two ranks.
struct Meeting {
  struct Part {
    bool here = false;
    Collective collective;
    std::vector<int64_t> counts;
  };
  bool isMessage = false;
  std::vector<Part> parts; ///< one a rank; in a message sender and receiver
  size_t missing = 0;
  bool done = false;
};

struct ThreadGroup {
  explicit ThreadGroup(int size) : size(size), sequence(size, 0) {}

  std::mutex mutex;
  const int size;
  std::optional<Error> ended;
  std::vector<uint64_t> sequence;                        ///< collectives that a rank has started
  std::map<uint64_t, std::shared_ptr<Meeting>> meetings; ///< those that somebody still misses
  /// Messages of (from, to) of which one side is there.
  std::map<std::pair<int, int>, std::deque<std::shared_ptr<Meeting>>> messages;
};

bool isSame(const Collective &a, const Collective &b) {
  if (a.call != b.call || a.type != b.type || a.count != b.count)
    return false;
  return (a.call != Call::AllReduce || a.reduction == b.reduction) &&
         (a.call != Call::Broadcast || a.peer == b.peer);
}

/// Where the elements of each rank begin, and where the last ones end.
std::vector<int64_t> offsetsOf(const Meeting::Part &part, int size) {
  std::vector<int64_t> offsets(1, 0);
  for (int rank = 0; rank < size; ++rank)
    offsets.push_back(offsets.back() +
                      (part.counts.empty() ? part.collective.count / size : part.counts[rank]));
  return offsets;
}

void copy(void *to, const void *from, int64_t bytes) {
  if (bytes > 0 && to != from)
    std::memcpy(to, from, static_cast<size_t>(bytes));
}

void allReduce(Meeting &meeting) {
  const Collective &first = meeting.parts[0].collective;
  std::vector<void *> contributions;
  contributions.reserve(meeting.parts.size());
  for (Meeting::Part &part : meeting.parts)
    contributions.push_back(part.collective.data);
  reduceInOrder(first.type, first.reduction, first.count, contributions);
  for (void *result : contributions)
    copy(result, first.data, first.bytes());
}

void allGather(Meeting &meeting) {
  const int size = static_cast<int>(meeting.parts.size());
  const std::vector<int64_t> offsets = offsetsOf(meeting.parts[0], size);
  const int64_t element = bytesOf(meeting.parts[0].collective.type);
  for (int from = 0; from < size; ++from)
    for (Meeting::Part &to : meeting.parts) {
      const int64_t begin = offsets[from] * element, bytes = offsets[from + 1] * element - begin;
      copy(static_cast<std::byte *>(to.collective.data) + begin,
           static_cast<const std::byte *>(meeting.parts[from].collective.data) + begin, bytes);
    }
}

void meet(Meeting &meeting) {
  const Collective &first = meeting.parts[0].collective;
  switch (first.call) {
  case Call::AllReduce:
    allReduce(meeting);
    break;
  case Call::AllGather:
    allGather(meeting);
    break;
  case Call::Broadcast:
    for (Meeting::Part &part : meeting.parts)
      copy(part.collective.data, meeting.parts[first.peer].collective.data, first.bytes());
    break;
  case Call::Send:
    copy(meeting.parts[1].collective.data, first.data, first.bytes());
    break;
  case Call::Receive:
  case Call::Barrier:
    break;
  }
  meeting.done = true;
}

class ThreadCommunicator final : public Communicator {
public:
  ThreadCommunicator(int rank, std::shared_ptr<ThreadGroup> group, Limits limits)
      : Communicator(rank, group->size, limits), group(std::move(group)) {}
  ~ThreadCommunicator() override { leave(); }

  std::string_view backend() const override { return "threads"; }

protected:
  Result<std::unique_ptr<Operation>> begin(const Collective &collective) override;

  void stop(const Error &reason) override {
    std::lock_guard lock(group->mutex);
    if (!group->ended)
      group->ended = reason;
    group->meetings.clear();
    group->messages.clear();
  }

private:
  struct Attended final : Operation {
    Attended(ThreadCommunicator &owner, std::shared_ptr<Meeting> meeting)
        : owner(owner), meeting(std::move(meeting)) {}
    Result<bool> advance() override {
      std::lock_guard lock(owner.group->mutex);
      if (!meeting->done && owner.group->ended)
        return owner.ended();
      return meeting->done;
    }
    std::string waitsFor() const override {
      std::lock_guard lock(owner.group->mutex);
      std::string ranks;
      for (size_t rank = 0; rank < meeting->parts.size(); ++rank)
        if (!meeting->parts[rank].here && !meeting->isMessage)
          ranks += fmt::format("{}rank {}", ranks.empty() ? "" : ", ", rank);
      return ranks;
    }
    ThreadCommunicator &owner;
    std::shared_ptr<Meeting> meeting;
  };

  Unexpected ended() const {
    return makeError(group->ended->code, "given up, because of {}", group->ended->message);
  }

  std::shared_ptr<Meeting> meetingOf(const Collective &collective, size_t &seat);
  Result<void> compare(const Meeting &meeting, const Collective &collective) const;

  std::shared_ptr<ThreadGroup> group;
};

/// The meeting that this rank's next collective belongs to, and its place there.
std::shared_ptr<Meeting> ThreadCommunicator::meetingOf(const Collective &collective, size_t &seat) {
  const auto make = [](size_t seats) {
    auto meeting = std::make_shared<Meeting>();
    meeting->parts.resize(seats);
    meeting->missing = seats;
    return meeting;
  };
  if (collective.call == Call::Send || collective.call == Call::Receive) {
    const bool sends = collective.call == Call::Send;
    seat = sends ? 0 : 1;
    auto &queue = group->messages[sends ? std::pair(rank(), collective.peer)
                                        : std::pair(collective.peer, rank())];
    if (queue.empty() || queue.front()->parts[seat].here) {
      queue.push_back(make(2));
      queue.back()->isMessage = true;
      return queue.back();
    }
    auto meeting = queue.front();
    queue.pop_front();
    return meeting;
  }
  seat = static_cast<size_t>(rank());
  const uint64_t number = group->sequence[seat]++;
  std::shared_ptr<Meeting> &meeting = group->meetings[number];
  if (!meeting)
    meeting = make(static_cast<size_t>(group->size));
  std::shared_ptr<Meeting> result = meeting;
  if (result->missing == 1)
    group->meetings.erase(number);
  return result;
}

Result<void> ThreadCommunicator::compare(const Meeting &meeting,
                                         const Collective &collective) const {
  if (meeting.isMessage) {
    const Meeting::Part &other = meeting.parts[collective.call == Call::Send ? 1 : 0];
    if (!other.here || other.collective.bytes() == collective.bytes())
      return {};
    return makeError(ErrorCode::InvalidArgument, "rank {} has {} bytes; both must have as many",
                     collective.peer, other.collective.bytes());
  }
  for (size_t peer = 0; peer < meeting.parts.size(); ++peer) {
    const Meeting::Part &part = meeting.parts[peer];
    if (part.here && !isSame(part.collective, collective))
      return makeError(ErrorCode::InvalidArgument,
                       "rank {} started {} of {} {}; all ranks must start the same collectives in "
                       "the same order",
                       peer, nameOf(part.collective.call), part.collective.count,
                       nameOf(part.collective.type));
  }
  return {};
}

Result<std::unique_ptr<Communicator::Operation>>
ThreadCommunicator::begin(const Collective &collective) {
  if (collective.memory == Memory::Device)
    return makeError(ErrorCode::Unsupported, "threads work on host memory only; use NCCL");
  std::lock_guard lock(group->mutex);
  if (group->ended)
    return ended();
  size_t seat = 0;
  std::shared_ptr<Meeting> meeting = meetingOf(collective, seat);
  if (Result<void> same = compare(*meeting, collective); !same)
    return Unexpected(same.error());
  meeting->parts[seat] = {true, collective, {collective.counts.begin(), collective.counts.end()}};
  if (--meeting->missing == 0)
    meet(*meeting);
  return std::make_unique<Attended>(*this, std::move(meeting));
}

} // namespace

std::vector<std::unique_ptr<Communicator>> makeThreadCommunicators(int size, Limits limits) {
  auto group = std::make_shared<ThreadGroup>(size);
  std::vector<std::unique_ptr<Communicator>> communicators;
  communicators.reserve(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank)
    communicators.push_back(std::make_unique<ThreadCommunicator>(rank, group, limits));
  return communicators;
}

} // namespace easyquant::comm
