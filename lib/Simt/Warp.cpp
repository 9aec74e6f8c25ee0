//===- Warp.cpp - Groups of lanes and how they run ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::simt;

Warp::Warp(Block &block, unsigned index, Mask lanes)
    : block(block), launch(block.launch), index(index), alive(lanes) {
  bases[1] = const_cast<std::byte *>(launch.decoded.constants.data());
  if (launch.checker)
    known.assign(launch.warpsOfBlock(), 0);
  Frame *frame = newFrame(*launch.decoded.kernel, nullptr, lanes);
  mask = lanes;
  pc = frame->function->entry;
  enter(frame);
}

// ---- frames ------------------------------------------------------------------------------------

Frame *Warp::newFrame(const FunctionCode &function, Frame *caller, Mask lanes) {
  auto reusable = std::find_if(spare.begin(), spare.end(),
                               [&](const auto &f) { return f->function == &function; });
  std::unique_ptr<Frame> made;
  if (reusable != spare.end()) {
    made = std::move(*reusable);
    spare.erase(reusable);
    std::fill(made->storage.begin(), made->storage.end(), std::byte{0});
  } else {
    made = std::make_unique<Frame>();
    made->storage.resize(function.frameBytes + 64);
    auto address = reinterpret_cast<uintptr_t>(made->storage.data());
    made->registers = made->storage.data() + ((address + 63) / 64 * 64 - address);
    made->parameters.resize(size_t(function.parameterBytes) * kLanes);
  }
  made->function = &function;
  made->caller = caller;
  made->lanes = lanes;
  made->depth = caller ? caller->depth + 1 : 0;
  made->localBase = caller ? caller->localBase + (caller->function->localBytes + 15) / 16 * 16
                           : kFirstLocalAddress;
  growLocal(made->localBase + function.localBytes - kFirstLocalAddress);
  if (launch.checker) {
    made->defined.assign(function.registers, 0);
    forEachLane(function.localBytes ? lanes : 0, [&](unsigned lane) {
      uint8_t *state = localState.data() + size_t(lane) * localStride;
      std::fill_n(state + (made->localBase - kFirstLocalAddress), function.localBytes, 0);
    });
  }
  initialiseSpecials(*made);
  frames.push_back(std::move(made));
  return frames.back().get();
}

void Warp::growLocal(uint32_t bytes) {
  if (bytes <= localStride)
    return;
  if (bytes > 16u << 20)
    throw std::bad_alloc();
  uint32_t stride = (bytes + 255) / 256 * 256;
  std::vector<std::byte> larger(size_t(stride) * kLanes);
  std::vector<uint8_t> state(launch.checker ? larger.size() : 0);
  for (unsigned lane = 0; lane < kLanes && localStride; ++lane) {
    std::copy_n(local.begin() + size_t(lane) * localStride, localStride,
                larger.begin() + size_t(lane) * stride);
    if (launch.checker)
      std::copy_n(localState.begin() + size_t(lane) * localStride, localStride,
                  state.begin() + size_t(lane) * stride);
  }
  local = std::move(larger);
  localState = std::move(state);
  localStride = stride;
  launch.localBytesPerThread = std::max(launch.localBytesPerThread, bytes);
}

void Warp::enter(Frame *next) {
  frame = next;
  bases[0] = frame->registers;
}

void Warp::initialiseSpecials(Frame &target) {
  for (const FunctionCode::Special &special : target.function->specials) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
      uint64_t value = special.value({*this, target, lane, special.index});
      std::memcpy(target.registers + special.slot + size_t(lane) * special.bytes, &value,
                  special.bytes);
    }
    if (launch.checker)
      target.defined[special.registerIndex] = kAllLanes;
  }
}

void Warp::dropLanes(Frame *from, Mask lanes) {
  from->lanes &= ~lanes;
  if (from->lanes)
    return;
  auto found =
      std::find_if(frames.begin(), frames.end(), [&](const auto &f) { return f.get() == from; });
  spare.push_back(std::move(*found));
  frames.erase(found);
}

// ---- control flow ------------------------------------------------------------------------------

