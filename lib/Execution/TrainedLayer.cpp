//===- TrainedLayer.cpp - A layer and its gradients, compiled -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/TrainedLayer.h"

#include "llvm/ADT/MapVector.h"
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
                                              lm::GradientFunction built, ArrayRef<Value> gradients,
                                              ArrayRef<ChoiceRows> observed) {
  Location loc = built.function->getLoc();
  Block &block = built.function->front();
  Value input = block.getArgument(0);
  SmallVector<Value> stored = storedIn(block);

  Subgraph forward{{input}, {block.getTerminator()->getOperand(0)}};
  llvm::append_range(forward.outputs, stored);
  Subgraph backward{{input, block.getArguments().back()}, llvm::to_vector(gradients)};
  llvm::append_range(backward.inputs, stored);
  backward.observed = llvm::to_vector(observed);
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

/// The site of the linear that reads a weight.
static std::string siteReading(Value weight) {
  for (Operation *user : weight.getUsers())
    if (auto linear = dyn_cast<lm::LinearOp>(user))
      return linear.getSite().str();
  return "";
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
  llvm::MapVector<Value, ChoiceRows> observed;
  auto placeOf = [&](Value value) -> Place {
    if (const auto *found = llvm::find(stored, value); found != stored.end())
      return {Place::Of::Stored, static_cast<size_t>(found - stored.begin())};
    outputs.insert(value);
    return {Place::Of::Given, static_cast<size_t>(llvm::find(outputs, value) - outputs.begin())};
  };
  auto placeOfChoices = [&](const ChoiceRows &choices) -> Place {
    auto found = observed.insert({choices.rows, choices}).first;
    return {Place::Of::Observed, static_cast<size_t>(found - observed.begin())};
  };
  SmallVector<std::pair<Place, Place>> places;
  for (auto [weight, gradient] :
       llvm::zip_equal(ArrayRef(built->wanted).drop_front(), returned.drop_front())) {
    auto product = gradient.getDefiningOp<lm::LinearWeightGradientOp>();
    if (!product)
      return emitError(gradient.getLoc())
             << "expected the gradient of a weight of a linear, found that of another op's operand";
    if (Value offsets = product.getExperts()) {
      const std::string site = siteReading(weight);
      if (!offsets.getDefiningOp<lm::RouteOp>())
        return emitError(gradient.getLoc())
               << "site '" << site
               << "' cannot be observed: no lm.route gives the rows of its experts";
      const Place input = placeOfChoices({product.getInput(), offsets, site});
      places.push_back({input, placeOfChoices({product.getGradient(), offsets, site})});
      continue;
    }
    const Place input = placeOf(product.getInput());
    places.push_back({input, placeOf(product.getGradient())});
  }
  SmallVector<ChoiceRows> choices;
  SmallVector<int64_t> choiceColumns; // of all choices of a token
  for (auto &[rows, choice] : observed) {
    choices.push_back(choice);
    auto route = choice.offsets.getDefiningOp<lm::RouteOp>();
    choiceColumns.push_back(lm::columns(rows) * static_cast<int64_t>(route.getTopK()));
  }
  FailureOr<TrainedLayer> trained =
      compile(compiler, std::move(*built), outputs.getArrayRef(), choices);
  if (failed(trained))
    return failure();
  trained->places = std::move(places);
  for (Value value : outputs.getArrayRef().drop_front())
    trained->rowColumns.push_back(lm::columns(value));
  for (auto [memory, columns] : {std::pair(&trained->rowMemory, &trained->rowColumns),
                                 {&trained->choiceMemory, &choiceColumns}}) {
    Result<Buffer> allocated = memoryFor(compiler.options(), *columns);
    if (!allocated)
      return emitError(layer.getLoc()) << allocated.error().message;
    *memory = std::move(*allocated);
  }
  float *next = trained->choiceMemory.data<float>();
  for (int64_t width : choiceColumns) {
    trained->choices.push_back({next});
    next += compiler.options().length * width;
  }
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
  auto keep = [&](const Observation &observation, const ObservedRows &seen) {
    Choices &kept = choices[&observation - backwards.observations().data()];
    const Matrix rows(kept.memory, seen.rows.rows, seen.rows.columns);
    for (int64_t row = 0; row < rows.rows; ++row)
      std::copy_n(seen.rows.row(row), rows.columns, rows.row(row));
    kept.rows = rows;
    kept.offsets.assign(seen.offsets.begin(), seen.offsets.end());
    kept.order.assign(seen.order.begin(), seen.order.end());
  };
  return backwards.run(inputs, gradients, keep);
}

Result<SmallVector<TrainedLayer::Rows>> TrainedLayer::backwardRows(ConstMatrix x, ConstMatrix dy,
                                                                   Matrix dx) {
  SmallVector<Matrix> outputs = {dx};
  llvm::append_range(outputs, matricesIn(rowMemory, rowColumns, x.rows));
  if (auto done = backward(x, dy, outputs); !done)
    return Unexpected(done.error());
  auto at = [&](Place place) -> ConstMatrix {
    switch (place.of) {
    case Place::Of::Stored:
      return stored[place.number];
    case Place::Of::Given:
      return outputs[place.number];
    case Place::Of::Observed:
      return choices[place.number].rows;
    }
    llvm_unreachable("a place of no kind");
  };
  SmallVector<Rows> rows;
  for (auto [input, gradient] : places) {
    Rows &of = rows.emplace_back(Rows{at(input), at(gradient)});
    if (gradient.of == Place::Of::Observed) {
      of.offsets = choices[gradient.number].offsets;
      of.order = choices[gradient.number].order;
    }
  }
  return rows;
}
