//===- FloatRun.cpp - The float model, looked at on its way ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FloatRun.h"

#include "easyquant/Numerics/Quantize.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Scales of samples are those of int8 activations.
static constexpr numerics::CodeRange kInputCodes = numerics::codeRange(8, /*symmetric=*/true);

FloatRun::FloatRun(LayerRunner &runner, int64_t samples, int64_t rows)
    : runner(runner), kept(std::min(samples, runner.tokens().samples())), picks(kept) {
  const CalibrationTokens &tokens = runner.tokens();
  std::vector<std::pair<int64_t, int64_t>> all;
  for (int64_t i = 0; i < kept; ++i)
    for (int64_t r = tokens.skipped(); r < std::ssize(tokens.sample(i)); ++r)
      all.emplace_back(i, r);
  const int64_t count = std::ssize(all), wanted = std::min(rows, count);
  for (int64_t j = 0; j < wanted; ++j) {
    auto [sample, row] = all[j * count / wanted];
    picks[sample].push_back(row);
  }
}

int64_t FloatRun::pickedRows() const {
  int64_t rows = 0;
  for (const std::vector<int64_t> &sample : picks)
    rows += std::ssize(sample);
  return rows;
}

ConstMatrix FloatRun::counted(ConstMatrix rows) const {
  const int64_t skipped = runner.tokens().skipped();
  return rows.middleRows(skipped, rows.rows - skipped);
}

LogicalResult FloatRun::start() {
  FailureOr<HiddenStates> embedded = runner.embed();
  if (failed(embedded))
    return failure();
  states = std::move(*embedded);
  return success();
}

Result<void> FloatRun::summarize(ActivationSummary &summary, int64_t sample,
                                 ConstMatrix rows) const {
  numerics::AbsMax peak(rows.columns);
  if (auto done = peak.update(counted(rows)); !done)
    return done;
  if (auto done = summary.moments.update(counted(rows)); !done)
    return done;
  summary.peaks.merge(peak);
  summary.scales.push_back(numerics::scaleFromAbsMax(peak.tensor(), kInputCodes.max));
  if (sample < kept)
    for (int64_t row : picks[sample])
      summary.picked.insert(summary.picked.end(), rows.row(row), rows.row(row) + rows.columns);
  return {};
}

LogicalResult FloatRun::run(func::FuncOp function, Value input, Value output,
                            ArrayRef<Value> observed, lm::AttentionOp attention) {
  summaries.clear();
  cached = {};
  llvm::SetVector<Value> wanted(observed.begin(), observed.end());
  for (Value value : observed)
    summaries.insert({value, ActivationSummary(lm::columns(value))});
  if (attention) {
    wanted.insert(attention.getKey());
    wanted.insert(attention.getValue());
  }
  if (output)
    wanted.insert(output);
  Subgraph subgraph{{input}, llvm::to_vector(wanted)};
  FailureOr<CompiledSubgraph> program = runner.load(subgraph);
  if (failed(program))
    return failure();

  return runner.run(function.getLoc(), *program, function.getSymName(), *states, subgraph.outputs,
                    [&](int64_t i, ArrayRef<Matrix> made) {
                      Result<void> done;
                      for (auto [value, rows] : llvm::zip_equal(wanted, made)) {
                        const std::span<float> values(rows.data, rows.rows * rows.columns);
                        if (auto found = summaries.find(value); done && found != summaries.end())
                          done = summarize(found->second, i, rows);
                        if (value == output)
                          llvm::copy(values, states->sample(i).data);
                        if (attention && i < kept && value == attention.getKey())
                          cached.keys.emplace_back(values.begin(), values.end());
                        if (attention && i < kept && value == attention.getValue())
                          cached.values.emplace_back(values.begin(), values.end());
                      }
                      return done;
                    });
}
