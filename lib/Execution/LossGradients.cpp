//===- LossGradients.cpp - What the loss of a model says of its layers ----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LossGradients.h"

#include "easyquant/Numerics/LogitMetrics.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Tokens whose logits are in memory.
static constexpr int64_t kLogitRows = 64;

/// Signs are drawn from here on.
static constexpr uint64_t kSeed = 0x5eed;

/// What @forward computes of the last layer's output for every token, as a function of it.
static OwningOpRef<func::FuncOp> headFunction(LayerRunner &runner) {
  Value state = runner.finalState();
  Block *block = state.getParentBlock();
  Value logits = block->getTerminator()->getOperand(0);
  llvm::SmallPtrSet<Operation *, 16> needed;
  SmallVector<Value> worklist = {logits};
  while (!worklist.empty()) {
    Operation *op = worklist.pop_back_val().getDefiningOp();
    if (op && op != state.getDefiningOp() && needed.insert(op).second)
      llvm::append_range(worklist, op->getOperands());
  }
  OpBuilder builder(state.getContext());
  OwningOpRef<func::FuncOp> function = func::FuncOp::create(
      builder, state.getLoc(), "head", builder.getFunctionType(state.getType(), logits.getType()));
  Block *body = function->addEntryBlock();
  builder.setInsertionPointToStart(body);
  IRMapping mapping;
  mapping.map(state, body->getArgument(0));
  for (Operation &op : *block) {
    if (!needed.contains(&op))
      continue;
    if (auto rows = dyn_cast<lm::RowsOp>(op)) // every row is asked for
      mapping.map(rows.getOutput(), mapping.lookup(rows.getInput()));
    else
      builder.clone(op, mapping);
  }
  func::ReturnOp::create(builder, state.getLoc(), mapping.lookup(logits));
  return function;
}

/// Impossible requests are refused before anything runs.
static LogicalResult checkHasGradients(func::FuncOp layer) {
  Value input = layer.getArgument(0);
  if (succeeded(lm::buildGradients(layer, input, "gradients")))
    return success();
  return emitError(layer.getLoc())
         << "Hessians of the loss take gradients through layer '" << layer.getSymName()
         << "', which has none; take --hessian sinks or inputs, which "
            "run the model forward alone";
}

FailureOr<LossGradients> LossGradients::create(LayerRunner &runner, unsigned threads) {
  for (func::FuncOp layer : runner.layers())
    if (failed(checkHasGradients(layer)))
      return failure();
  LossGradients made(runner, threads);
  if (failed(made.runForward()) || failed(made.runHead()))
    return failure();
  return made;
}

static void copyInto(const HiddenStates &from, HiddenStates &to) {
  Matrix in = from.all();
  std::copy_n(in.data, in.rows * in.columns, to.all().data);
}

LogicalResult LossGradients::runForward() {
  FailureOr<HiddenStates> states = runner->embed();
  if (failed(states))
    return failure();
  for (size_t i = 0; i < runner->layers().size(); ++i) {
    FailureOr<HiddenStates> kept = runner->allocate();
    if (failed(kept))
      return failure();
    copyInto(*states, *kept);
    before.push_back(std::move(*kept));
    if (failed(runner->runLayer(i, *states)))
      return failure();
  }
  gradients = std::move(*states);
  return success();
}

LogicalResult LossGradients::runHead() {
  OwningOpRef<func::FuncOp> function = headFunction(*runner);
  const Location loc = function->getLoc();
  const int64_t vocabulary = lm::columns(function->front().getTerminator()->getOperand(0)),
                width = gradients.columns();
  FailureOr<TrainedLayer> head =
      TrainedLayer::create(runner->compiler(), *function, {function->getArgument(0)});
  if (failed(head) || failed(head->load(runner->constants())))
    return failure();
  std::vector<float> logits(kLogitRows * vocabulary), slope(kLogitRows * width);
  const CalibrationTokens &tokens = runner->tokens();
  for (int64_t sample = 0; sample < gradients.samples(); ++sample) {
    Matrix states = gradients.sample(sample);
    for (int64_t first = 0; first < states.rows; first += kLogitRows) {
      const int64_t count = std::min(kLogitRows, states.rows - first);
      Matrix x = states.middleRows(first, count), y(logits.data(), count, vocabulary),
             dx(slope.data(), count, width);
      Result<void> done = head->forward(x, y);
      if (done) {
        const auto token = (tokens.firstSample() + sample) * tokens.maxLength() + first;
        numerics::sampledLossGradient(y, kSeed, token, threads);
        done = head->backward(x, y, {dx});
      }
      if (done)
        done = runner->checkFinite("the gradients behind the last layer", sample, dx);
      if (!done)
        return emitError(loc) << done.error().message;
      std::copy_n(dx.data, count * width, x.data);
    }
  }
  return success();
}

LogicalResult LossGradients::backward(ArrayRef<Value> weights, Visitor visit) {
  func::FuncOp layer = runner->layers()[next()];
  FailureOr<TrainedLayer> program = TrainedLayer::createForRows(runner->compiler(), layer, weights);
  if (failed(program) || failed(program->load(runner->constants())))
    return failure();
  const int64_t length = runner->tokens().maxLength(), width = gradients.columns();
  std::vector<float> output(length * width), input(length * width);
  const std::string name = ("the gradients of " + layer.getSymName()).str();
  for (int64_t sample = 0; sample < gradients.samples(); ++sample) {
    Matrix x = before.back().sample(sample), dy = gradients.sample(sample),
           y(output.data(), x.rows, width), dx(input.data(), x.rows, width);
    Result<void> done = program->forward(x, y);
    if (!done)
      return emitError(layer.getLoc()) << done.error().message;
    auto rows = program->backwardRows(x, dy, dx);
    if (!rows)
      return emitError(layer.getLoc()) << rows.error().message;
    done = visit(sample, *rows); // names sites, where it refuses what dx has become of
    if (done)
      done = runner->checkFinite(name, sample, dx);
    if (!done)
      return emitError(layer.getLoc()) << done.error().message;
    std::copy_n(dx.data, x.rows * width, dy.data);
    if (runner->onSample)
      runner->onSample();
  }
  before.pop_back();
  return success();
}
