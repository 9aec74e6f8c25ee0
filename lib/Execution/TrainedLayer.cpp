//===- TrainedLayer.cpp - A layer and its gradients, compiled -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/TrainedLayer.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;

/// Memory for a sequence of the longest length of each of `columns`, one matrix after the other.
static Result<Buffer> memoryFor(const EngineOptions &options, ArrayRef<int64_t> columns) {
  int64_t bytes = 0;
  for (int64_t width : columns)
    bytes += options.length * width * static_cast<int64_t>(sizeof(float));
  return Buffer::allocate(bytes, "calibration", "use fewer or shorter samples");
}

/// What the way back reads of the way forward.
static SmallVector<Value> storedIn(Block &block) {
  SmallVector<Value> stored;
  for (Operation &op : block)
    if (op.hasAttr(lm::kStoredAttr))
      llvm::append_range(stored, op.getResults());
  return stored;
}

FailureOr<TrainedLayer> TrainedLayer::compile(SubgraphCompiler &compiler,
                                              lm::GradientFunction built,
                                              ArrayRef<Value> gradients) {
  Location loc = built.function->getLoc();
  Block &block = built.function->front();
  Value input = block.getArgument(0);
  SmallVector<Value> stored = storedIn(block);

  Subgraph forward{{input}, {block.getTerminator()->getOperand(0)}};
  llvm::append_range(forward.outputs, stored);
  Subgraph backward{{input, block.getArguments().back()}, llvm::to_vector(gradients)};
  llvm::append_range(backward.inputs, stored);
  FailureOr<CompiledSubgraph> forwards = compiler.compile(forward);
  if (failed(forwards))
    return failure();
  FailureOr<CompiledSubgraph> backwards = compiler.compile(backward);
  if (failed(backwards))
    return failure();

  TrainedLayer trained(std::move(built.function), std::move(*forwards), std::move(*backwards));
  for (Value value : built.wanted) {
    auto weight =
        llvm::find_if(trained.weights(), [&](const SubgraphWeight &w) { return w.value == value; });
    trained.globals.push_back(weight == trained.weights().end() ? "" : weight->global);
  }
  for (Value value : stored)
    trained.columns.push_back(lm::columns(value));
  Result<Buffer> memory = memoryFor(compiler.options(), trained.columns);
  if (!memory)
    return emitError(loc) << memory.error().message;
  trained.memory = std::move(*memory);
  return trained;
}

FailureOr<TrainedLayer> TrainedLayer::create(SubgraphCompiler &compiler, func::FuncOp layer,
                                             ArrayRef<Value> wanted) {
  FailureOr<lm::GradientFunction> built =
      lm::buildGradients(layer, wanted, (layer.getSymName() + ".gradients").str());
  if (failed(built))
    return failure();
  ValueRange returned = built->function->front().getTerminator()->getOperands();
  return compile(compiler, std::move(*built), llvm::to_vector(returned.drop_front()));
}

FailureOr<TrainedLayer> TrainedLayer::createForRows(SubgraphCompiler &compiler, func::FuncOp layer,
                                                    ArrayRef<Value> weights) {
  SmallVector<Value> wanted = {layer.getArgument(0)};
  llvm::append_range(wanted, weights);
  FailureOr<lm::GradientFunction> built =
      lm::buildGradients(layer, wanted, (layer.getSymName() + ".gradients").str());
  if (failed(built))
    return failure();
  Block &block = built->function->front();
  ValueRange returned = block.getTerminator()->getOperands().drop_front();
  SmallVector<Value> stored = storedIn(block);
  llvm::SmallSetVector<Value, 8> outputs;
  outputs.insert(returned.front());
  auto placeOf = [&](Value value) -> Place {
    if (const auto *found = llvm::find(stored, value); found != stored.end())
      return {true, static_cast<size_t>(found - stored.begin())};
    outputs.insert(value);
    return {false, static_cast<size_t>(llvm::find(outputs, value) - outputs.begin())};
  };
  SmallVector<std::pair<Place, Place>> places;
  for (Value gradient : returned.drop_front()) {
    auto product = gradient.getDefiningOp<lm::LinearWeightGradientOp>();
    if (!product)
      return emitError(gradient.getLoc())
             << "expected the gradient of a weight of a linear, found that of another op's operand";
    places.push_back({placeOf(product.getInput()), placeOf(product.getGradient())});
  }
  FailureOr<TrainedLayer> trained = compile(compiler, std::move(*built), outputs.getArrayRef());
  if (failed(trained))
    return failure();
  trained->places = std::move(places);
  for (Value value : outputs.getArrayRef().drop_front())
    trained->rowColumns.push_back(lm::columns(value));
  Result<Buffer> memory = memoryFor(compiler.options(), trained->rowColumns);
  if (!memory)
    return emitError(layer.getLoc()) << memory.error().message;
  trained->rowMemory = std::move(*memory);
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

/// Matrices of `rows` rows, one after the other in `memory`.
static SmallVector<Matrix> matricesIn(Buffer &memory, ArrayRef<int64_t> columns, int64_t rows) {
  SmallVector<Matrix> matrices;
  float *next = memory.data<float>();
  for (int64_t width : columns) {
    matrices.push_back({next, rows, width});
    next += rows * width;
  }
  return matrices;
}

Result<void> TrainedLayer::forward(ConstMatrix x, Matrix y) {
  stored = matricesIn(memory, columns, x.rows);
  SmallVector<Matrix> outputs = {y};
  llvm::append_range(outputs, stored);
  return forwards.run({x}, outputs);
}

Result<void> TrainedLayer::backward(ConstMatrix x, ConstMatrix dy, ArrayRef<Matrix> gradients) {
  SmallVector<ConstMatrix> inputs = {x, dy};
  llvm::append_range(inputs, stored);
  return backwards.run(inputs, gradients);
}

Result<SmallVector<TrainedLayer::Rows>> TrainedLayer::backwardRows(ConstMatrix x, ConstMatrix dy,
                                                                   Matrix dx) {
  SmallVector<Matrix> outputs = {dx};
  llvm::append_range(outputs, matricesIn(rowMemory, rowColumns, x.rows));
  if (auto done = backward(x, dy, outputs); !done)
    return Unexpected(done.error());
  auto at = [&](Place place) -> ConstMatrix {
    return place.isStored ? stored[place.number] : outputs[place.number];
  };
  SmallVector<Rows> rows;
  for (auto [input, gradient] : places)
    rows.push_back({at(input), at(gradient)});
  return rows;
}
