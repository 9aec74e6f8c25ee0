//===- ModelLoss.h - How far a model is from its float self -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// From the hidden states behind the last layer. The logits of a few tokens at a time are in memory:
// those of the float model are computed again each time, which several models may share. Private to
// lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_MODELLOSS_H
#define EASYQUANT_LIB_SEARCH_MODELLOSS_H

#include "easyquant/Calibration/LayerRunner.h"

namespace easyquant::search {

using namespace calibration;

enum class Objective {
  KL,   ///< mean KL(float || model) over the tokens that count
  Loss, ///< mean loss of the next token, less that of the float model; may be negative
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

  /// The float model's states behind the last layer.
  const HiddenStates &floatStates() const { return reference; }
  /// Another output head, with the float model's weights. Fails with a diagnostic.
  static mlir::FailureOr<CompiledSubgraph> compileHead(LayerRunner &runner);

private:
  ModelLoss(LayerRunner &runner, HiddenStates reference, CompiledSubgraph head, mlir::Value logits,
            Objective objective, unsigned threads)
      : runner(&runner), reference(std::move(reference)), head(std::move(head)), logits(logits),
        objective(objective), threads(threads) {}
  Result<void> addSample(int64_t sample, llvm::ArrayRef<const HiddenStates *> models,
                         CompiledSubgraph &other, std::vector<double> &sums);
  mlir::FailureOr<std::vector<double>> means(llvm::ArrayRef<const HiddenStates *> models,
                                             CompiledSubgraph &other);

  LayerRunner *runner;
  HiddenStates reference;
  CompiledSubgraph head;
  mlir::Value logits;
  Objective objective;
  unsigned threads;
  double floatLoss = 0; ///< of Objective::Loss
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_MODELLOSS_H
