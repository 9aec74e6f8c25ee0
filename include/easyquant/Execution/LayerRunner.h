//===- LayerRunner.h - A model run layer by layer ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calibration takes all samples through one layer before it looks at the next: the hidden states of
// all samples are in memory, and the weights of one layer.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LAYERRUNNER_H
#define EASYQUANT_EXECUTION_LAYERRUNNER_H

#include "easyquant/Execution/CompiledSubgraph.h"
#include "easyquant/Execution/Tokens.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace easyquant::execution {

/// One activation of every token of every sample: a matrix for each sample.
class HiddenStates {
public:
  /// Zeros. Errors: OutOfRange (not enough memory).
  static Result<HiddenStates> allocate(const CalibrationTokens &tokens, int64_t columns);

  int64_t samples() const { return static_cast<int64_t>(offsets.size()) - 1; }
  int64_t columns() const { return width; }
  /// The rows of sample `i`, one a token; they follow those of sample i - 1.
  numerics::Matrix sample(int64_t i) const {
    return {memory.data<float>() + offsets[i] * width, offsets[i + 1] - offsets[i], width};
  }
  /// All tokens of all samples.
  numerics::Matrix all() const { return {memory.data<float>(), offsets.back(), width}; }

private:
  Buffer memory;
  int64_t width = 0;
  std::vector<int64_t> offsets; ///< the first token of each sample, and the end
};

/// Called for what the tokens of a sample look like where they are observed: `rows` are without
/// those of BOS, and every value is finite. The order is the same in every run.
using RowsObserver = llvm::function_ref<Result<void>(const Observation &observation, int64_t sample,
                                                     const ObservedRows &rows)>;

/// Called for what a subgraph makes of a sample, in the order of its outputs.
using SampleVisitor =
    llvm::function_ref<Result<void>(int64_t sample, llvm::ArrayRef<numerics::Matrix> rows)>;

class LayerRunner {
public:
  /// For the model `module`, as it is imported: @forward embeds tokens, calls one function a layer,
  /// and ends in the output head. `tokens` must live as long as the runner. Fails with a
  /// diagnostic.
  static mlir::FailureOr<LayerRunner> create(mlir::ModuleOp module, const CalibrationTokens &tokens,
                                             EngineOptions options = {});

  SubgraphCompiler &compiler() { return subgraphs; }
  const ModelConstants &constants() const { return values; }
  const CalibrationTokens &tokens() const { return *text; }
  /// Called after each sample that has gone through a subgraph.
  std::function<void()> onSample;
  /// The functions of the layers, in the order of execution.
  llvm::ArrayRef<mlir::func::FuncOp> layers() const { return functions; }

  /// What the last layer makes, in @forward.
  mlir::Value finalState() const { return lastState; }
  /// What the subgraphs run so far have multiplied: elements of weights of linears times tokens.
  double multiplications() const { return multiplied; }

  /// Zeros in the shape of the hidden states.
  mlir::FailureOr<HiddenStates> allocate();
  /// Called with rows of the embedding, those of `tokens`.
  using RowsOfTable = llvm::function_ref<void(
      const SubgraphWeight &table, llvm::ArrayRef<int32_t> tokens, numerics::Matrix rows)>;
  /// The hidden states that go into the first layer. Reads the rows of the embedding that occur;
  /// `change` may put others in their place.
  mlir::FailureOr<HiddenStates> embed(RowsOfTable change = nullptr);
  /// Takes `states` through layer `index` of the model as the IR has it.
  mlir::LogicalResult runLayer(size_t index, HiddenStates &states, RowsObserver observer = nullptr);
  /// The same for several states, one after the other, whose weights are read once.
  mlir::LogicalResult runLayer(size_t index, llvm::ArrayRef<HiddenStates *> all,
                               RowsObserver observer = nullptr);
  /// Takes what the last layer made to activations behind it, and shows them sample by sample, in
  /// the order of `activations`.
  mlir::LogicalResult runHead(const HiddenStates &states, llvm::ArrayRef<mlir::Value> activations,
                              SampleVisitor visit, RowsObserver observer = nullptr);
  /// Takes what the last layer made to the observers behind it (the output head's), if there are
  /// any.
  mlir::LogicalResult observeHead(const HiddenStates &states, RowsObserver observer);

  /// Compiles a subgraph and gives it the model's constants. Fails with a diagnostic.
  mlir::FailureOr<CompiledSubgraph> load(const Subgraph &subgraph);
  /// Runs all samples through a subgraph. `name` is what messages call it. What is observed or put
  /// out must be finite: if not, the diagnostic names sites and sample.
  mlir::LogicalResult run(CompiledSubgraph &program, llvm::StringRef name,
                          llvm::ArrayRef<const HiddenStates *> inputs,
                          llvm::ArrayRef<HiddenStates *> outputs, RowsObserver observer = nullptr);
  /// The same for a subgraph of one input, `states`, which `visit` may change by what was made.
  mlir::LogicalResult run(mlir::Location loc, CompiledSubgraph &program, llvm::StringRef name,
                          const HiddenStates &states, llvm::ArrayRef<mlir::Value> outputs,
                          SampleVisitor visit, RowsObserver observer = nullptr);
  /// The same for one sample.
  Result<void> runSample(CompiledSubgraph &program, llvm::StringRef name, int64_t sample,
                         llvm::ArrayRef<numerics::ConstMatrix> inputs,
                         llvm::ArrayRef<numerics::Matrix> outputs, RowsObserver observer = nullptr,
                         std::span<const int32_t> tokens = {});
  /// Are all rows of a sample finite? Errors: Corrupt, naming `what` (plural or singular: "... is
  /// nan"), token, sample and channel. Row i is that of token order[i]; without an order that of
  /// token i.
  Result<void> checkFinite(llvm::StringRef what, int64_t sample, numerics::ConstMatrix rows,
                           std::span<const int32_t> order = {}) const;

private:
  LayerRunner(mlir::ModuleOp module, const CalibrationTokens &tokens, ModelConstants values,
              SubgraphCompiler subgraphs)
      : module(module), text(&tokens), values(std::move(values)), subgraphs(std::move(subgraphs)) {}
  mlir::LogicalResult findLayers();
  mlir::LogicalResult fail(const Error &error);

  mlir::ModuleOp module;
  const CalibrationTokens *text;
  ModelConstants values;
  SubgraphCompiler subgraphs;
  mlir::Value tokenIds, firstState, lastState; ///< in @forward: around the layers
  llvm::SmallVector<mlir::func::FuncOp> functions;
  double multiplied = 0;
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LAYERRUNNER_H
