//===- Ranks.cpp - Ranks that compute a model together --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Ranks.h"

#include "easyquant/Comm/Agreement.h"

#include <algorithm>
#include <bit>
#include <map>

using namespace easyquant;
using namespace easyquant::runtime;

namespace {

/// What a message begins with; behind it comes the number of the executor.
enum Order : int64_t { End, Create, Destroy, CopyInCache, WriteState, CopyRecurrent, Step };

/// A message's first part, which has a fixed length: most need no second one.
constexpr size_t kFirstPart = 128;

/// Reads a message that rank 0 of this very program has written.
class MessageReader {
public:
  explicit MessageReader(std::span<const int64_t> message) : message(message) {}
  int64_t next() { return take(1).front(); }
  std::span<const int64_t> take(int64_t count) {
    std::span<const int64_t> taken = message.first(static_cast<size_t>(count));
    message = message.subspan(static_cast<size_t>(count));
    return taken;
  }

private:
  std::span<const int64_t> message;
};

} // namespace

//===----------------------------------------------------------------------===//
// Messages
//===----------------------------------------------------------------------===//

Result<void> Ranks::tell(const Message &message) {
  Message first(kFirstPart, 0);
  first[0] = std::ssize(message);
  const size_t count = std::min(message.size(), kFirstPart - 1);
  std::copy_n(message.begin(), count, first.begin() + 1);
  if (Result<void> sent = communicator->broadcast<int64_t>(first); !sent)
    return sent;
  if (count == message.size())
    return {};
  Message rest(message.begin() + static_cast<std::ptrdiff_t>(count), message.end());
  return communicator->broadcast<int64_t>(rest);
}

Result<Ranks::Message> Ranks::hear() {
  Message first(kFirstPart, 0);
  if (Result<void> heard = communicator->broadcast<int64_t>(first); !heard)
    return Unexpected(heard.error());
  const auto length = static_cast<size_t>(first[0]);
  const size_t count = std::min(length, kFirstPart - 1);
  Message message(first.begin() + 1, first.begin() + 1 + static_cast<std::ptrdiff_t>(count));
  if (count == length)
    return message;
  Message rest(length - count);
  if (Result<void> heard = communicator->broadcast<int64_t>(rest); !heard)
    return Unexpected(heard.error());
  message.insert(message.end(), rest.begin(), rest.end());
  return message;
}

Ranks::~Ranks() {
  if (rank() == 0 && !communicator->failure() && tell({End}))
    static_cast<void>(communicator->close());
}

Result<void> Ranks::agreeOn(const std::string &folder, const Manifest &manifest,
                            const std::string &text) const {
  const comm::Agreed subjects[] = {comm::Agreed::of("the artifact", text)};
  if (Result<void> agreed = comm::agree(*communicator, subjects); !agreed)
    return agreed;
  if (manifest.ranks() == size())
    return {};
  return makeError(
      ErrorCode::InvalidArgument,
      "{}: was compiled for {} rank{}, found {}; start {} (mpirun -n {}), or compile it "
      "with --tensor-parallel {}",
      folder, manifest.ranks(), manifest.ranks() == 1 ? "" : "s", size(), manifest.ranks(),
      manifest.ranks(), size());
}

//===----------------------------------------------------------------------===//
// Rank 0
//===----------------------------------------------------------------------===//

namespace easyquant::runtime {

class LeadingExecutor final : public Executor {
public:
  LeadingExecutor(Ranks &ranks, std::unique_ptr<Executor> own, int64_t id)
      : ranks(ranks), own(std::move(own)), id(id) {}
  ~LeadingExecutor() override {
    std::lock_guard lock(ranks.mutex);
    if (!ranks.communicator->failure())
      static_cast<void>(ranks.tell({Destroy, id}));
  }

  Result<void> inThreads(int32_t threads, ThreadWork work) override {
    return own->inThreads(threads, work);
  }
  int64_t rowsPerStep(bool allLogits) const override { return own->rowsPerStep(allLogits); }
  int64_t bytes() const override { return own->bytes(); }
  Result<PhaseCosts> costs() override { return own->costs(); }
  Result<std::vector<SiteCost>> siteCosts() override { return own->siteCosts(); }

  Result<void> copyInCache(int64_t from, int64_t to, int64_t bytes) override {
    std::lock_guard lock(ranks.mutex);
    return ranks.tell({CopyInCache, id, from, to, bytes}).and_then([&] {
      return own->copyInCache(from, to, bytes);
    });
  }

  // Each rank has a share of the cache, so that a batch asks for no part of it.
  Result<void> readCache(int64_t from, std::span<std::byte> to) override {
    return own->readCache(from, to);
  }
  Result<void> writeCache(int64_t to, std::span<const std::byte> from) override {
    return own->writeCache(to, from);
  }
  // The state of all ranks is the same.
  Result<void> readState(int64_t slot, std::span<double> state) override {
    return own->readState(slot, state);
  }
  Result<void> writeState(int64_t slot, std::span<const double> state) override {
    Ranks::Message message = {WriteState, id, slot, std::ssize(state)};
    for (double number : state)
      message.push_back(std::bit_cast<int64_t>(number));
    std::lock_guard lock(ranks.mutex);
    return ranks.tell(message).and_then([&] { return own->writeState(slot, state); });
  }

