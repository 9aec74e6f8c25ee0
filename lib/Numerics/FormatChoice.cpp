//===- FormatChoice.cpp - The best formats within a budget ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The relaxation lets a group take two neighbouring formats of its lower convex hull in any
// mixture. Its optimum takes the steps of all hulls in the order of what they gain a byte, until
// the budget is spent; prefix sums of that order give the bound of every partial choice.
//
//===----------------------------------------------------------------------===//

#include "FormatRelaxation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <tuple>

namespace easyquant::numerics {

FormatChoice costOf(const FormatTable &table, std::vector<size_t> formats) {
  FormatChoice choice{std::move(formats), 0, 0, {}};
  for (size_t group = 0; group < table.size(); ++group) {
    const FormatCost &cost = table[group][choice.formats[group]];
    choice.bytes += cost.bytes;
    choice.loss += cost.loss;
    choice.milliseconds += cost.milliseconds;
  }
  return choice;
}

int64_t leastBytes(const FormatTable &table) {
  int64_t bytes = 0;
  for (const std::vector<FormatCost> &costs : table)
    bytes += std::ranges::min(costs, {}, &FormatCost::bytes).bytes;
  return bytes;
}

std::vector<size_t> undominated(std::span<const FormatCost> costs) {
  std::vector<size_t> order(costs.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::ranges::sort(order, {},
                    [&](size_t i) { return std::tuple(costs[i].bytes, costs[i].loss, i); });
  std::vector<size_t> kept;
  for (size_t i : order)
    if (kept.empty() || costs[i].loss < costs[kept.back()].loss)
      kept.push_back(i);
  return kept;
}

//===----------------------------------------------------------------------===//
// The relaxation
//===----------------------------------------------------------------------===//

FormatRelaxation::FormatRelaxation(const FormatTable &table, std::span<const size_t> groups)
    : table(table) {
  for (size_t group : groups) {
    std::vector<size_t> front = undominated(table[group]), hull;
    auto slope = [&](size_t from, size_t to) {
      const FormatCost &a = table[group][from], &b = table[group][to];
      return (b.loss - a.loss) / static_cast<double>(b.bytes - a.bytes);
    };
    for (size_t i : front) {
      while (hull.size() > 1 && slope(hull.end()[-2], hull.back()) >= slope(hull.back(), i))
        hull.pop_back();
      hull.push_back(i);
    }
    smallest.emplace_back(group, hull.front());
    base.bytes += table[group][hull.front()].bytes;
    base.loss += table[group][hull.front()].loss;
    for (size_t i = 1; i < hull.size(); ++i) {
      const FormatCost &from = table[group][hull[i - 1]], &to = table[group][hull[i]];
      steps.push_back({group, hull[i], to.bytes - from.bytes, to.loss - from.loss});
    }
  }
  // Steps of one hull keep their order: they gain ever less a byte.
  std::ranges::sort(steps, {}, [&](const Step &step) {
    return std::tuple(step.loss / static_cast<double>(step.bytes), step.group,
                      table[step.group][step.format].bytes);
  });
  FormatCost sum = base;
  sums.push_back(sum);
  for (const Step &step : steps) {
    sum.bytes += step.bytes;
    sum.loss += step.loss;
    sums.push_back(sum);
  }
}

double FormatRelaxation::bound(int64_t budget) const {
  if (base.bytes > budget)
    return std::numeric_limits<double>::infinity();
  auto next = std::ranges::upper_bound(sums, budget, {}, &FormatCost::bytes);
  const FormatCost &whole = next[-1];
  if (next == sums.end())
    return whole.loss;
  const Step &part = steps[next - sums.begin() - 1];
  return whole.loss +
         part.loss * static_cast<double>(budget - whole.bytes) / static_cast<double>(part.bytes);
}

void FormatRelaxation::complete(int64_t budget, std::vector<size_t> &formats) const {
  for (auto [group, format] : smallest)
    formats[group] = format;
  int64_t left = budget - base.bytes;
  std::vector<bool> isStopped(table.size());
  for (const Step &step : steps) {
    // A step further up a hull would need the one before it.
    if (isStopped[step.group] || step.bytes > left) {
      isStopped[step.group] = true;
      continue;
    }
    formats[step.group] = step.format;
    left -= step.bytes;
  }
}

//===----------------------------------------------------------------------===//
// Branch and bound
//===----------------------------------------------------------------------===//

namespace {

/// Formats for the first groups, as the last one of them and the partial choice before it.
struct Partial {
  int64_t bytes;
  double loss;
  uint32_t parent, format;
};

class BranchAndBound {
public:
  BranchAndBound(const FormatTable &table, int64_t budget) : table(table), budget(budget) {}
  FormatChoice run();

private:
  void expand(size_t level, const FormatRelaxation &rest);
  void offer(std::vector<size_t> formats);
  /// The formats of the partial choice `index` of the last level.
  std::vector<size_t> formatsOf(size_t index) const;
  /// Sums of doubles differ in their last bits by their order, which must not cost an optimum.
  double limit() const { return best.loss + 1e-12 * std::fabs(best.loss); }

  const FormatTable &table;
  int64_t budget;
  std::vector<size_t> order; ///< of groups: those with most at stake first
  std::vector<std::vector<Partial>> levels;
  FormatChoice best;
};

} // namespace

void BranchAndBound::offer(std::vector<size_t> formats) {
  FormatChoice choice = costOf(table, std::move(formats));
  if (choice.bytes <= budget && (best.formats.empty() || choice.loss < best.loss))
    best = std::move(choice);
}

std::vector<size_t> BranchAndBound::formatsOf(size_t index) const {
  std::vector<size_t> formats(table.size());
  for (size_t level = levels.size(); level-- > 1;) {
    const Partial &partial = levels[level][index];
    formats[order[level - 1]] = partial.format;
    index = partial.parent;
  }
  return formats;
}

void BranchAndBound::expand(size_t level, const FormatRelaxation &rest) {
  const std::vector<FormatCost> &costs = table[order[level]];
  const std::vector<size_t> formats = undominated(costs);
  const std::vector<Partial> &before = levels[level];
  std::vector<Partial> next;
  double leastBound = std::numeric_limits<double>::infinity();
  Partial promising{};
  for (size_t parent = 0; parent < before.size(); ++parent)
    for (size_t format : formats) {
      Partial partial{before[parent].bytes + costs[format].bytes,
                      before[parent].loss + costs[format].loss, static_cast<uint32_t>(parent),
                      static_cast<uint32_t>(format)};
      const double bound = partial.loss + rest.bound(budget - partial.bytes);
      if (bound > limit())
        continue;
      next.push_back(partial);
      if (bound < leastBound) {
        leastBound = bound;
        promising = partial;
      }
    }
  std::ranges::sort(next, {}, [](const Partial &partial) {
    return std::tuple(partial.bytes, partial.loss, partial.parent, partial.format);
  });
  std::vector<Partial> kept;
  for (const Partial &partial : next)
    if (kept.empty() || partial.loss < kept.back().loss)
      kept.push_back(partial);
  levels.push_back(std::move(kept));
  if (next.empty())
    return;
  // Whole choices lower the limit for the levels to come.
  levels.back().push_back(promising);
  std::vector<size_t> whole = formatsOf(levels.back().size() - 1);
  levels.back().pop_back();
  rest.complete(budget - promising.bytes, whole);
  offer(std::move(whole));
}

FormatChoice BranchAndBound::run() {
  order.resize(table.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::vector<double> stakes;
  for (const std::vector<FormatCost> &costs : table) {
    auto [least, greatest] = std::ranges::minmax(costs, {}, &FormatCost::loss);
    stakes.push_back(greatest.loss - least.loss);
  }
  std::ranges::sort(order, {}, [&](size_t group) { return std::pair(-stakes[group], group); });

  std::vector<size_t> first(table.size());
  FormatRelaxation(table, order).complete(budget, first);
  offer(std::move(first));
  levels = {{{0, 0.0, 0, 0}}};
  for (size_t level = 0; level < order.size() && !levels.back().empty(); ++level)
    expand(level, FormatRelaxation(table, std::span(order).subspan(level + 1)));
  if (levels.size() == order.size() + 1)
    for (size_t i = 0; i < levels.back().size(); ++i)
      offer(formatsOf(i));
  return best;
}

Result<FormatChoice> leastLoss(const FormatTable &table, int64_t budget) {
  if (int64_t least = leastBytes(table); least > budget)
    return makeError(ErrorCode::OutOfRange,
                     "a budget of {} bytes: the smallest formats of all groups take {} bytes",
                     budget, least);
  return BranchAndBound(table, budget).run();
}

FormatChoice leastPenalized(const FormatTable &table, double lossPerByte) {
  std::vector<size_t> formats;
  for (const std::vector<FormatCost> &costs : table) {
    const std::vector<size_t> front = undominated(costs);
    formats.push_back(*std::ranges::min_element(front, {}, [&](size_t i) {
      return costs[i].loss + lossPerByte * static_cast<double>(costs[i].bytes);
    }));
  }
  return costOf(table, std::move(formats));
}

} // namespace easyquant::numerics
