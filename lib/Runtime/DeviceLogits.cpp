//===- DeviceLogits.cpp - Rows of logits that stay on a device ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DeviceLogits.h"

#include "LogitBlocks.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <iterator>

using namespace easyquant;
using namespace easyquant::runtime;

/// Rows that there is room for in the beginning; choices that are made in one launch, and rows that
/// are changed for them.
static constexpr int64_t kFewRows = 64, kMostChoices = 256, kMostChanged = 32;

static bool hasBiasTwice(const eq_choice &choice) {
  std::vector<int32_t> tokens;
  forEachBias(choice, [&](const formats::LogitChange &bias) { tokens.push_back(bias.token); });
  std::ranges::sort(tokens);
  return std::ranges::adjacent_find(tokens) != tokens.end();
}

std::optional<formats::ChoiceSetting> easyquant::runtime::settingOnDevice(const eq_choice &choice,
                                                                          int64_t vocabulary) {
  const Draw draw(choice, vocabulary);
  if (choice.allowed || choice.with_logprob != 0 || choice.best_count > 0 ||
      (!draw.isGreedy && draw.topK > formats::kMostCandidates))
    return std::nullopt;
  const auto changes = static_cast<int64_t>(choice.token_count + choice.bias_count);
  if (changesLogits(choice) &&
      (changes * int64_t(sizeof(formats::LogitChange)) > vocabulary * int64_t(sizeof(float)) ||
       hasBiasTwice(choice)))
    return std::nullopt;
  return formats::ChoiceSetting{draw.scale, draw.least, static_cast<int32_t>(draw.topK), 0,
                                draw.topP};
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

static int64_t rowBytes(int64_t vocabulary) {
  return formats::keptLogits(vocabulary) * int64_t(sizeof(float));
}
/// What a sequence has, and what a call that appends to it will leave.
static int64_t slotsOf(int64_t sequences) { return 2 * sequences; }

int64_t DeviceLogits::mostBytes(int64_t vocabulary, int64_t sequences) {
  return (slotsOf(sequences) + std::min(sequences, kMostChanged)) * rowBytes(vocabulary);
}

Result<void> DeviceLogits::allocate(std::shared_ptr<Device> on, Queue &by, const LaunchList &list,
                                    int64_t tokens, int64_t sequences) {
  device = std::move(on);
  queue = &by;
  program = &list;
  vocabulary = tokens;
  mostSlots = slotsOf(sequences);
  choicesAtOnce = std::min({sequences, kMostChoices, list.maxRows});
  rows.reserve(static_cast<size_t>(sequences));
  found.reserve(static_cast<size_t>(mostSlots));
  return allocateRows(std::min(mostSlots, kFewRows));
}

int64_t DeviceLogits::freeSlots() const { return std::count(owners.begin(), owners.end(), 0); }

/// What is kept already moves.
Result<void> DeviceLogits::allocateRows(int64_t count) {
  const int64_t before = std::ssize(owners);
  DeviceMemory newKept, newGreatest;
  for (auto [memory, old, bytes] :
       {std::tuple(&newKept, &kept, rowBytes(vocabulary)),
        std::tuple(&newGreatest, &greatest, int64_t(sizeof(formats::GreatestLogit)))}) {
    if (auto done = memory->allocate(device, count * bytes, "logits that are kept"); !done)
      return done;
    if (before == 0)
      continue;
    if (auto done = queue->copy(memory->address(), old->address(), before * bytes); !done)
      return done;
  }
  if (before > 0) { // what is copied stays until it is
    std::byte first;
    if (auto done = queue->download(&first, newKept.address(), 1); !done)
      return done;
  }
  owners.resize(static_cast<size_t>(count));
  kept = std::move(newKept);
  greatest = std::move(newGreatest);
  return {};
}

Result<void> DeviceLogits::makeRoom(int64_t count) {
  if (count <= freeSlots())
    return {};
  const int64_t taken = std::ssize(owners) - freeSlots();
  if (taken + count > mostSlots)
    return makeError(ErrorCode::OutOfRange,
                     "logits of {} more rows: found {} that are kept, expected {} at most", count,
                     taken, mostSlots);
  return allocateRows(std::min(mostSlots, 2 * (std::ssize(owners) + count)));
}

//===----------------------------------------------------------------------===//
// Keeping
//===----------------------------------------------------------------------===//

Result<void> DeviceLogits::launch(size_t kernel, std::string_view site, int64_t count,
                                  std::initializer_list<uint64_t> arguments) {
  return queue->launch({kernel, program->kernels[kernel].gridFor(count),
                        std::span(arguments.begin(), arguments.size()), site, Phase::Other});
}

int64_t DeviceLogits::freeRun(int64_t count, int64_t &length) const {
  int64_t best = 0;
  length = 0;
  for (int64_t slot = 0, begin = 0; slot < std::ssize(owners) && length < count; ++slot) {
    if (owners[static_cast<size_t>(slot)] > 0)
      begin = slot + 1;
    else if (slot + 1 - begin > length) {
      best = begin;
      length = slot + 1 - begin;
    }
  }
  return best;
}

Result<void> DeviceLogits::keep(uint64_t logits, int64_t count) {
  constexpr int64_t size = sizeof(formats::GreatestLogit);
  rows.clear();
  Result<void> done;
  auto placeOf = [&](int64_t slot) {
    return greatest.address() + static_cast<uint64_t>(slot * size);
  };
  int64_t begin = std::ssize(owners), end = 0;
  while (done && std::ssize(rows) < count) {
    const int64_t row = std::ssize(rows);
    int64_t length = 0;
    const int64_t first = freeRun(count - row, length);
    assert(length > 0 && "makeRoom has found places for all");
    for (int64_t i = 0; i < length; ++i) {
      rows.push_back({first + i, {}});
      ++owners[static_cast<size_t>(first + i)];
    }
    begin = std::min(begin, first);
    end = std::max(end, first + length);
    done = queue->fill(placeOf(first), 0, length * size).and_then([&] {
      return launch(program->choosing->keep, "logits", length,
                    {logits, kept.address(), greatest.address(), static_cast<uint64_t>(row),
                     static_cast<uint64_t>(first), static_cast<uint64_t>(length)});
    });
  }
  // All at once, since it waits: with what is between them, where places are apart.
  found.resize(static_cast<size_t>(std::max<int64_t>(end - begin, 0)));
  if (done)
    done = queue->download(found.data(), placeOf(begin), std::ssize(found) * size);
  for (Row &row : rows)
    if (done)
      row.greatest = found[static_cast<size_t>(row.slot - begin)];
    else
      release(row.slot);
  return done;
}

Result<void> DeviceLogits::read(int64_t slot, float *to) {
  return queue->download(to, kept.address() + static_cast<uint64_t>(slot * rowBytes(vocabulary)),
                         vocabulary * int64_t(sizeof(float)));
}

//===----------------------------------------------------------------------===//
// Choosing
//===----------------------------------------------------------------------===//

Result<int64_t> DeviceLogits::numberOf(const formats::ChoiceSetting &setting) {
  const auto known = std::find_if(settings.begin(), settings.end(), [&](const auto &each) {
    return std::memcmp(&each, &setting, sizeof(setting)) == 0;
  });
  const int64_t number = known - settings.begin();
  if (known != settings.end())
    return number;
  settings.push_back(setting);
  constexpr int64_t size = sizeof(setting);
  auto done = queue->upload(settingTable.address() + static_cast<uint64_t>(number * size),
                            &settings.back(), size);
  if (!done) {
    settings.pop_back(); // it is not there
    return Unexpected(done.error());
  }
  return number;
}

Result<void> DeviceLogits::changeRows(std::span<const Request> requests) {
  const int64_t bytes = vocabulary * int64_t(sizeof(float)), count = std::ssize(requests);
  counts.resize(static_cast<size_t>(vocabulary));
  size_t most = 0;
  for (const Request &request : requests)
    most += request.choice->token_count + request.choice->bias_count;
  changes.clear();
  changes.reserve(most); // nothing fails while tokens are counted
  auto list = [&](auto forEach) {
    for (size_t row = 0; row < requests.size(); ++row)
      forEach(*requests[row].choice, [&](formats::LogitChange change) {
        change.row = static_cast<int32_t>(row);
        changes.push_back(change);
      });
    return std::ssize(changes);
  };
  const int64_t penalties =
      list([&](const eq_choice &choice, auto body) { forEachPenalty(choice, counts, body); });
  const int64_t all = list([&](const eq_choice &choice, auto body) { forEachBias(choice, body); });
  const int64_t tableBytes = all * int64_t(sizeof(formats::LogitChange));
  Result<void> done = makeRoom(count);
  if (done && changed.size() == 0)
    done = changed.allocate(device, std::min(choicesAtOnce, kMostChanged) * bytes,
                            "logits with penalties");
  if (done && changeTable.size() < tableBytes)
    done = changeTable.allocate(device, 2 * tableBytes, "penalties of tokens");
  for (int64_t row = 0; done && row < count; ++row)
    done = queue->copy(
        changed.address() + static_cast<uint64_t>(row * bytes),
        kept.address() + static_cast<uint64_t>(requests[row].slot * rowBytes(vocabulary)), bytes);
  if (done)
    done = queue->upload(changeTable.address(), changes.data(), tableBytes);
  // Biases behind penalties: both may be of one token.
  for (auto [first, end] : {std::pair(int64_t(0), penalties), std::pair(penalties, all)})
    if (done && first < end)
      done = launch(
          program->choosing->change, "penalties of tokens", end - first,
          {changed.address(),
           changeTable.address() + static_cast<uint64_t>(first) * sizeof(formats::LogitChange),
           static_cast<uint64_t>(end - first)});
  return done ? keep(changed.address(), count) : done;
}

Result<void> DeviceLogits::draw(std::span<const Request> requests, std::span<int32_t> chosen) {
  staged.clear();
  for (const Request &request : requests) {
    Result<int64_t> setting = numberOf(request.setting);
    if (!setting)
      return Unexpected(setting.error());
    staged.push_back(formats::TokenChoice::of(request.draw, *setting, request.slot));
  }
  const int64_t count = std::ssize(requests);
  const auto last = static_cast<uint64_t>(count);
  return queue
      ->upload(choices.address(), staged.data(), std::ssize(std::as_bytes(std::span(staged))))
      .and_then([&] {
        return launch(program->choosing->weigh, "weights of logits", count,
                      {kept.address(), greatest.address(), choices.address(),
                       settingTable.address(), tops.address(), sums.address(), last});
      })
      .and_then([&] {
        return launch(program->choosing->choose, "choice", count,
                      {kept.address(), greatest.address(), choices.address(),
                       settingTable.address(), tops.address(), sums.address(), tokens.address(),
                       last});
      })
      .and_then([&] {
        return queue->download(chosen.data(), tokens.address(), count * int64_t(sizeof(int32_t)));
      });
}

static bool changesRow(const DeviceLogits::Request &request) {
  return changesLogits(*request.choice);
}

Result<void> DeviceLogits::chooseSome(std::span<const Request> requests,
                                      std::span<int32_t> chosen) {
  std::vector<Request> changing, drawing;
  std::ranges::copy_if(requests, std::back_inserter(changing), changesRow);
  std::vector<Row> made;
  std::vector<size_t> places;
  std::vector<int32_t> drawn;
  // Nothing throws while rows have an owner.
  made.reserve(changing.size());
  drawing.reserve(requests.size());
  places.reserve(requests.size());
  drawn.reserve(requests.size());
  staged.reserve(requests.size());
  if (!changing.empty()) {
    if (auto done = changeRows(changing); !done)
      return done;
    made = rows;
  }
  auto row = made.begin();
  for (size_t i = 0; i < requests.size(); ++i) {
    Request request = requests[i];
    if (changesRow(request)) {
      request.slot = row->slot;
      chosen[i] = row++->greatest.token();
      if (Draw(*request.choice, vocabulary).isGreedy)
        continue;
    }
    drawing.push_back(request);
    places.push_back(i);
  }
  drawn.resize(drawing.size());
  Result<void> done = drawing.empty() ? Result<void>() : draw(drawing, drawn);
  for (size_t i = 0; i < drawing.size(); ++i)
    chosen[places[i]] = drawn[i];
  for (const Row &each : made)
    release(each.slot);
  return done;
}

size_t DeviceLogits::countAtOnce(std::span<const Request> requests) const {
  int64_t count = 0, changing = 0;
  for (const Request &request : requests) {
    changing += changesRow(request);
    if (count == choicesAtOnce || changing > kMostChanged)
      break;
    ++count;
  }
  return static_cast<size_t>(count);
}

Result<void> DeviceLogits::choose(std::span<const Request> requests, std::span<int32_t> chosen) {
  constexpr int64_t word = sizeof(float);
  for (auto [memory, bytes] :
       {std::pair(&tops, choicesAtOnce * logitBlocks(vocabulary) * word),
        std::pair(&sums, choicesAtOnce * logitBlocks(vocabulary) * word),
        std::pair(&choices, choicesAtOnce * int64_t(sizeof(formats::TokenChoice))),
        std::pair(&tokens, choicesAtOnce * word),
        std::pair(&settingTable,
                  formats::TokenChoice::kMostSettings * int64_t(sizeof(formats::ChoiceSetting)))})
    if (memory->size() == 0)
      if (auto done = memory->allocate(device, bytes, "choices of tokens"); !done)
        return done;
  settings.reserve(static_cast<size_t>(formats::TokenChoice::kMostSettings)); // which stay in place
  while (!requests.empty()) {
    const size_t count = countAtOnce(requests);
    if (std::ssize(settings) + static_cast<int64_t>(count) > formats::TokenChoice::kMostSettings)
      settings.clear();
    if (auto done = chooseSome(requests.first(count), chosen.first(count)); !done)
      return done;
    requests = requests.subspan(count);
    chosen = chosen.subspan(count);
  }
  return {};
}
