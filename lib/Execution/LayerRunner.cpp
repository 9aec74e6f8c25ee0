//===- LayerRunner.cpp - A model run layer by layer -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LayerRunner.h"

#include "easyquant/Dialect/LM/Analysis/Calls.h"

#include "mlir/IR/SymbolTable.h"

#include <algorithm>
#include <cmath>
#include <optional>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using equant::ObserveOp;
using numerics::ConstMatrix;
using numerics::Matrix;

Result<HiddenStates> HiddenStates::allocate(const CalibrationTokens &tokens, int64_t columns) {
  HiddenStates states;
  states.width = columns;
  states.offsets.push_back(0);
  for (int64_t i = 0; i < tokens.samples(); ++i)
    states.offsets.push_back(states.offsets.back() + static_cast<int64_t>(tokens.sample(i).size()));
  Result<Buffer> memory =
      allocateMemory(states.offsets.back() * columns * static_cast<int64_t>(sizeof(float)));
  if (!memory)
    return Unexpected(memory.error());
  states.memory = std::move(*memory);
  return states;
}

//===----------------------------------------------------------------------===//
// What the model is made of
//===----------------------------------------------------------------------===//

/// Tables of positions end there.
static int64_t contextOf(ModuleOp module, const formats::ModelSource &source) {
  auto model = module->getAttrOfType<DictionaryAttr>(lm::kModelAttr);
  auto context = model ? model.getAs<IntegerAttr>("max_context") : IntegerAttr();
  const int64_t most = source.config().maxContext;
  return context ? std::min(most, context.getValue().getSExtValue()) : most;
}

FailureOr<LayerRunner> LayerRunner::create(ModuleOp module, const CalibrationTokens &tokens,
                                           EngineOptions options) {
  FailureOr<ModelConstants> values = ModelConstants::open(module);
  if (failed(values) || failed(values->check()))
    return failure();
  int64_t context = contextOf(module, values->source());
  if (tokens.maxLength() > context)
    return emitError(module.getLoc()) << "calibration sequences of " << tokens.maxLength()
                                      << " tokens, but the model's context is " << context
                                      << " tokens; give a shorter --seqlen";
  options.length = tokens.maxLength();
  Result<SubgraphCompiler> subgraphs = SubgraphCompiler::create(options);
  if (!subgraphs)
    return emitError(module.getLoc()) << subgraphs.error().message;
  LayerRunner runner(module, tokens, std::move(*values), std::move(*subgraphs));
  if (failed(runner.findLayers()))
    return failure();
  return runner;
}

LogicalResult LayerRunner::findLayers() {
  if (failed(lm::verifyCalls(module)))
    return failure();
  SymbolTable symbols(module);
  auto forward = symbols.lookup<func::FuncOp>("forward");
  if (!forward || !llvm::hasSingleElement(forward.getBody()))
    return emitError(module.getLoc()) << "expected a function @forward of one block";
  Block &block = forward.getBody().front();
  // The first vector; the other is numbers of rows.
  const auto *vector = llvm::find_if(block.getArguments(), [](Value argument) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    return type && type.getRank() == 1;
  });
  tokenIds = vector == block.getArguments().end() ? Value() : Value(*vector);
  for (auto call : block.getOps<func::CallOp>()) {
    auto layer = symbols.lookup<func::FuncOp>(call.getCallee());
    Value state = call.getNumOperands() ? call.getOperand(0) : Value();
    auto isActivation = [](Value value) { return lm::isActivationType(value.getType()); };
    if (llvm::count_if(call.getOperands(), isActivation) > 1 || call.getNumResults() > 1)
      return call.emitOpError(
          "reads or gives more than the hidden states of the layer before, such as keys "
          "and values of another layer, which what runs a model on calibration "
          "text does not take yet; take a method and activations without text");
    if (!layer || layer.isExternal() || !llvm::hasSingleElement(layer.getBody()) ||
        call.getNumResults() != 1 || !state || !lm::isActivationType(state.getType()) ||
        state.getType() != call.getResult(0).getType() || (lastState && state != lastState))
      return call.emitOpError("expected a layer: hidden states of the layer before in, hidden "
                              "states out");
    if (!firstState)
      firstState = state;
    lastState = call.getResult(0);
    functions.push_back(layer);
  }
  if (!tokenIds || functions.empty())
    return emitError(forward.getLoc()) << "expected @forward to take tokens and to call layers";
  return success();
}

