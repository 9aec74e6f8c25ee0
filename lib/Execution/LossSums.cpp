//===- LossSums.cpp - Hessians of the loss, of a sum over samples ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LossSums.h"

using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;

//===----------------------------------------------------------------------===//
// LossSums
//===----------------------------------------------------------------------===//

static SampleSum<LossHessians> sumOf(const LossSamples &samples,
                                     const std::vector<LossWeight> &weights) {
  return {samples.ranks, *samples.tokens,
          [weights, rows = samples.rows] { return LossHessians(weights, rows); }};
}

LossSums::LossSums(const LossSamples &samples, std::vector<LossWeight> weights)
    : samples(samples), count(weights.size()), used(sumOf(samples, weights)),
      kept(sumOf(samples, weights)) {}

Result<void> LossSums::add(int64_t sample, llvm::ArrayRef<TrainedLayer::Rows> rows,
                           unsigned threads) {
  const CalibrationTokens &tokens = *samples.tokens;
  const bool isHeldOut = tokens.firstSample() + sample >= tokens.allSamples() - samples.heldOut;
  return (isHeldOut ? kept : used).of(sample).add(rows, threads);
}

Result<std::vector<SiteLoss>> LossSums::finish() {
  std::vector<SiteLoss> found(count);
  Result<LossHessians> all = used.finish();
  if (!all)
    return Unexpected(all.error());
  if (samples.heldOut > 0) {
    Result<LossHessians> last = kept.finish();
    if (!last)
      return Unexpected(last.error());
    all->merge(*last);
    for (size_t i = 0; i < count; ++i)
      found[i].heldOut = last->take(i);
  }
  for (size_t i = 0; i < count; ++i)
    found[i].all = all->take(i);
  return found;
}

//===----------------------------------------------------------------------===//
// ExpertLoss
//===----------------------------------------------------------------------===//

static std::vector<float> copyOf(ConstMatrix rows) {
  std::vector<float> values;
  values.reserve(rows.rows * rows.columns);
  for (int64_t i = 0; i < rows.rows; ++i)
    values.insert(values.end(), rows.row(i), rows.row(i) + rows.columns);
  return values;
}

void ExpertLoss::keep(llvm::ArrayRef<TrainedLayer::Rows> rows) {
  std::vector<Kept> &of = kept.emplace_back();
  for (auto [i, values] : llvm::enumerate(rows)) {
    Kept &own = of.emplace_back();
    for (size_t before = 0; before < i && !own.input; ++before)
      if (rows[before].input.data == values.input.data)
        own.input = of[before].input;
    if (!own.input)
      own.input = std::make_shared<const std::vector<float>>(copyOf(values.input));
    own.gradient = copyOf(values.gradient);
    own.offsets.assign(values.offsets.begin(), values.offsets.end());
  }
}

Result<SiteLoss> ExpertLoss::of(size_t linear, int64_t expert, unsigned threads) const {
  LossWeight weight = weights[linear];
  weight.name = fmt::format("expert {} of {}", expert, weight.name);
  LossSums sums(samples, {weight});
  for (auto [sample, linears] : llvm::enumerate(kept)) {
    const Kept &own = linears[linear];
    const int64_t first = own.offsets[expert], count = own.offsets[expert + 1] - first;
    if (count == 0)
      continue;
    auto part = [&](const std::vector<float> &values, int64_t columns) {
      return ConstMatrix(values.data() + first * columns, count, columns);
    };
    const TrainedLayer::Rows rows{part(*own.input, weight.columns),
                                  part(own.gradient, weight.rows)};
    if (auto done = sums.add(static_cast<int64_t>(sample), rows, threads); !done)
      return Unexpected(done.error());
  }
  Result<std::vector<SiteLoss>> found = sums.finish();
  if (!found)
    return Unexpected(found.error());
  return std::move(found->front());
}
