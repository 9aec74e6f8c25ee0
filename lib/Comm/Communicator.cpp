//===- Communicator.cpp - What all backends have in common ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Comm/Communicator.h"

#include "Patience.h"

#include <algorithm>
#include <numeric>

namespace easyquant::comm {

int64_t bytesOf(ElementType type) {
  constexpr int64_t bytes[] = {1, 4, 8, 4, 8};
  return bytes[static_cast<int>(type)];
}

std::string_view nameOf(ElementType type) {
  constexpr std::string_view names[] = {"bytes", "i32", "i64", "f32", "f64"};
  return names[static_cast<int>(type)];
}

std::string_view nameOf(Call call) {
  constexpr std::string_view names[] = {"all-reduce", "all-gather", "broadcast",
                                        "barrier",    "send",       "receive"};
  return names[static_cast<int>(call)];
}

std::string_view nameOf(Reduction reduction) {
  constexpr std::string_view names[] = {"sum", "min", "max"};
  return names[static_cast<int>(reduction)];
}

std::string Communicator::whoAmI() const { return fmt::format("rank {} of {}", ownRank, ranks); }

std::string Communicator::describe(const Collective &collective) const {
  std::string text = fmt::format("{}: {}", whoAmI(), nameOf(collective.call));
  if (collective.call == Call::AllReduce)
    text += fmt::format(" ({})", nameOf(collective.reduction));
  if (collective.call != Call::Barrier)
    text += fmt::format(" of {} {} ({} bytes)", collective.count, nameOf(collective.type),
                        collective.bytes());
  if (collective.call == Call::Send || collective.call == Call::Receive)
    text +=
        fmt::format(" {} rank {}", collective.call == Call::Send ? "to" : "from", collective.peer);
  if (!collective.site.empty())
    text += fmt::format(" at {}", collective.site);
  return text;
}

Error Communicator::about(const Collective &collective, const Error &reason) const {
  return {reason.code, fmt::format("{}: {}", describe(collective), reason.message)};
}

Result<void> Communicator::validate(const Collective &collective) const {
  const auto refuse = [&](const std::string &reason) {
    return makeError(ErrorCode::InvalidArgument, "{}: {}", describe(collective), reason);
  };
  if (collective.count < 0 || (collective.count > 0 && !collective.data))
    return refuse("found no memory or a negative count, expected memory of that many elements");
  const bool one = collective.call == Call::Send || collective.call == Call::Receive;
  if (one || collective.call == Call::Broadcast) {
    if (collective.peer < 0 || collective.peer >= ranks || (one && collective.peer == ownRank))
      return refuse(fmt::format("found rank {}, expected {}rank in 0..{}", collective.peer,
                                one ? "another " : "a ", ranks - 1));
  }
  if (one && !hasPointToPoint())
    return makeError(ErrorCode::Unsupported, "{}: {} has no sends and receives; broadcast instead",
                     describe(collective), backend());
  if (collective.call == Call::AllReduce && collective.type == ElementType::Byte)
    return refuse("found bytes, expected i32, i64, f32 or f64");
  if (collective.call != Call::AllGather)
    return {};
  if (collective.counts.empty()) {
    if (collective.count % ranks != 0)
      return refuse(fmt::format("found {} elements, expected a multiple of {} ranks, or `counts`",
                                collective.count, ranks));
    return {};
  }
  const auto &counts = collective.counts;
  if (counts.size() != static_cast<size_t>(ranks) ||
      std::any_of(counts.begin(), counts.end(), [](int64_t count) { return count < 0; }) ||
      std::accumulate(counts.begin(), counts.end(), int64_t(0)) != collective.count)
    return refuse(fmt::format("found {} counts, expected {}, none negative, with the sum {}",
                              counts.size(), ranks, collective.count));
  return {};
}

Unexpected Communicator::fail(Error error) {
  if (!poison) {
    poison = std::move(error);
    stop(*poison);
    pending.clear();
  }
  return Unexpected(*poison);
}

Result<Request> Communicator::start(const Collective &collective) {
  if (poison)
    return Unexpected(*poison);
  if (Result<void> valid = validate(collective); !valid)
    return Unexpected(valid.error());
  Result<std::unique_ptr<Operation>> operation = begin(collective);
  if (!operation) {
    Error error = about(collective, operation.error());
    if (error.code == ErrorCode::Unsupported)
      return Unexpected(error);
    return fail(error);
  }
  const Request request{++tickets};
  pending.push_back({request.ticket, collective, std::move(*operation)});
  return request;
}

Result<bool> Communicator::advanceUpTo(uint64_t ticket) {
  if (poison)
    return Unexpected(*poison);
  bool done = true;
  for (size_t i = 0; i < pending.size();) {
    Result<bool> finished = pending[i].operation->advance();
    if (!finished)
      return fail(about(pending[i].collective, finished.error()));
    if (*finished) {
      pending.erase(pending.begin() + static_cast<ptrdiff_t>(i));
      continue;
    }
    done = done && pending[i].ticket != ticket;
    ++i;
  }
  return done;
}

Result<bool> Communicator::poll(Request request) {
  if (request.ticket == 0 || request.ticket > tickets)
    return makeError(ErrorCode::InvalidArgument,
                     "{}: found request {}, expected one of the {} that were started", whoAmI(),
                     request.ticket, tickets);
  return advanceUpTo(request.ticket);
}

Result<void> Communicator::wait(Request request) {
  Patience patience(limits);
  for (;;) {
    Result<bool> done = poll(request);
    if (!done)
      return Unexpected(done.error());
    if (*done)
      return {};
    if (patience.isInterrupted() || patience.mayLookAround()) {
      const auto waiting =
          std::find_if(pending.begin(), pending.end(), [&](const Pending &candidate) {
            return candidate.ticket == request.ticket;
          });
      const std::string what = describe(waiting->collective);
      if (patience.isInterrupted())
        return fail({ErrorCode::Interrupted, fmt::format("{}: interrupted", what)});
      if (Result<void> heard = listen(); !heard)
        return fail(about(waiting->collective, heard.error()));
      if (patience.isExhausted()) {
        const std::string peers = waiting->operation->waitsFor();
        return fail(
            {ErrorCode::IO,
             fmt::format("{}: not done after {:.1f} s{}{}; a rank is gone, stopped or doing "
                         "something else: look at the messages of the others, or allow "
                         "more time",
                         what, patience.seconds(), peers.empty() ? "" : ", waiting for ", peers)});
      }
    }
    patience.pause();
  }
}

Result<void> Communicator::run(const Collective &collective) {
  Result<Request> request = start(collective);
  if (!request)
    return Unexpected(request.error());
  return wait(*request);
}

Result<void> Communicator::pollUntil(std::string_view what,
                                     const std::function<Result<bool>()> &done,
                                     const std::function<std::string()> &waitsFor) {
  Patience patience(limits);
  for (;;) {
    Result<bool> finished = done();
    if (!finished)
      return makeError(finished.error().code, "{}: {}", what, finished.error().message);
    if (*finished)
      return {};
    if (patience.isInterrupted())
      return makeError(ErrorCode::Interrupted, "{}: interrupted", what);
    if (patience.mayLookAround() && patience.isExhausted())
      return makeError(ErrorCode::IO,
                       "{}: not done after {:.1f} s{}{}; a rank is gone, stopped or was never "
                       "started: look at the messages of the others, or allow more time",
                       what, patience.seconds(), waitsFor ? ", waiting for " : "",
                       waitsFor ? waitsFor() : "");
    patience.pause();
  }
}

Result<void> Communicator::enqueueOnDevice(const Collective & /*collective*/) {
  return makeError(ErrorCode::Unsupported, "{} works on host memory only; use NCCL", backend());
}

Result<void> Communicator::enqueue(const Collective &collective) {
  if (poison)
    return Unexpected(*poison);
  if (Result<void> valid = validate(collective); !valid)
    return valid;
  Result<void> enqueued = enqueueOnDevice(collective);
  if (enqueued)
    return {};
  Error error = about(collective, enqueued.error());
  if (error.code == ErrorCode::Unsupported)
    return Unexpected(error);
  return fail(error);
}

Result<bool> Communicator::isStreamDone(void * /*stream*/) {
  return makeError(ErrorCode::Unsupported, "{} knows of no streams; use NCCL", backend());
}

Result<void> Communicator::synchronize(void *stream) {
  if (poison)
    return Unexpected(*poison);
  const auto isDone = [&]() -> Result<bool> {
    if (Result<bool> done = isStreamDone(stream); !done || *done)
      return done;
    if (Result<void> heard = listen(); !heard)
      return Unexpected(heard.error());
    return false;
  };
  Result<void> done = pollUntil(fmt::format("{}: waiting for the GPU", whoAmI()), isDone);
  return done ? done : fail(done.error());
}

Result<void> Communicator::check() {
  if (poison)
    return Unexpected(*poison);
  if (Result<void> heard = listen(); !heard)
    return fail({heard.error().code, fmt::format("{}: {}", whoAmI(), heard.error().message)});
  return {};
}

void Communicator::abort(const Error &reason) {
  if (!poison)
    fail(reason);
}

Result<void> Communicator::close() {
  if (closed)
    return {};
  Result<void> ended = barrier();
  if (ended)
    ended = finish();
  closed = closed || ended;
  return ended;
}

void Communicator::leave() {
  if (!closed && !poison)
    fail({ErrorCode::IO, fmt::format("{} has left before the others were done", whoAmI())});
}

void letOthersSpeak() { std::this_thread::sleep_for(std::chrono::seconds(1)); }

} // namespace easyquant::comm
