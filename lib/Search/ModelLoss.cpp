//===- ModelLoss.cpp - How far a model is from its float self -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "ModelLoss.h"

#include "easyquant/Numerics/LogitMetrics.h"

#include <cmath>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using namespace easyquant::search;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Tokens whose logits are in memory.
static constexpr int64_t kLogitRows = 64;

static Value logitsOf(LayerRunner &runner) {
  return runner.finalState().getParentBlock()->getTerminator()->getOperand(0);
}

FailureOr<CompiledSubgraph> ModelLoss::compileHead(LayerRunner &runner) {
  Subgraph subgraph{{runner.finalState()}, {logitsOf(runner)}};
  subgraph.observers = false;
  FailureOr<CompiledSubgraph> head = runner.compiler().compile(subgraph);
  if (failed(head) || failed(head->load(runner.constants())))
    return failure();
  return head;
}

FailureOr<ModelLoss> ModelLoss::create(LayerRunner &runner, HiddenStates reference,
                                       Objective objective, unsigned threads) {
  FailureOr<CompiledSubgraph> head = compileHead(runner);
  if (failed(head))
    return failure();
  Value logits = logitsOf(runner);
  ModelLoss loss(runner, std::move(reference), std::move(*head), logits, objective, threads);
  if (objective == Objective::KL)
    return std::move(loss);
  FailureOr<std::vector<double>> own = loss.means({&loss.reference}, loss.head);
  if (failed(own))
    return failure();
  loss.floatLoss = own->front();
  return std::move(loss);
}

Result<void> ModelLoss::addSample(int64_t sample, ArrayRef<const HiddenStates *> models,
                                  CompiledSubgraph &other, std::vector<double> &sums) {
  const std::span<const int32_t> tokens = runner->tokens().sample(sample);
  const int64_t vocabulary = lm::columns(logits);
  // The last token's next one is not known.
  const int64_t end = std::ssize(tokens) - (objective == Objective::Loss ? 1 : 0);
  std::vector<float> expected(objective == Objective::KL ? kLogitRows * vocabulary : 0),
      found(kLogitRows * vocabulary);
  auto run = [&](CompiledSubgraph &program, const HiddenStates &states, int64_t first,
                 int64_t count, float *out) {
    return runner->runSample(program, "the output head", sample,
                             ConstMatrix(states.sample(sample)).middleRows(first, count),
                             Matrix(out, count, vocabulary));
  };
  for (int64_t first = runner->tokens().skipped(); first < end; first += kLogitRows) {
    const int64_t count = std::min(kLogitRows, end - first);
    if (objective == Objective::KL)
      if (auto done = run(head, reference, first, count, expected.data()); !done)
        return done;
    for (auto [model, sum] : llvm::zip_equal(models, sums)) {
      if (auto done = run(other, *model, first, count, found.data()); !done)
        return done;
      const ConstMatrix rows(found.data(), count, vocabulary);
      Result<double> added =
          objective == Objective::KL
              ? numerics::klDivergence({expected.data(), count, vocabulary}, rows, threads)
              : numerics::crossEntropy(rows, tokens.subspan(first + 1, count), threads);
      if (!added)
        return Unexpected(added.error());
      sum += *added;
    }
  }
  return {};
}

FailureOr<std::vector<double>> ModelLoss::means(ArrayRef<const HiddenStates *> models,
                                                CompiledSubgraph &other) {
  std::vector<double> sums(models.size());
  int64_t counted = runner->tokens().counted();
  if (objective == Objective::Loss)
    counted -= runner->tokens().samples();
  if (counted < 1)
    return emitError(logits.getLoc())
           << "samples of one token have no next one to predict: give longer samples, or objective "
              "kl";
  for (int64_t i = 0; i < runner->tokens().samples(); ++i)
    if (auto done = addSample(i, models, other, sums); !done)
      return emitError(logits.getLoc()) << done.error().message;
  for (double &sum : sums)
    sum /= static_cast<double>(counted);
  return sums;
}

FailureOr<std::vector<float>> ModelLoss::of(ArrayRef<const HiddenStates *> models,
                                            CompiledSubgraph &other) {
  FailureOr<std::vector<double>> found = means(models, other);
  if (failed(found))
    return failure();
  std::vector<float> losses;
  for (double loss : *found)
    losses.push_back(static_cast<float>(loss - floatLoss));
  return losses;
}
