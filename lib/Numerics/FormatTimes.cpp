//===- FormatTimes.cpp - The best formats that are fast enough ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A price of a millisecond turns times into losses. The choices that are best at some price are
// corners of a convex curve of loss over time. The corner next to a limit is sought between one
// that is too slow and one that is fast enough: at the price at which both are as good, either one
// between them is better, or they are neighbours.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/FormatChoice.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

namespace easyquant::numerics {

/// Each finds another corner, or ends the search; a dozen do so as a rule.
static constexpr int kPrices = 100;

/// What a format must save of another one's time to be faster.
static constexpr double kFaster = 0.03;

std::vector<size_t> undominatedInTime(std::span<const FormatCost> costs) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::tuple(costs[i].bytes, costs[i].loss, i); });
  std::vector<size_t> kept;
  for (size_t i : order) {
    const FormatCost &cost = costs[i];
    auto beats = [&](size_t smaller) {
      const FormatCost &other = costs[smaller];
      return other.loss <= cost.loss && std::ranges::all_of(kStages, [&](Stage stage) {
               return cost.milliseconds[stage] >= (1 - kFaster) * other.milliseconds[stage];
             });
    };
    if (std::ranges::none_of(kept, beats))
      kept.push_back(i);
  }
  return kept;
}

/// What is chosen when a loss counts `weight` and a millisecond `price`, with its costs by `table`.
static Result<FormatChoice> chooseAt(const FormatTable &table, Stage stage, double weight,
                                     double price, const ChoiceRule &rule) {
  FormatTable priced = table;
  for (std::vector<FormatCost> &costs : priced)
    for (FormatCost &cost : costs)
      cost.loss = weight * cost.loss + price * cost.milliseconds[stage];
  Result<FormatChoice> found = rule(priced, weight);
  if (!found)
    return found;
  return costOf(table, std::move(found->formats));
}

static Error tooSlow(Stage stage, double limit, double least) {
  if (stage == Stage::Decode)
    return {ErrorCode::OutOfRange,
            fmt::format("{:.4g} ms a token: the fastest formats take {:.4g} ms", limit, least)};
  return {ErrorCode::OutOfRange,
          fmt::format("{:.4g} ms for {} tokens: the fastest formats take {:.4g} ms", limit,
                      rowsOf(stage), least)};
}

/// The same for one limit; `known` is a choice that keeps it, if one is.
static Result<FormatChoice> withinLimit(const FormatTable &table, Stage stage, double limit,
                                        const ChoiceRule &rule,
                                        const FormatChoice *known = nullptr) {
  Result<FormatChoice> slow = chooseAt(table, stage, 1, 0, rule);
  if (!slow || slow->milliseconds[stage] <= limit)
    return slow;
  Result<FormatChoice> fast = chooseAt(table, stage, 0, 1, rule);
  if (!fast)
    return fast;
  if (fast->milliseconds[stage] > limit) {
    if (!known)
      return Unexpected(tooSlow(stage, limit, fast->milliseconds[stage]));
    fast = *known;
  }
  FormatChoice best = *fast;
  for (int i = 0; i < kPrices; ++i) {
    const double price = std::max(0.0, fast->loss - slow->loss) /
                         (slow->milliseconds[stage] - fast->milliseconds[stage]);
    auto pricedLoss = [&](const FormatChoice &choice) {
      return choice.loss + price * choice.milliseconds[stage];
    };
    Result<FormatChoice> found = chooseAt(table, stage, 1, price, rule);
    if (!found)
      return found;
    const double before = pricedLoss(*fast);
    const bool isBetter = pricedLoss(*found) < before - 1e-12 * std::fabs(before);
    const bool isFast = found->milliseconds[stage] <= limit;
    if (isFast && found->loss < best.loss)
      best = *found;
    if (!isBetter)
      break;
    (isFast ? fast : slow) = std::move(found);
  }
  return best;
}

/// The choice of the least time of a stage within the limit of the other.
static Result<FormatChoice> fastest(const FormatTable &table, Stage stage,
                                    const Milliseconds &limits, const ChoiceRule &rule) {
  FormatTable times = table;
  for (std::vector<FormatCost> &costs : times)
    for (FormatCost &cost : costs)
      cost.loss = cost.milliseconds[stage];
  const Stage other = otherThan(stage);
  auto byTimes = [&](const FormatTable &priced, double) { return rule(priced, 0); };
  Result<FormatChoice> found = withinLimit(times, other, limits[other], byTimes);
  if (!found)
    return found;
  return costOf(table, std::move(found->formats));
}

Result<LeastTimes> leastTimes(const FormatTable &table, const Milliseconds &limits,
                              const ChoiceRule &rule) {
  LeastTimes least{{}, kAnyTime};
  for (Stage stage : kStages) {
    Result<FormatChoice> alone = fastest(table, stage, kAnyTime, rule);
    if (!alone)
      return Unexpected(alone.error());
    least.alone[stage] = alone->milliseconds[stage];
  }
  for (Stage stage : kStages) {
    const Stage other = otherThan(stage);
    if (least.alone[other] > limits[other])
      continue;
    Result<FormatChoice> beside = fastest(table, stage, limits, rule);
    if (!beside)
      return Unexpected(beside.error());
    least.beside[stage] = beside->milliseconds[stage];
  }
  return least;
}

Result<FormatChoice> withinTime(const FormatTable &table, const Milliseconds &limits,
                                const ChoiceRule &rule) {
  // What is chosen at a price of decode keeps the limit of prefill.
  const ChoiceRule keepsPrefill = [&](const FormatTable &priced, double weight) {
    auto weighted = [&](const FormatTable &twice, double more) {
      return rule(twice, weight * more);
    };
    return withinLimit(priced, Stage::Prefill, limits.prefill, weighted);
  };
  if (!std::isfinite(limits.decode) || !std::isfinite(limits.prefill))
    return withinLimit(table, Stage::Decode, limits.decode, keepsPrefill);
  Result<LeastTimes> least = leastTimes(table, limits, rule);
  if (!least)
    return Unexpected(least.error());
  for (Stage stage : kStages)
    if (least->alone[stage] > limits[stage])
      return Unexpected(tooSlow(stage, limits[stage], least->alone[stage]));
  if (least->beside.decode <= limits.decode)
    return withinLimit(table, Stage::Decode, limits.decode, keepsPrefill);
  Result<FormatChoice> known = fastest(table, Stage::Prefill, limits, rule);
  if (!known)
    return known;
  if (known->milliseconds.prefill <= limits.prefill)
    return withinLimit(table, Stage::Decode, limits.decode, keepsPrefill, &*known);
  return makeError(
      ErrorCode::OutOfRange,
      "{:.4g} ms a token and {:.4g} ms for {} tokens, together: within the latter the "
      "fastest formats take {:.4g} ms a token, within the former {:.4g} ms for {} tokens",
      limits.decode, limits.prefill, rowsOf(Stage::Prefill), least->beside.decode,
      least->beside.prefill, rowsOf(Stage::Prefill));
}

} // namespace easyquant::numerics