  // Each rank has a share of what layers keep, so that a batch asks for no part of it.
  Result<void> readRecurrent(int64_t slot, std::span<float> state) override {
    return own->readRecurrent(slot, state);
  }
  Result<void> writeRecurrent(int64_t slot, std::span<const float> state) override {
    return own->writeRecurrent(slot, state);
  }
  Result<void> copyRecurrent(int64_t from, int64_t to) override {
    std::lock_guard lock(ranks.mutex);
    return ranks.tell({CopyRecurrent, id, from, to}).and_then([&] {
      return own->copyRecurrent(from, to);
    });
  }

  Result<void> step(std::span<const SequenceStep> sequences, std::span<const int32_t> logitRows,
                    float *logits, const Watch &watch) override {
    std::vector<int64_t> message = {Step, id, std::ssize(sequences), std::ssize(logitRows)};
    for (const SequenceStep &sequence : sequences) {
      message.insert(message.end(),
                     {sequence.position, sequence.held, sequence.window, sequence.slot,
                      sequence.nextSlot, std::ssize(sequence.tokens), std::ssize(sequence.pages),
                      std::ssize(sequence.slidingPages)});
      message.insert(message.end(), sequence.tokens.begin(), sequence.tokens.end());
      for (std::span<const int64_t> pages : {sequence.pages, sequence.slidingPages})
        message.insert(message.end(), pages.begin(), pages.end());
    }
    message.insert(message.end(), logitRows.begin(), logitRows.end());
    std::lock_guard lock(ranks.mutex);
    if (Result<void> told = ranks.tell(message); !told)
      return told;
    return own->step(sequences, logitRows, logits, watch);
  }

private:
  Ranks &ranks;
  std::unique_ptr<Executor> own;
  int64_t id;
};

} // namespace easyquant::runtime

Result<std::unique_ptr<Executor>> Ranks::lead(std::unique_ptr<Executor> executor,
                                              const PoolSize &pool) {
  std::lock_guard lock(mutex);
  const int64_t id = executors++;
  if (Result<void> told =
          tell({Create, id, pool.sequences, pool.pages, pool.slidingPages, pool.slots});
      !told)
    return Unexpected(told.error());
  return std::make_unique<LeadingExecutor>(*this, std::move(executor), id);
}

//===----------------------------------------------------------------------===//
// The others
//===----------------------------------------------------------------------===//

static Result<void> followStep(Executor &executor, MessageReader message, int64_t vocabulary) {
  const int64_t count = message.next(), logitCount = message.next();
  std::vector<SequenceStep> steps(static_cast<size_t>(count));
  std::vector<std::vector<int32_t>> tokens(steps.size());
  for (size_t i = 0; i < steps.size(); ++i) {
    SequenceStep &step = steps[i];
    step.position = message.next();
    step.held = message.next();
    step.window = message.next();
    step.slot = message.next();
    step.nextSlot = message.next();
    const int64_t length = message.next(), pages = message.next(), sliding = message.next();
    std::span<const int64_t> numbers = message.take(length);
    tokens[i].assign(numbers.begin(), numbers.end());
    step.tokens = tokens[i];
    step.pages = message.take(pages);
    step.slidingPages = message.take(sliding);
  }
  std::span<const int64_t> numbers = message.take(logitCount);
  std::vector<int32_t> rows(numbers.begin(), numbers.end());
  std::vector<float> logits(static_cast<size_t>(logitCount * vocabulary));
  return executor.step(steps, rows, logits.data(), Watch{{}, 0, 0});
}

Result<void> Ranks::follow(int64_t vocabulary, const CreateExecutor &create) {
  std::map<int64_t, std::unique_ptr<Executor>> known;
  auto act = [&](Order order, int64_t id, MessageReader message) -> Result<void> {
    if (order == Create) {
      PoolSize pool;
      pool.sequences = message.next();
      pool.pages = message.next();
      pool.slidingPages = message.next();
      pool.slots = message.next();
      auto created = create(pool);
      if (!created)
        return Unexpected(created.error());
      known[id] = std::move(*created);
      return {};
    }
    if (order == Destroy) {
      known.erase(id);
      return {};
    }
    if (order == CopyInCache) {
      const int64_t from = message.next(), to = message.next();
      return known.at(id)->copyInCache(from, to, message.next());
    }
    if (order == WriteState) {
      const int64_t slot = message.next();
      std::vector<double> state;
      for (int64_t number : message.take(message.next()))
        state.push_back(std::bit_cast<double>(number));
      return known.at(id)->writeState(slot, state);
    }
    if (order == CopyRecurrent) {
      const int64_t from = message.next();
      return known.at(id)->copyRecurrent(from, message.next());
    }
    return followStep(*known.at(id), message, vocabulary);
  };
  while (true) {
    Result<Message> heard = hear();
    if (!heard)
      return Unexpected(heard.error());
    MessageReader message(*heard);
    const auto order = static_cast<Order>(message.next());
    if (order == End)
      return communicator->close();
    const int64_t id = message.next();
    if (Result<void> done = act(order, id, message); !done) {
      communicator->abort(done.error());
      return done;
    }
  }
}