void Warp::branch(uint32_t target, Mask taken) {
  if (taken == mask) {
    pc = target;
    return;
  }
  ++launch.divergentBranches;
  pending.push_back({frame, target, taken});
  mask &= ~taken;
  regroup = true;
}

void Warp::splitTo(const std::array<uint32_t, kLanes> &targets, Mask lanes) {
  launch.divergentBranches += 1;
  mask &= ~lanes;
  forEachLane(lanes, [&](unsigned lane) { pending.push_back({frame, targets[lane], 1u << lane}); });
  regroup = true;
}

/// Copies parameters or results of `lanes` from one frame to another.
static void pass(const std::vector<ParameterPlace> &from, Frame &source,
                 const std::vector<ParameterPlace> &to, Frame &target, Mask lanes) {
  for (size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
    const ParameterPlace &a = from[i], &b = to[i];
    uint32_t bytes = std::min(a.bytes, b.bytes);
    forEachLane(lanes,
                [&](unsigned lane) { std::memcpy(target.at(b, lane), source.at(a, lane), bytes); });
    if (b.inRegister && !target.defined.empty())
      target.defined[b.registerIndex] |= lanes;
  }
}

void Warp::call(const FunctionCode &callee, const CallSite &site, Mask lanes) {
  if (frame->depth > 256)
    stop(Finding::BadOperand, launch.decoded.code[pc - 1], lanes, "calls are nested too deeply");
  Frame *made = newFrame(callee, frame, lanes);
  made->site = &site;
  made->returnTo = pc;
  pass(site.arguments, *frame, callee.parameters, *made, lanes);
  pending.push_back({made, callee.entry, lanes});
  mask &= ~lanes;
  regroup = true;
}

void Warp::returnFrom(Mask lanes) {
  Frame *from = frame;
  if (!from->caller)
    return exit(lanes);
  pass(from->function->results, *from, from->site->results, *from->caller, lanes);
  pending.push_back({from->caller, from->returnTo, lanes});
  mask &= ~lanes;
  regroup = true;
  dropLanes(from, lanes);
}

void Warp::exit(Mask lanes) {
  for (Frame *f = frame; f;) {
    Frame *caller = f->caller;
    dropLanes(f, lanes);
    f = caller;
  }
  takeCopies([&](const PendingCopy &copy) { return lanes >> copy.lane & 1; },
             [&](const PendingCopy &copy) { finishCopy(copy); });
  mask &= ~lanes;
  alive &= ~lanes;
  regroup = true;
  block.checkBarriers();
}

bool Warp::converge(const Instruction &i, Mask members, Mask lanes) {
  Mask missing = members & alive & ~lanes;
  if (!missing)
    return true;
  if (missing & mask) // their guard is false: they will never come
    stop(Finding::DivergentBarrier, i, lanes,
         fmt::format("needs {}, whose guard is false", describeLanes(*this, missing & mask)));
  pending.push_back({frame, launch.pcOf(i), mask, Group::Converging, 0, members & alive});
  mask = 0;
  regroup = true;
  return false;
}

bool Warp::convergeWhole(const Instruction &i, Mask lanes) {
  if (!converge(i, alive, lanes))
    return false;
  if (lanes != kAllLanes)
    stop(Finding::DivergentBarrier, i, lanes, "needs all 32 lanes of the warp");
  return true;
}

void Warp::waitAt(uint8_t barrier) {
  pending.push_back({frame, pc, mask, Group::AtBarrier, barrier});
  mask = 0;
  regroup = true;
}

void Warp::release(uint8_t barrier) {
  for (Group &group : pending)
    if (group.state == Group::AtBarrier && group.barrier == barrier)
      group.state = Group::Ready;
  regroup = true;
}

bool Warp::runnable() const {
  if (mask)
    return true;
  return std::any_of(pending.begin(), pending.end(),
                     [](const Group &g) { return g.state != Group::AtBarrier; });
}

