//===- KeptStates.cpp - States that sequences go back to ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// No token can be taken from a recurrent state. So a sequence has states from before, which it goes
// on from where it is cut, and the next call reads the tokens between again (Append.cpp). A step
// never writes the slot that it reads, so that sequences share states as they share pages. A
// sequence whose layers have a window (SlidingPages.cpp) begins again where the window is gone.
//
//===----------------------------------------------------------------------===//

#include "Executor.h"
#include "SequenceState.h"

#include <algorithm>
#include <iterator>
#include <utility>

using namespace easyquant;
using namespace easyquant::runtime;

Batch::State Batch::share(const State &state) noexcept {
  if (state.slot >= 0)
    pool->slots.share(state.slot);
  return state;
}

void Batch::release(State &state) noexcept {
  if (state.slot >= 0)
    pool->slots.release(state.slot);
  state = {};
}

void Batch::release(Sequence &sequence) noexcept {
  sequence.position = sequence.state.position = 0;
  trim(sequence);
  if (sequence.window >= 0)
    pool->windows.release(sequence.window);
  for (State *state : {&sequence.state, &sequence.before})
    release(*state);
  for (State &state : sequence.kept)
    release(state);
  pool->hidden.release(sequence.recent.places);
  dropLogits(sequence);
}

bool Batch::mayReadAgain() const { return isRecurrent() || pool->sizes().sliding; }

Batch::State Batch::newest(const Sequence &sequence, int64_t position) const {
  State found;
  if (!isRecurrent()) {
    position = std::min(position, sequence.state.position);
    if (hasWindows(sequence, position))
      found.position = position;
    return found;
  }
  auto look = [&](const State &state) {
    if (state.slot >= 0 && found.position <= state.position && state.position <= position &&
        hasWindows(sequence, state.position))
      found = state;
  };
  std::ranges::for_each(sequence.kept, look);
  look(sequence.before);
  look(sequence.state);
  return found;
}

Result<int64_t> Batch::resumePosition(int64_t id, int64_t position) const {
  return this->position(id).transform([&](int64_t held) {
    const int64_t cut = std::clamp(position, int64_t(0), held);
    return mayReadAgain() ? newest(sequences.at(id), cut).position : cut;
  });
}

Result<void> Batch::moveTo(Sequence &sequence, const State &state) {
  if (state.slot < 0) {
    sequence.state.position = state.position;
    return {};
  }
  State moved = state;
  if (const auto &online = owner->manifest().online) {
    std::vector<double> scales(static_cast<size_t>(stateFields(*online)));
    if (Result<void> read = executor->readState(sequence.state.slot, scales); !read)
      return read;
    moved.slot = pool->slots.take();
    Result<void> written = executor->copyRecurrent(state.slot, moved.slot).and_then([&] {
      return executor->writeState(moved.slot, scales);
    });
    if (!written) {
      release(moved);
      return written;
    }
  } else {
    share(state);
  }
  release(sequence.state);
  sequence.state = moved;
  return {};
}

Result<void> Batch::goBack(Sequence &sequence, int64_t position) {
  if (!mayReadAgain()) {
    sequence.state.position = position;
    return {};
  }
  if (sequence.state.position > position)
    if (Result<void> moved = moveTo(sequence, newest(sequence, position)); !moved)
      return moved;
  if (sequence.before.position > position)
    release(sequence.before);
  for (; !sequence.kept.empty() && sequence.kept.back().position > position;
       sequence.kept.pop_back())
    release(sequence.kept.back());
  sequence.tokens.resize(static_cast<size_t>(position));
  return {};
}

Result<void> Batch::writeScales(Sequence &sequence, std::span<const double> scales) {
  State written = sequence.state;
  Result<void> result;
  if (pool->slots.isShared(written.slot)) { // as that of a fork, which keeps its own
    written.slot = pool->slots.take();
    if (isRecurrent())
      result = executor->copyRecurrent(sequence.state.slot, written.slot);
  }
  if (result)
    result = executor->writeState(written.slot, scales);
  if (written.slot != sequence.state.slot) {
    if (result)
      std::swap(written, sequence.state);
    release(written);
  }
  return result;
}
