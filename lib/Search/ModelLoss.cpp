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
using namespace easyquant::execution;
using namespace easyquant::search;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Tokens whose logits are in memory.
static constexpr int64_t kLogitRows = 64;

static Value logitsOf(LayerRunner &runner) {
  return runner.finalState().getParentBlock()->getTerminator()->getOperand(0);
}

FailureOr<CompiledSubgraph> ModelLoss::compileHead(LayerRunner &runner,
                                                   ArrayRef<Operation *> rounded) {
  Subgraph subgraph{{runner.finalState()}, {logitsOf(runner)}};
  if (!rounded.empty())
    subgraph.roundings.emplace_back(rounded);
  return runner.load(subgraph);
}

FailureOr<ModelLoss> ModelLoss::create(LayerRunner &runner, HiddenStates reference,
                                       Objective objective, unsigned threads) {
  FailureOr<CompiledSubgraph> head = compileHead(runner);
  if (failed(head))
    return failure();
  ModelLoss loss(runner, std::move(reference), std::move(*head), logitsOf(runner), objective,
                 threads);
  if (objective == Objective::Loss && failed(loss.ownLoss()))
    return failure();
  return std::move(loss);
}

Result<void> ModelLoss::addSample(const Question &asked, int64_t sample,
                                  ArrayRef<const HiddenStates *> models,
                                  MutableArrayRef<Sums> sums) {
  const std::span<const int32_t> tokens = runner->tokens().sample(sample);
  const int64_t vocabulary = lm::columns(logits), all = std::ssize(tokens);
  std::vector<float> expected(asked.divergence ? kLogitRows * vocabulary : 0),
      found(kLogitRows * vocabulary);
  auto run = [&](CompiledSubgraph &program, const HiddenStates &states, int64_t first,
                 int64_t count, float *out) {
    return runner->runSample(program, "the output head", sample,
                             ConstMatrix(states.sample(sample)).middleRows(first, count),
                             Matrix(out, count, vocabulary));
  };
  // The last token's next one is not known.
  const int64_t end = all - (asked.divergence ? 0 : 1);
  for (int64_t first = runner->tokens().skipped(); first < end; first += kLogitRows) {
    const int64_t count = std::min(kLogitRows, end - first),
                  predicted = std::min(count, all - 1 - first);
    if (asked.divergence)
      if (auto done = run(head, reference, first, count, expected.data()); !done)
        return done;
    for (auto [model, sum] : llvm::zip_equal(models, sums)) {
      if (auto done = run(*asked.other, *model, first, count, found.data()); !done)
        return done;
      const ConstMatrix rows(found.data(), count, vocabulary);
      if (asked.divergence) {
        auto added = numerics::klDivergence({expected.data(), count, vocabulary}, rows, threads);
        if (!added)
          return Unexpected(added.error());
        sum.divergence += *added;
      }
      if (asked.nextToken && predicted > 0) {
        auto added = numerics::crossEntropy(rows.middleRows(0, predicted),
                                            tokens.subspan(first + 1, predicted), threads);
        if (!added)
          return Unexpected(added.error());
        sum.nextToken += *added;
      }
    }
  }
  return {};
}

FailureOr<std::vector<ModelLoss::Sums>> ModelLoss::means(const Question &asked,
                                                         ArrayRef<const HiddenStates *> models) {
  if (!asked.divergence && predicted() < 1)
    return emitError(logits.getLoc())
           << "samples of one token have no next one to predict: give longer samples, or objective "
              "kl";
  std::vector<Sums> sums(models.size());
  for (int64_t i = 0; i < runner->tokens().samples(); ++i)
    if (auto done = addSample(asked, i, models, sums); !done)
      return emitError(logits.getLoc()) << done.error().message;
  for (Sums &sum : sums) {
    sum.divergence /= static_cast<double>(runner->tokens().counted());
    sum.nextToken /= static_cast<double>(predicted());
  }
  return sums;
}

FailureOr<double> ModelLoss::ownLoss() {
  if (!floatLoss) {
    FailureOr<std::vector<Sums>> own = means({false, true, &head}, {&reference});
    if (failed(own))
      return failure();
    floatLoss = own->front().nextToken;
  }
  return *floatLoss;
}

FailureOr<std::vector<float>> ModelLoss::of(ArrayRef<const HiddenStates *> models,
                                            CompiledSubgraph &other) {
  const bool isDivergence = objective == Objective::KL;
  FailureOr<std::vector<Sums>> found = means({isDivergence, !isDivergence, &other}, models);
  if (failed(found))
    return failure();
  std::vector<float> losses;
  for (const Sums &sum : *found)
    losses.push_back(
        static_cast<float>(isDivergence ? sum.divergence : sum.nextToken - *floatLoss));
  return losses;
}

FailureOr<std::vector<ModelLosses>> ModelLoss::allOf(ArrayRef<const HiddenStates *> models,
                                                     CompiledSubgraph &other) {
  const bool isPredicted = predicted() >= 1, isDivergence = objective == Objective::KL;
  FailureOr<double> own = isPredicted ? ownLoss() : FailureOr<double>(-1.0);
  if (failed(own))
    return failure();
  FailureOr<std::vector<Sums>> found = means({isDivergence, isPredicted, &other}, models);
  if (failed(found))
    return failure();
  std::vector<ModelLosses> all;
  for (const Sums &sum : *found) {
    ModelLosses &losses = all.emplace_back();
    losses.objective = static_cast<float>(isDivergence ? sum.divergence : sum.nextToken - *own);
    if (isPredicted) {
      losses.nextToken = static_cast<float>(sum.nextToken);
      losses.floatNextToken = static_cast<float>(*own);
    }
  }
  return all;
}