/// No group is ready: lanes that wait for others which have exited go on; it is a finding.
bool Warp::unblock() {
  for (Group &group : pending) {
    if (group.state != Group::Converging)
      continue;
    const Instruction &i = launch.decoded.code[group.pc];
    Mask missing = group.members & ~group.mask;
    std::string what = fmt::format("is executed by {} but not by {}",
                                   describeLanes(*this, group.mask), describeLanes(*this, missing));
    if (missing & alive)
      stop(Finding::DivergentBarrier, i, group.mask, what);
    if (launch.checker)
      launch.report(Finding::DivergentBarrier, group.pc, block,
                    thread(std::countr_zero(group.mask)), what + ", which have exited");
    group.state = Group::Ready;
    return true;
  }
  return false;
}

bool Warp::reschedule() {
  regroup = false;
  if (mask) {
    pending.push_back({frame, pc, mask});
    mask = 0;
  }
  const Group *best = nullptr;
  do {
    for (const Group &g : pending)
      if (g.state == Group::Ready && (!best || g.frame->depth > best->frame->depth ||
                                      (g.frame->depth == best->frame->depth &&
                                       (inverted ? g.pc > best->pc : g.pc < best->pc))))
        best = &g;
  } while (!best && unblock());
  if (!best)
    return false;
  Group chosen = *best;
  mask = 0;
  watch = ~0u;
  size_t kept = 0;
  for (const Group &g : pending) {
    bool sameFrame = g.frame == chosen.frame && g.state != Group::AtBarrier;
    if (sameFrame && g.pc == chosen.pc) {
      mask |= g.mask;
      continue;
    }
    if (sameFrame && !inverted)
      watch = std::min(watch, g.pc);
    pending[kept++] = g;
  }
  pending.resize(kept);
  pc = chosen.pc;
  enter(chosen.frame);
  return true;
}

template <bool checked> void Warp::loop(uint64_t quantum) {
  const Instruction *code = launch.decoded.code.data();
  Counters *counters = launch.perInstruction.data();
  uint64_t done = 0;
  while (done < quantum) {
    if (regroup || pc >= watch || !mask)
      if (!reschedule())
        break;
    const Instruction &i = code[pc];
    Mask m = mask;
    if (i.guard != kNoSlot)
      m &= predicate(i.guard) ^ i.guardFlip;
    Counters &counter = counters[pc];
    ++counter.issued;
    counter.lanes += std::popcount(m);
    ++pc;
    ++done;
    if constexpr (checked) {
      Frame *current = frame;
      launch.checker->before(*this, i, m);
      if (m) {
        i.run(*this, i, m);
        launch.checker->after(*this, i, m, *current);
      }
    } else if (m) {
      i.run(*this, i, m);
    }
    if (yielded)
      break;
  }
  launch.executed += done;
  launch.time += done;
}

void Warp::run(uint64_t quantum) {
  yielded = false;
  if (launch.checker)
    loop<true>(quantum);
  else
    loop<false>(quantum);
  // Give the other groups their turn: one of them may be what this one polls for.
  inverted = !inverted && std::any_of(pending.begin(), pending.end(),
                                      [](const Group &g) { return g.state == Group::Ready; });
  regroup = true;
}

void Warp::report(Finding::Kind kind, const Instruction &i, unsigned lane, const std::string &what,
                  uint64_t count) {
  launch.report(kind, launch.pcOf(i), block, thread(lane), what, count);
}

void Warp::stop(Finding::Kind kind, const Instruction &i, Mask lanes, const std::string &what) {
  report(kind, i, lanes ? std::countr_zero(lanes) : 0, what, std::popcount(lanes));
  throw Stop();
}

std::string simt::describeLanes(const Warp &warp, Mask mask) {
  if (!mask)
    return "no thread";
  std::string text = std::has_single_bit(mask) ? "thread " : "threads ";
  for (unsigned lane = 0; lane < kLanes; ++lane) {
    if (!(mask >> lane & 1))
      continue;
    unsigned last = lane;
    while (last + 1 < kLanes && mask >> (last + 1) & 1)
      ++last;
    text += fmt::format("{}{}", text.back() == ' ' ? "" : ", ", warp.thread(lane));
    if (last > lane)
      text += fmt::format("-{}", warp.thread(last));
    lane = last;
  }
  return text;
}
