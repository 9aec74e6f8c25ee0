//===- Subgraph.h - A part of a layer as a program of its own ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_SUBGRAPH_H
#define EASYQUANT_EXECUTION_SUBGRAPH_H

#include "easyquant/Conversion/LaunchesToLLVM/HostCalls.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/Reference.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

#include <functional>
#include <string>
#include <vector>

namespace easyquant::execution {

/// An activation that has a row for each choice of a token, as experts read and give it.
struct ChoiceRows {
  mlir::Value rows;
  mlir::Value offsets; ///< where those of each expert begin
  std::string site;

  /// What a linear of experts reads.
  static ChoiceRows inputOf(lm::LinearOp experts) {
    return {experts.getInput(), experts.getExperts(), experts.getSite().str()};
  }
};

/// The computation between two cuts through one block of the model: what it takes to make `outputs`
/// of `inputs`, of both of which there is at least one. Both are activations tensor<?xCxf32>; an
/// input may be tokens tensor<?xi32>, an output the gradient of a weight.
struct Subgraph {
  llvm::SmallVector<mlir::Value> inputs, outputs;
  /// Take along the equant.observe ops whose operand is computed in the subgraph or goes into it.
  bool observers = false;
  /// If not 0, tokens are numbers of rows of tables that have no more rows than this: the caller
  /// that runs the subgraph renumbers its tokens and fills the tables with the rows that occur.
  int64_t vocabulary = 0;
  /// Linears that read one activation, which is rounded for them as CompiledSubgraph::roundInput
  /// says.
  llvm::SmallVector<llvm::SmallVector<mlir::Operation *>> roundings = {};
  /// Activations of experts, which can be no outputs: they are observed. CompiledSubgraph has
  /// their observations in this order, behind those of `observers`.
  llvm::SmallVector<ChoiceRows> observed = {};

  /// All of a layer.
  static Subgraph whole(mlir::func::FuncOp layer) {
    return {{layer.getArgument(0)}, {layer.front().getTerminator()->getOperand(0)}};
  }
};

/// A constant that a subgraph reads: a global, or a constant expression such as equant.scale of
/// one.
struct SubgraphWeight {
  std::string global; ///< the global (of an expression: the one that its first operands lead to)
  mlir::Value value;  ///< in the model
  mlir::RankedTensorType type; ///< in the subgraph: rotation tables are cut to the positions needed
  int64_t offset = 0;          ///< its first byte in the subgraph's weights
  bool isEmbedding = false;    ///< a table of Subgraph::vocabulary rows
};

/// An equant.observe of a subgraph.
struct Observation {
  std::vector<std::string> sites;
  std::vector<std::string> statistics;
  int64_t columns = 0;
  int64_t experts = 0; ///< 0: a row is a token
};

/// What lib/Numerics computes for a program, on the operands and results of an op.
using HostOperation = std::function<void(const HostOperand *operands, unsigned threads)>;

/// A call of the program's caller: an observation, or an operation.
struct HostCall {
  int64_t observation = -1; ///< its number
  HostOperation operation;
  int64_t rounding = -1; ///< its number, if the operation is one of Subgraph::roundings
};

/// What a step is told: its sequences (!lm.batch), which rows' logits are asked for, and where the
/// recurrent state of its sequences is (!lm.recurrent).
enum class StepArgument { Batch, LogitRows, Recurrent };

/// A subgraph as a module with one function @forward on globals w0, w1, ... It knows no names:
/// subgraphs of different layers that compute the same print the same.
struct OutlinedSubgraph {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<SubgraphWeight> weights;
  std::vector<Observation> observations;
  std::vector<HostCall> calls; ///< in the order of the module
  /// Does it sum over tokens? Then a sequence goes through it at once.
  bool isWhole = false;
  /// What @forward takes behind the inputs, beside a cache.
  std::vector<StepArgument> arguments;
  int64_t weightBytes = 0;
  int64_t recurrentValues = 0; ///< of a sequence
};

/// What attention computes, of an lm.attention or its gradient.
template <typename Attention> numerics::reference::AttentionParams attentionParams(Attention op) {
  return {.heads = static_cast<int64_t>(op.getNumHeads()),
          .kvHeads = static_cast<int64_t>(op.getNumKvHeads()),
          .headDim = static_cast<int64_t>(op.getHeadDim()),
          .scale = op.getScale().convertToDouble(),
          .window = static_cast<int64_t>(op.getWindow()),
          .bound = op.getBound().convertToDouble()};
}

/// Cuts a subgraph out of the model, for sequences of at most `length` tokens. Fails with a
/// diagnostic if an input of it is missing, or it holds a call or several layers' attention.
mlir::FailureOr<OutlinedSubgraph> outline(const Subgraph &subgraph, int64_t length);

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_SUBGRAPH_H
