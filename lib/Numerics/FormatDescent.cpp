//===- FormatDescent.cpp - Formats by what the model itself says ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Changes of one group alone would stop at any choice that fills its budget: what one group gives
// up another one must be able to take.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/FormatChoice.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

namespace easyquant::numerics {
namespace {

/// One group's change, or two groups' (of which the second may be none: the first again).
struct Move {
  double loss; ///< that the table expects to be added
  size_t group, format, otherGroup, otherFormat;

  bool operator<(const Move &other) const {
    return std::tie(loss, group, format, otherGroup, otherFormat) <
           std::tie(other.loss, other.group, other.format, other.otherGroup, other.otherFormat);
  }
};

class Descent {
public:
  Descent(const FormatTable &table, int64_t budget, int64_t evaluations,
          const ChoiceObjective &objective, const Milliseconds &limits)
      : table(table), budget(budget), limits(limits), evaluations(evaluations),
        objective(objective) {}
  Result<DescentResult> run(std::vector<size_t> start);

private:
  FormatCost change(size_t group, size_t format) const {
    const FormatCost &from = table[group][now.choice.formats[group]], &to = table[group][format];
    return {to.bytes - from.bytes, to.loss - from.loss, to.milliseconds - from.milliseconds};
  }
  void consider(const Move &move, const FormatCost &added);
  /// Is it slower at a stage whose time counts?
  bool isSlower(const Milliseconds &added) const {
    return std::ranges::any_of(
        kStages, [&](Stage stage) { return std::isfinite(limits[stage]) && added[stage] > 0; });
  }
  /// The most promising moves not asked for, no more than can still be; says whether these are all.
  bool gatherMoves();
  std::vector<size_t> after(const Move &move) const;

  const FormatTable &table;
  int64_t budget;
  Milliseconds limits;
  int64_t evaluations;
  const ChoiceObjective &objective;
  DescentResult now;
  std::set<std::vector<size_t>> asked;
  std::vector<Move> moves; ///< a heap while they are gathered, the least promising first
  bool isComplete = true;
};

} // namespace

std::vector<size_t> Descent::after(const Move &move) const {
  std::vector<size_t> formats = now.choice.formats;
  formats[move.group] = move.format;
  formats[move.otherGroup] = move.otherFormat;
  return formats;
}

void Descent::consider(const Move &move, const FormatCost &added) {
  const auto room = static_cast<size_t>(evaluations - now.evaluations);
  if (now.choice.bytes + added.bytes > budget ||
      !(now.choice.milliseconds + added.milliseconds).within(limits))
    return;
  if (moves.size() == room && (room == 0 || !(move < moves.front()))) {
    isComplete = isComplete && asked.contains(after(move));
    return;
  }
  if (asked.contains(after(move)))
    return;
  moves.push_back(move);
  std::push_heap(moves.begin(), moves.end());
  if (moves.size() > room) {
    std::pop_heap(moves.begin(), moves.end());
    moves.pop_back();
    isComplete = false;
  }
}

bool Descent::gatherMoves() {
  moves.clear();
  isComplete = true;
  for (size_t group = 0; group < table.size(); ++group)
    for (size_t format = 0; format < table[group].size(); ++format) {
      if (format == now.choice.formats[group])
        continue;
      const FormatCost one = change(group, format);
      consider({one.loss, group, format, group, format}, one);
      // An exchange: one group grows, or slows down, while another shrinks or gains speed.
      const bool asksForRoom = one.bytes > 0 || isSlower(one.milliseconds);
      for (size_t other = 0; asksForRoom && other < table.size(); ++other)
        for (size_t less = 0; other != group && less < table[other].size(); ++less)
          if (const FormatCost two = change(other, less);
              two.bytes < 0 || isSlower(Milliseconds() - two.milliseconds))
            consider(
                {one.loss + two.loss, group, format, other, less},
                {one.bytes + two.bytes, one.loss + two.loss, one.milliseconds + two.milliseconds});
    }
  std::sort_heap(moves.begin(), moves.end());
  return isComplete;
}

Result<DescentResult> Descent::run(std::vector<size_t> start) {
  now.choice = costOf(table, std::move(start));
  if (evaluations < 1 || now.choice.bytes > budget || !now.choice.milliseconds.within(limits))
    return makeError(ErrorCode::InvalidArgument,
                     "descent with {} evaluations from a choice of {} bytes, {:.4g} ms a token and "
                     "{:.4g} ms for {} tokens: expected at least one, and at most the budget of {} "
                     "bytes, {:.4g} ms and {:.4g} ms",
                     evaluations, now.choice.bytes, now.choice.milliseconds.decode,
                     now.choice.milliseconds.prefill, rowsOf(Stage::Prefill), budget, limits.decode,
                     limits.prefill);
  Result<double> loss = objective(now.choice.formats);
  if (!loss)
    return Unexpected(loss.error());
  now.loss = *loss;
  now.evaluations = 1;
  asked.insert(now.choice.formats);
  for (bool improved = true; improved;) {
    improved = false;
    const bool isAll = gatherMoves();
    for (const Move &move : moves) {
      std::vector<size_t> formats = after(move);
      Result<double> found = objective(formats);
      if (!found)
        return Unexpected(found.error());
      ++now.evaluations;
      asked.insert(formats);
      if (*found >= now.loss)
        continue;
      now.loss = *found;
      now.choice = costOf(table, std::move(formats));
      improved = true;
      break;
    }
    now.isLocalOptimum = !improved && isAll;
  }
  return now;
}

Result<DescentResult> descend(const FormatTable &table, int64_t budget, std::vector<size_t> start,
                              int64_t evaluations, const ChoiceObjective &objective,
                              const Milliseconds &limits) {
  return Descent(table, budget, evaluations, objective, limits).run(std::move(start));
}

} // namespace easyquant::numerics
