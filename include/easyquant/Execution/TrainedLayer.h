//===- TrainedLayer.h - A layer and its gradients, compiled -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Methods that train the weights of a layer need what it computes and the gradients of these
// weights: two subgraphs of the layer's gradient function (easyquant/Dialect/LM/Transforms/
// Gradients.h), whatever the architecture. Statistics of the loss need what each linear reads and
// the gradient of what it gives, of which the gradient of its weight is the product.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_TRAINEDLAYER_H
#define EASYQUANT_EXECUTION_TRAINEDLAYER_H

#include "easyquant/Dialect/LM/Transforms/Gradients.h"
#include "easyquant/Execution/CompiledSubgraph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <span>

namespace easyquant::execution {

class TrainedLayer {
public:
  /// Compiles `layer`, a function of one activation in and one out, for the gradients of `wanted`:
  /// weights that it reads, or the activation. Weights are zero until they are loaded or set.
  /// Fails with a diagnostic.
  static mlir::FailureOr<TrainedLayer> create(SubgraphCompiler &compiler, mlir::func::FuncOp layer,
                                              llvm::ArrayRef<mlir::Value> wanted);

  /// The same for the gradient of the activation, for what the linears of `weights` read and for
  /// the gradients of what they give: what backwardRows returns.
  static mlir::FailureOr<TrainedLayer> createForRows(SubgraphCompiler &compiler,
                                                     mlir::func::FuncOp layer,
                                                     llvm::ArrayRef<mlir::Value> weights);

  /// Reads every weight as the model has it; fails with a diagnostic.
  mlir::LogicalResult load(const ModelConstants &constants);
  /// All weights that it reads, by their globals.
  llvm::ArrayRef<SubgraphWeight> weights() const { return forwards.weights(); }
  /// The global that wanted value `i` is; empty for the activation.
  llvm::StringRef global(size_t i) const { return globals[i]; }
  /// The memory of weight `global` of the way forward, as CompiledSubgraph::weight gives it.
  numerics::Matrix weight(llvm::StringRef global) { return forwards.weight(global); }
  /// Replaces the weight `global`. Errors: those of CompiledSubgraph::setWeight.
  Result<void> setWeight(llvm::StringRef global, numerics::ConstMatrix values);

  /// y = the layer of x, one sequence. Errors: those of CompiledSubgraph::run.
  Result<void> forward(numerics::ConstMatrix x, numerics::Matrix y);
  /// After forward of x: the gradients of what is wanted, given dL/dy.
  Result<void> backward(numerics::ConstMatrix x, numerics::ConstMatrix dy,
                        llvm::ArrayRef<numerics::Matrix> gradients);

  /// What one linear reads, T x K, and the gradient of what it gives, T x N. Where it is one of
  /// experts they have a row for each choice of a token: rows offsets[e] to offsets[e + 1] are
  /// those of expert e, and row i is one of token order[i]. Else both are empty.
  struct Rows {
    numerics::ConstMatrix input, gradient;
    std::span<const int32_t> offsets = {}, order = {};
  };
  /// After forward of x, of a layer made by createForRows: dL/dx, given dL/dy, and the rows of each
  /// linear, which live until the next call.
  Result<llvm::SmallVector<Rows>> backwardRows(numerics::ConstMatrix x, numerics::ConstMatrix dy,
                                               numerics::Matrix dx);

  /// Bytes of what forward keeps for backward, for the longest sequence.
  int64_t storedBytes() const { return memory.size(); }

private:
  TrainedLayer(mlir::OwningOpRef<mlir::func::FuncOp> function, CompiledSubgraph forwards,
               CompiledSubgraph backwards)
      : function(std::move(function)), forwards(std::move(forwards)),
        backwards(std::move(backwards)) {}

  static mlir::FailureOr<TrainedLayer> compile(SubgraphCompiler &compiler,
                                               lm::GradientFunction built,
                                               llvm::ArrayRef<mlir::Value> gradients,
                                               llvm::ArrayRef<ChoiceRows> observed = {});
  /// A matrix among what forward stores, what backward gives, or what is observed of it.
  struct Place {
    enum class Of { Stored, Given, Observed } of;
    size_t number;
  };
  /// What has been observed of experts in the last run of backward.
  struct Choices {
    float *memory; ///< for those of the longest sequence
    numerics::ConstMatrix rows = {};
    std::vector<int32_t> offsets = {}, order = {};
  };

  mlir::OwningOpRef<mlir::func::FuncOp> function; ///< whose values the programs' weights are
  CompiledSubgraph forwards, backwards;
  std::vector<std::string> globals;
  Buffer memory; ///< of what is stored: one matrix after the other
  llvm::SmallVector<int64_t> columns;
  llvm::SmallVector<numerics::Matrix> stored; ///< of the last sequence
  Buffer rowMemory;                           ///< of what backwardRows gives, one after the other
  llvm::SmallVector<int64_t> rowColumns;
  Buffer choiceMemory;
  std::vector<Choices> choices;
  llvm::SmallVector<std::pair<Place, Place>> places; ///< input and gradient of each linear
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_TRAINEDLAYER_H
