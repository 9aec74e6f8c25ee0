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
  FailureOr<std::vector<double>> own = loss.means(Objective::Loss, {&loss.reference}, loss.head);
  if (failed(own))
    return failure();
  loss.floatLoss = own->front();
  return std::move(loss);
}

Result<void> ModelLoss::addSample(Objective measure, int64_t sample,
                                  ArrayRef<const HiddenStates *> models, CompiledSubgraph &other,
                                  std::vector<double> &sums) {
  const std::span<const int32_t> tokens = runner->tokens().sample(sample);
  const int64_t vocabulary = lm::columns(logits);
  // The last token's next one is not known.
  const int64_t end = std::ssize(tokens) - (measure == Objective::Loss ? 1 : 0);
  std::vector<float> expected(measure == Objective::KL ? kLogitRows * vocabulary : 0),
      found(kLogitRows * vocabulary);
  auto run = [&](CompiledSubgraph &program, const HiddenStates &states, int64_t first,
                 int64_t count, float *out) {
    return runner->runSample(program, "the output head", sample,
                             ConstMatrix(states.sample(sample)).middleRows(first, count),
                             Matrix(out, count, vocabulary));
  };
  for (int64_t first = runner->tokens().skipped(); first < end; first += kLogitRows) {
    const int64_t count = std::min(kLogitRows, end - first);
    if (measure == Objective::KL)
      if (auto done = run(head, reference, first, count, expected.data()); !done)
        return done;
    for (auto [model, sum] : llvm::zip_equal(models, sums)) {
      if (auto done = run(other, *model, first, count, found.data()); !done)
        return done;
      const ConstMatrix rows(found.data(), count, vocabulary);
      Result<double> added =
          measure == Objective::KL
              ? numerics::klDivergence({expected.data(), count, vocabulary}, rows, threads)
              : numerics::crossEntropy(rows, tokens.subspan(first + 1, count), threads);
      if (!added)
        return Unexpected(added.error());
      sum += *added;
    }
  }
  return {};
}

FailureOr<std::vector<double>> ModelLoss::means(Objective measure,
                                                ArrayRef<const HiddenStates *> models,
                                                CompiledSubgraph &other) {
  std::vector<double> sums(models.size());
  const int64_t counted = measure == Objective::Loss ? predicted() : runner->tokens().counted();
  if (counted < 1)
    return emitError(logits.getLoc())
           << "samples of one token have no next one to predict: give longer samples, or objective "
              "kl";
  for (int64_t i = 0; i < runner->tokens().samples(); ++i)
    if (auto done = addSample(measure, i, models, other, sums); !done)
      return emitError(logits.getLoc()) << done.error().message;
  for (double &sum : sums)
    sum /= static_cast<double>(counted);
  return sums;
}

FailureOr<std::vector<float>> ModelLoss::of(ArrayRef<const HiddenStates *> models,
                                            CompiledSubgraph &other) {
  FailureOr<std::vector<double>> found = means(objective, models, other);
  if (failed(found))
    return failure();
  std::vector<float> losses;
  for (double loss : *found)
    losses.push_back(static_cast<float>(loss - (objective == Objective::Loss ? *floatLoss : 0)));
  return losses;
}

FailureOr<ModelLosses> ModelLoss::allOf(const HiddenStates &model, CompiledSubgraph &other) {
  auto meanOf = [&](Objective measure, const HiddenStates &states,
                    CompiledSubgraph &program) -> FailureOr<double> {
    FailureOr<std::vector<double>> found = means(measure, {&states}, program);
    return failed(found) ? FailureOr<double>() : FailureOr<double>(found->front());
  };
  ModelLosses losses;
  FailureOr<double> nextToken = -1.0;
  if (predicted() >= 1) {
    FailureOr<double> own =
        floatLoss ? FailureOr<double>(*floatLoss) : meanOf(Objective::Loss, reference, head);
    if (failed(own) || failed(nextToken = meanOf(Objective::Loss, model, other)))
      return failure();
    floatLoss = *own;
    losses.floatNextToken = static_cast<float>(*own);
  }
  losses.nextToken = static_cast<float>(*nextToken);
  if (objective == Objective::Loss) {
    losses.objective = static_cast<float>(*nextToken - *floatLoss);
    return losses;
  }
  FailureOr<double> divergence = meanOf(Objective::KL, model, other);
  if (failed(divergence))
    return failure();
  losses.objective = static_cast<float>(*divergence);
  return losses;
}
