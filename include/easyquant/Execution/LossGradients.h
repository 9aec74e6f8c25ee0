//===- LossGradients.h - What the loss of a model says of its layers -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The float model is run forward on calibration text, which keeps the hidden states before every
// layer, and backward, one layer at a time. What goes back from the logits is drawn so that the
// mean of its products is that of the loss's gradients by what the model itself predicts
// (numerics::sampledLossGradient): with x what a linear reads and g the gradient at its output,
// E[(g^T dW x)^2] is then twice the KL divergence, to second order, that a change dW of its weight
// makes (the Fisher information; Tseng, Sun, De Sa, 2025, https://arxiv.org/abs/2505.22988).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LOSSGRADIENTS_H
#define EASYQUANT_EXECUTION_LOSSGRADIENTS_H

#include "easyquant/Execution/LayerRunner.h"
#include "easyquant/Execution/TrainedLayer.h"

namespace easyquant::execution {

class LossGradients {
public:
  /// Runs the model of `runner` forward on its samples, and backward through what is behind the
  /// last layer. Fails with a diagnostic: an op without a gradient, memory, values that are not
  /// finite.
  static mlir::FailureOr<LossGradients> create(LayerRunner &runner, unsigned threads);

  /// Called with the rows of each of the linears asked for, of all tokens of a sample: those that
  /// begin texts, too, since others attend to them. Linears of experts have rows of choices; which
  /// experts a token chooses counts as constant.
  using Visitor =
      llvm::function_ref<Result<void>(int64_t sample, llvm::ArrayRef<TrainedLayer::Rows> rows)>;
  /// Takes the gradients of all samples from behind the next layer to before it: the last one
  /// first. `weights` are weights of linears in it. Fails with a diagnostic.
  mlir::LogicalResult backward(llvm::ArrayRef<mlir::Value> weights, Visitor visit);
  /// The layer that backward takes next.
  int64_t next() const { return static_cast<int64_t>(before.size()) - 1; }
  /// The gradients behind that layer; where an earlier run has stored them they may be put here,
  /// and the layers that they have gone through are to be skipped.
  HiddenStates &slopes() { return gradients; }
  void skip(int64_t layers) { before.resize(before.size() - layers); }

private:
  LossGradients(LayerRunner &runner, unsigned threads) : runner(&runner), threads(threads) {}
  mlir::LogicalResult runForward();
  mlir::LogicalResult runHead();

  LayerRunner *runner;
  unsigned threads;
  std::vector<HiddenStates> before; ///< of the layers that are still to come
  HiddenStates gradients;           ///< behind the layer that comes next
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LOSSGRADIENTS_H
