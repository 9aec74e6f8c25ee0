//===- TrainedLayer.cpp - A layer and its gradients, compiled -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/TrainedLayer.h"

#include "easyquant/Dialect/LM/Transforms/Gradients.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;

FailureOr<TrainedLayer> TrainedLayer::create(SubgraphCompiler &compiler, func::FuncOp layer,
                                             ArrayRef<Value> wanted) {
  FailureOr<lm::GradientFunction> built =
      lm::buildGradients(layer, wanted, (layer.getSymName() + ".gradients").str());
  if (failed(built))
    return failure();
  Block &block = built->function->front();
  ValueRange returned = block.getTerminator()->getOperands();
  Value input = block.getArgument(0);
  SmallVector<Value> stored;
  for (Operation &op : block)
    if (op.hasAttr(lm::kStoredAttr))
      llvm::append_range(stored, op.getResults());

  Subgraph forward{{input}, {returned.front()}};
  llvm::append_range(forward.outputs, stored);
  Subgraph backward{{input, block.getArguments().back()}, llvm::to_vector(returned.drop_front())};
  llvm::append_range(backward.inputs, stored);
  FailureOr<CompiledSubgraph> forwards = compiler.compile(forward);
  if (failed(forwards))
    return failure();
  FailureOr<CompiledSubgraph> backwards = compiler.compile(backward);
  if (failed(backwards))
    return failure();

  TrainedLayer trained(std::move(built->function), std::move(*forwards), std::move(*backwards));
  for (Value value : built->wanted) {
    auto weight =
        llvm::find_if(trained.weights(), [&](const SubgraphWeight &w) { return w.value == value; });
    trained.globals.push_back(weight == trained.weights().end() ? "" : weight->global);
  }
  int64_t bytes = 0;
  for (Value value : stored) {
    trained.columns.push_back(lm::columns(value));
    bytes +=
        compiler.options().length * trained.columns.back() * static_cast<int64_t>(sizeof(float));
  }
  Result<Buffer> memory = Buffer::allocate(bytes, "calibration", "use fewer or shorter samples");
  if (!memory)
    return emitError(layer.getLoc()) << memory.error().message;
  trained.memory = std::move(*memory);
  return trained;
}

LogicalResult TrainedLayer::load(const ModelConstants &constants) {
  return success(succeeded(forwards.load(constants)) && succeeded(backwards.load(constants)));
}

Result<void> TrainedLayer::setWeight(StringRef global, ConstMatrix values) {
  if (auto done = forwards.setWeight(global, values); !done)
    return done;
  if (!backwards.weight(global).data)
    return {};
  return backwards.setWeight(global, values);
}

Result<void> TrainedLayer::forward(ConstMatrix x, Matrix y) {
  SmallVector<Matrix> outputs = {y};
  float *next = memory.data<float>();
  for (int64_t width : columns) {
    outputs.push_back({next, x.rows, width});
    next += x.rows * width;
  }
  stored.assign(outputs.begin() + 1, outputs.end());
  return forwards.run({x}, outputs);
}

Result<void> TrainedLayer::backward(ConstMatrix x, ConstMatrix dy, ArrayRef<Matrix> gradients) {
  SmallVector<ConstMatrix> inputs = {x, dy};
  llvm::append_range(inputs, stored);
  return backwards.run(inputs, gradients);
}