LogicalResult LayerRunner::fail(const Error &error) {
  return emitError(module.getLoc()) << error.message;
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

namespace {
struct NonFinite {
  int64_t row, column;
  float value;
};
} // namespace

/// The first value that is not finite.
static std::optional<NonFinite> findNonFinite(ConstMatrix rows) {
  for (int64_t row = 0; row < rows.rows; ++row) {
    // x - x is 0 for finite x only; summing spares a branch an element.
    float sum = 0;
    for (int64_t column = 0; column < rows.columns; ++column)
      sum += rows(row, column) - rows(row, column);
    if (sum == 0)
      continue;
    for (int64_t column = 0; column < rows.columns; ++column)
      if (!std::isfinite(rows(row, column)))
        return NonFinite{row, column, rows(row, column)};
  }
  return std::nullopt;
}

/// A function of the model with the sites in it; other names as they are.
static std::string describe(ModuleOp module, StringRef name) {
  std::string first, last;
  if (auto function = module.lookupSymbol<func::FuncOp>(name))
    function.walk([&](equant::QuantizableOpInterface op) {
      last = op.getSite().str();
      if (first.empty())
        first = last;
    });
  return first.empty() ? name.str()
                       : fmt::format("{} (sites '{}' to '{}')", name.str(), first, last);
}

static constexpr char kOverflow[] =
    "the model overflows on this text. Calibrate on other text, or mend the weights of the model";

static std::string namesOf(const Observation &observation) {
  std::string names;
  for (const std::string &site : observation.sites)
    names += (names.empty() ? "'" : ", '") + site + "'";
  return names;
}

namespace {
/// Observed rows but for those of the first `skipped` tokens.
struct CountedRows {
  CountedRows(const ObservedRows &seen, int64_t skipped);

  ObservedRows rows;

private:
  std::vector<float> values; ///< of experts
  std::vector<int32_t> order, offsets;
};
} // namespace

CountedRows::CountedRows(const ObservedRows &seen, int64_t skipped) : rows(seen) {
  if (skipped == 0)
    return;
  const ConstMatrix all = seen.rows;
  if (seen.offsets.empty()) {
    skipped = std::min(skipped, all.rows);
    rows.rows = all.middleRows(skipped, all.rows - skipped);
    rows.position += skipped;
    return;
  }
  offsets.push_back(0);
  for (size_t expert = 0; expert + 1 < seen.offsets.size(); ++expert) {
    for (int32_t row = seen.offsets[expert]; row < seen.offsets[expert + 1]; ++row)
      if (seen.order[row] >= skipped) {
        order.push_back(seen.order[row]);
        values.insert(values.end(), all.row(row), all.row(row) + all.columns);
      }
    offsets.push_back(static_cast<int32_t>(order.size()));
  }
  rows.rows = ConstMatrix(values.data(), std::ssize(order), all.columns);
  rows.order = order;
  rows.offsets = offsets;
}

Result<void> LayerRunner::checkFinite(StringRef what, int64_t sample, ConstMatrix rows,
                                      std::span<const int32_t> order) const {
  if (auto bad = findNonFinite(rows))
    return makeError(
        ErrorCode::Corrupt,
        "calibration: {} is {} at token {} of sample {}, channel {}; expected a finite "
        "number: {}",
        what.str(), bad->value, order.empty() ? bad->row : order[bad->row],
        text->firstSample() + sample, bad->column, kOverflow);
  return {};
}

Result<void> LayerRunner::runSample(CompiledSubgraph &program, StringRef name, int64_t sample,
                                    ArrayRef<ConstMatrix> inputs, ArrayRef<Matrix> outputs,
                                    RowsObserver observer, std::span<const int32_t> tokens) {
  std::optional<Error> error; // the compiled code cannot be stopped: the first one counts
  auto observe = [&](const Observation &observation, const ObservedRows &seen) {
    if (error)
      return;
    if (auto bad = findNonFinite(seen.rows)) {
      const int64_t token = seen.order.empty() ? bad->row : seen.order[bad->row];
      error = Error{ErrorCode::Corrupt,
                    fmt::format("calibration: what site {} reads is {} at token {} of sample {}, "
                                "channel {}; expected a finite number: {}",
                                namesOf(observation), bad->value, seen.position + token,
                                text->firstSample() + sample, bad->column, kOverflow)};
      return;
    }
    if (!observer)
      return;
    const CountedRows counted(seen, std::max<int64_t>(text->skipped() - seen.position, 0));
    if (counted.rows.rows.rows == 0)
      return;
    if (auto done = observer(observation, sample, counted.rows); !done)
      error = done.error();
  };
  const int64_t rows = inputs.empty() ? std::ssize(tokens) : inputs.front().rows;
  multiplied += static_cast<double>(program.multiplications()) * static_cast<double>(rows);
  if (auto done = program.run(inputs, outputs, observe, tokens); !done)
    return makeError(done.error().code, "{}: {}", name.str(), done.error().message);
  if (error)
    return Unexpected(*error);
  for (Matrix output : outputs)
    if (auto finite =
            checkFinite(fmt::format("the output of {}", describe(module, name)), sample, output);
        !finite)
      return finite;
  if (onSample)
    onSample();
  return {};
}

LogicalResult LayerRunner::run(CompiledSubgraph &program, StringRef name,
                               ArrayRef<const HiddenStates *> inputs,
                               ArrayRef<HiddenStates *> outputs, RowsObserver observer) {
  for (int64_t sample = 0; sample < text->samples(); ++sample) {
    SmallVector<ConstMatrix> in;
    SmallVector<Matrix> out;
    for (const HiddenStates *states : inputs)
      in.push_back(states->sample(sample));
    for (HiddenStates *states : outputs)
      out.push_back(states->sample(sample));
    if (auto done = runSample(program, name, sample, in, out, observer); !done)
      return fail(done.error());
  }
  return success();
}

LogicalResult LayerRunner::run(Location loc, CompiledSubgraph &program, StringRef name,
                               const HiddenStates &states, ArrayRef<Value> outputs,
                               SampleVisitor visit, RowsObserver observer) {
  std::vector<std::vector<float>> memory;
  for (Value output : outputs)
    memory.emplace_back(text->maxLength() * lm::columns(output));
  for (int64_t sample = 0; sample < states.samples(); ++sample) {
    Matrix in = states.sample(sample);
    SmallVector<Matrix> made;
    for (auto [output, buffer] : llvm::zip_equal(outputs, memory))
      made.push_back({buffer.data(), in.rows, lm::columns(output)});
    Result<void> done = runSample(program, name, sample, ConstMatrix(in), made, observer);
    if (done && visit)
      done = visit(sample, made);
    if (!done)
      return emitError(loc) << done.error().message;
  }
  return success();
}

FailureOr<HiddenStates> LayerRunner::allocate() {
  Result<HiddenStates> states = HiddenStates::allocate(*text, lm::columns(firstState));
  if (!states)
    return fail(states.error());
  return std::move(*states);
}

FailureOr<HiddenStates> LayerRunner::embed(RowsOfTable change) {
  if (text->samples() == 0) // of a rank among more ranks than samples
    return allocate();
  // The table may be the largest tensor of the model, so only the rows that occur are read.
  std::vector<int32_t> vocabulary;
  for (int64_t i = 0; i < text->samples(); ++i)
    vocabulary.insert(vocabulary.end(), text->sample(i).begin(), text->sample(i).end());
  llvm::sort(vocabulary);
  vocabulary.erase(std::unique(vocabulary.begin(), vocabulary.end()), vocabulary.end());

  Subgraph subgraph{{tokenIds}, {firstState}};
  subgraph.vocabulary = static_cast<int64_t>(vocabulary.size());
  FailureOr<CompiledSubgraph> program = subgraphs.compile(subgraph);
  if (failed(program))
    return failure();
  for (const SubgraphWeight &weight : program->weights()) {
    Matrix place = program->weight(weight.global);
    // A table is read row by row, in the order of the renumbered tokens.
    int64_t step = weight.isEmbedding ? 1 : place.rows;
    for (int64_t row = 0; row < place.rows; row += step)
      if (failed(values.readRows(weight.value, weight.global,
                                 weight.isEmbedding ? vocabulary[row] : 0,
                                 std::span(place.row(row), step * place.columns))))
        return failure();
    values.source().release(weight.global);
    if (weight.isEmbedding && change)
      change(weight, vocabulary, place);
  }

  FailureOr<HiddenStates> states = allocate();
  if (failed(states))
    return failure();
  for (int64_t i = 0; i < text->samples(); ++i) {
    std::vector<int32_t> renumbered;
    for (int32_t token : text->sample(i))
      renumbered.push_back(llvm::lower_bound(vocabulary, token) - vocabulary.begin());
    if (auto done =
            runSample(*program, "the embedding", i, {}, states->sample(i), nullptr, renumbered);
        !done)
      return fail(done.error());
  }
  return states;
}

FailureOr<CompiledSubgraph> LayerRunner::load(const Subgraph &subgraph) {
  FailureOr<CompiledSubgraph> program = subgraphs.compile(subgraph);
  if (failed(program) || failed(program->load(values)))
    return failure();
  return program;
}

LogicalResult LayerRunner::runLayer(size_t index, HiddenStates &states, RowsObserver observer) {
  return runLayer(index, ArrayRef<HiddenStates *>(&states), observer);
}

LogicalResult LayerRunner::runLayer(size_t index, ArrayRef<HiddenStates *> all,
                                    RowsObserver observer) {
  func::FuncOp layer = functions[index];
  Subgraph subgraph = Subgraph::whole(layer);
  subgraph.observers = static_cast<bool>(observer);
  FailureOr<CompiledSubgraph> program = load(subgraph);
  if (failed(program))
    return failure();
  for (HiddenStates *states : all)
    if (failed(run(
            module.getLoc(), *program, layer.getSymName(), *states, subgraph.outputs,
            [&](int64_t sample, ArrayRef<Matrix> made) -> Result<void> {
              std::copy_n(made[0].data, made[0].rows * made[0].columns,
                          states->sample(sample).data);
              return {};
            },
            observer)))
      return failure();
  return success();
}

LogicalResult LayerRunner::observeHead(const HiddenStates &states, RowsObserver observer) {
  SmallVector<Value> observed;
  for (auto observe : lastState.getParentBlock()->getOps<ObserveOp>())
    if (Value input = observe.getInput(); !llvm::is_contained(observed, input))
      observed.push_back(input);
  if (observed.empty())
    return success();
  return runHead(states, observed, nullptr, observer);
}

LogicalResult LayerRunner::runHead(const HiddenStates &states, ArrayRef<Value> activations,
                                   SampleVisitor visit, RowsObserver observer) {
  Subgraph subgraph{{lastState}, llvm::to_vector(activations)};
  subgraph.observers = static_cast<bool>(observer);
  FailureOr<CompiledSubgraph> program = load(subgraph);
  if (failed(program))
    return failure();
  return run(module.getLoc(), *program, "the output head", states, subgraph.outputs, visit,
             observer);
}
