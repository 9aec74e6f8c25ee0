//===- FormatChoice.h - Which format each group of sites gets ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A model has groups of sites, each of which takes one of some formats; a format costs a group so
// many bytes and so much loss. Losses are taken to add up, which makes the best choice within a
// budget a multiple-choice knapsack. Where only the model itself knows the loss of a choice, an
// objective is asked instead, and the table says what to ask for first.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_NUMERICS_FORMATCHOICE_H
#define EASYQUANT_NUMERICS_FORMATCHOICE_H

#include "easyquant/Support/Result.h"

#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace easyquant::numerics {

/// What a model is timed at, where speed takes part.
enum class Stage : uint8_t { Decode, Prefill };
inline constexpr Stage kStages[] = {Stage::Decode, Stage::Prefill};
/// Rows that its linears have then.
constexpr int64_t rowsOf(Stage stage) { return stage == Stage::Decode ? 1 : 512; }
constexpr Stage otherThan(Stage stage) {
  return stage == Stage::Decode ? Stage::Prefill : Stage::Decode;
}

struct Milliseconds {
  double decode = 0;  ///< of a token
  double prefill = 0; ///< of 512 tokens

  double &operator[](Stage stage) { return stage == Stage::Decode ? decode : prefill; }
  double operator[](Stage stage) const { return stage == Stage::Decode ? decode : prefill; }
  Milliseconds &operator+=(const Milliseconds &other) {
    decode += other.decode;
    prefill += other.prefill;
    return *this;
  }
  Milliseconds &operator-=(const Milliseconds &other) {
    decode -= other.decode;
    prefill -= other.prefill;
    return *this;
  }
  friend Milliseconds operator+(Milliseconds a, const Milliseconds &b) { return a += b; }
  friend Milliseconds operator-(Milliseconds a, const Milliseconds &b) { return a -= b; }
  /// At most as much of both?
  bool within(const Milliseconds &limits) const {
    return decode <= limits.decode && prefill <= limits.prefill;
  }
};

inline constexpr Milliseconds kAnyTime = {std::numeric_limits<double>::infinity(),
                                          std::numeric_limits<double>::infinity()};

/// What a format costs a group.
struct FormatCost {
  int64_t bytes = 0;
  double loss = 0;
  Milliseconds milliseconds = {};
};

/// The costs of the formats of each group. Every group has at least one; losses are finite, bytes
/// not negative.
using FormatTable = std::vector<std::vector<FormatCost>>;

/// A format for every group, by its number, and what all of them cost by the table.
struct FormatChoice {
  std::vector<size_t> formats;
  int64_t bytes = 0;
  double loss = 0;
  Milliseconds milliseconds = {};
};

/// Adds up what the formats cost.
FormatChoice costOf(const FormatTable &table, std::vector<size_t> formats);
/// The bytes of all groups in their smallest formats.
int64_t leastBytes(const FormatTable &table);
/// The formats of a group that no other one beats in both bytes and loss, by bytes. The first of
/// equal ones stays.
std::vector<size_t> undominated(std::span<const FormatCost> costs);
/// The formats that no other one beats in bytes, loss and all times, by bytes. A format that saves
/// less than a few hundredths of a time, by which times differ from one measurement to the next, is
/// not faster.
std::vector<size_t> undominatedInTime(std::span<const FormatCost> costs);

/// The choice of least loss that takes at most `budget` bytes, exactly: branch and bound, breadth
/// first, with the linear relaxation as bound and dominance among the partial choices. Errors:
/// OutOfRange (not even the smallest formats fit, naming their size).
Result<FormatChoice> leastLoss(const FormatTable &table, int64_t budget);

/// The choice of least loss + lossPerByte * bytes.
FormatChoice leastPenalized(const FormatTable &table, double lossPerByte);

/// Chooses by the bytes and losses of a table. Its losses have times in them, and those of the
/// model `lossWeight` times: so often anything counts that the rule adds to them.
using ChoiceRule = std::function<Result<FormatChoice>(const FormatTable &table, double lossWeight)>;

/// The choice of `rule` that takes at most `limits`. The rule is asked with different prices of a
/// millisecond of each stage, added to losses, and the choice of least loss that is fast enough is
/// taken (Lagrangian relaxation: no choice of the same bytes and times is better, but one of
/// exactly `limits` may be). Errors: OutOfRange, naming what the fastest choices take, where the
/// one by the times of a stage alone is too slow, or none is found that keeps both limits; those of
/// the rule.
Result<FormatChoice> withinTime(const FormatTable &table, const Milliseconds &limits,
                                const ChoiceRule &rule);

/// The least times of a rule's choices, whatever they lose.
struct LeastTimes {
  Milliseconds alone;  ///< of each stage without a limit of the other
  Milliseconds beside; ///< the least found of each within the limit of the other; infinite: none
};
/// Errors: those of the rule.
Result<LeastTimes> leastTimes(const FormatTable &table, const Milliseconds &limits,
                              const ChoiceRule &rule);

/// The true loss of a choice. May fail, which ends the search that asked.
using ChoiceObjective = std::function<Result<double>(std::span<const size_t> formats)>;

struct DescentResult {
  FormatChoice choice;
  double loss = 0;         ///< what the objective says of it
  int64_t evaluations = 0; ///< of the objective
  /// No change of one group, and no exchange between two, within the budget lowers the objective:
  /// all of them were asked for. Else the evaluations did not suffice to know.
  bool isLocalOptimum = false;
};

/// Coordinate descent from `start`, which must fit into bytes and `limits`. It takes the first
/// change of one group, or exchange between two, that lowers the objective, and tries those first
/// that the table expects to gain most. It ends where there is none, or where the objective was
/// asked `evaluations` times. Errors: InvalidArgument (no evaluation, a start that does not fit),
/// those of the objective.
Result<DescentResult> descend(const FormatTable &table, int64_t budget, std::vector<size_t> start,
                              int64_t evaluations, const ChoiceObjective &objective,
                              const Milliseconds &limits = kAnyTime);

/// `count` different choices about which a surrogate may learn: nearly best ones of tables whose
/// losses are multiplied by random factors, of budgets from nine tenths of `budget` to all of it.
/// The same in every run; fewer where the table has no more. Errors: those of leastLoss.
Result<std::vector<FormatChoice>> sampleChoices(const FormatTable &table, int64_t budget,
                                                size_t count);

/// A factor b >= 0 for each kind of groups. The loss of a choice is predicted by the table, each
/// group's multiplied by the b of its kind; the factors bring the predictions for `choices` closest
/// to the true `losses` > 0, by least squares of relative errors. They are drawn slightly towards
/// one b for all kinds, so that kinds that the choices do not tell apart stay alike. Errors:
/// InvalidArgument (nothing to learn from, a loss that is not above 0).
Result<std::vector<double>> fitKinds(const FormatTable &table, std::span<const size_t> kindOf,
                                     std::span<const FormatChoice> choices,
                                     std::span<const double> losses);

/// Spearman's: the correlation of ranks, equal values sharing theirs. 0 where either list is
/// constant or there are fewer than two.
double rankCorrelation(std::span<const double> x, std::span<const double> y);

} // namespace easyquant::numerics

#endif // EASYQUANT_NUMERICS_FORMATCHOICE_H
