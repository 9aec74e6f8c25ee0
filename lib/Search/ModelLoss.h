//===- ModelLoss.h - How far a model is from its float self -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the hidden states behind the last layer. The logits of a few tokens at a time are in memory:
// those of the float model are computed again each time, which several models may share. Private to
// lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_MODELLOSS_H
#define EASYQUANT_LIB_SEARCH_MODELLOSS_H

#include "easyquant/Execution/LayerRunner.h"

#include <optional>

namespace easyquant::search {

using namespace execution;

enum class Objective {
  KL,   ///< mean KL(float || model) over the tokens that count
  Loss, ///< mean loss of the next token, less that of the float model; may be negative
};

/// What a whole model loses, nats a token, rounded to f32, in which journals keep them.
struct ModelLosses {
  float objective = 0;
  /// The loss of the next token, and the float model's; perplexities are their exponentials. Below
  /// 0 where no sample has a next token.
  float nextToken = -1, floatNextToken = -1;
};

class ModelLoss {
public:
  /// `reference`: the float model's states behind the last layer. Fails with a diagnostic.
  static mlir::FailureOr<ModelLoss> create(LayerRunner &runner, HiddenStates reference,
                                           Objective objective, unsigned threads);

  /// Nats a token of each of the models, rounded to f32, in which journals keep them. Fails with a
  /// diagnostic.
  mlir::FailureOr<std::vector<float>> of(llvm::ArrayRef<const HiddenStates *> models) {
    return of(models, head);
  }
  /// The same of models with another output head.
  mlir::FailureOr<std::vector<float>> of(llvm::ArrayRef<const HiddenStates *> models,
                                         CompiledSubgraph &other);
  /// All that is known of each of the models, from one pass of either head. Fails with a
  /// diagnostic.
  mlir::FailureOr<std::vector<ModelLosses>> allOf(llvm::ArrayRef<const HiddenStates *> models,
                                                  CompiledSubgraph &other);
  mlir::FailureOr<std::vector<ModelLosses>> allOf(llvm::ArrayRef<const HiddenStates *> models) {
    return allOf(models, head);
  }

  /// The float model's states behind the last layer.
  const HiddenStates &floatStates() const { return reference; }
  /// Another output head, with the float model's weights. Fails with a diagnostic.
  static mlir::FailureOr<CompiledSubgraph>
  compileHead(LayerRunner &runner, llvm::ArrayRef<mlir::Operation *> rounded = {});

private:
  ModelLoss(LayerRunner &runner, HiddenStates reference, CompiledSubgraph head, mlir::Value logits,
            Objective objective, unsigned threads)
      : runner(&runner), reference(std::move(reference)), head(std::move(head)), logits(logits),
        objective(objective), threads(threads) {}
  /// Sums over tokens: divergences, and losses of the next token.
  struct Sums {
    double divergence = 0, nextToken = 0;
  };
  /// What is asked of models whose head is `other`: measures that are not cost nothing.
  struct Question {
    bool divergence, nextToken;
    CompiledSubgraph *other;
  };
  Result<void> addSample(const Question &asked, int64_t sample,
                         llvm::ArrayRef<const HiddenStates *> models,
                         llvm::MutableArrayRef<Sums> sums);
  /// Means over tokens.
  mlir::FailureOr<std::vector<Sums>> means(const Question &asked,
                                           llvm::ArrayRef<const HiddenStates *> models);
  /// The loss of the next token by the float model.
  mlir::FailureOr<double> ownLoss();
  /// Tokens that have a next one.
  int64_t predicted() const { return runner->tokens().counted() - runner->tokens().samples(); }

  LayerRunner *runner;
  HiddenStates reference;
  CompiledSubgraph head;
  mlir::Value logits;
  Objective objective;
  unsigned threads;
  std::optional<double> floatLoss; ///< of the next token, where it was asked for
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_MODELLOSS_H
