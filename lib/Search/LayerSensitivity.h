//===- LayerSensitivity.h - What formats do to one layer --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A format at a group of sites is judged by the error of the hidden states behind the enclosing
// block (attention, MLP: up to the next place where the layer can be cut), all else being float:
// the sites round their activations, too, if the format does so token by token. It is the mean over
// tokens of |h - hhat|^2 / |h|^2. What follows normalizes hidden states, so that an error of a
// token whose states are large, as those of attention sinks, is a small one. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_LAYERSENSITIVITY_H
#define EASYQUANT_LIB_SEARCH_LAYERSENSITIVITY_H

#include "ModelLoss.h"
#include "SearchRounding.h"
#include "SearchSpace.h"

namespace easyquant::search {

/// Activations of a float layer, of all samples.
class LayerActivations {
public:
  /// Takes `before` through the layer and keeps `wanted`. Fails with a diagnostic.
  static mlir::FailureOr<LayerActivations> gather(LayerRunner &runner, mlir::func::FuncOp layer,
                                                  const HiddenStates &before,
                                                  llvm::ArrayRef<mlir::Value> wanted);
  const HiddenStates &of(mlir::Value value) const {
    auto found = made.find(value);
    return found == made.end() ? *before : found->second;
  }

private:
  const HiddenStates *before = nullptr; ///< of the layer's input
  llvm::MapVector<mlir::Value, HiddenStates> made;
};

/// What is kept of a group in the journal; -1 where a format was dropped.
/// The error of a candidate that another one beats in both bytes and weighted error.
inline constexpr float kDropped = -1;

struct GroupFindings {
  std::vector<float> weightErrors; ///< sum_j E[x_j^2] sum_n (w - what)^2 of each candidate
  std::vector<float> errors;       ///< relative squared error of the block with each candidate
  float found = 0;                 ///< the same of the plans that the search found
};

struct LayerFindings {
  std::vector<GroupFindings> groups;
  std::vector<float> losses; ///< of the whole model with this block as its plans would have it
  /// A pair run to the end: the loss of the whole model with this group alone in this format.
  int64_t checkedGroup = -1, checkedCandidate = -1;
  float checked = 0;
};

class LayerSensitivity {
public:
  /// `groups` are those of layer `index`.
  LayerSensitivity(LayerRunner &runner, size_t index, llvm::ArrayRef<const SearchGroup *> groups,
                   unsigned threads)
      : runner(runner), index(index), layer(runner.layers()[index]), groups(groups),
        threads(threads) {}

  /// Measures from `before`, the float states that go into the layer. Fails with a diagnostic.
  mlir::FailureOr<LayerFindings> measure(const HiddenStates &before, ModelLoss &loss);

private:
  mlir::LogicalResult gather(const HiddenStates &before);
  mlir::FailureOr<GroupFindings> measure(const SearchGroup &group);
  mlir::FailureOr<float> blockError(CompiledSubgraph &program, const Subgraph &subgraph);
  /// Weights of one group, and its activations, which are those of a rounding of the program.
  mlir::LogicalResult round(const SearchGroup &group, llvm::ArrayRef<equant::PlanAttr> plans,
                            size_t rounding, CompiledSubgraph &program);
  /// Plans of groups by their numbers.
  using PlannedGroups = std::vector<std::pair<size_t, llvm::SmallVector<equant::PlanAttr>>>;
  std::vector<PlannedGroups> runsToEnd(const LayerFindings &findings) const;
  mlir::LogicalResult runToEnd(LayerFindings &findings, const HiddenStates &before,
                               ModelLoss &loss);
  void choosePair(LayerFindings &findings) const;

  LayerRunner &runner;
  size_t index;
  mlir::func::FuncOp layer;
  llvm::ArrayRef<const SearchGroup *> groups;
  unsigned threads;
  std::optional<LayerActivations> activations;
  std::map<void *, GroupInputs> inputs; ///< by activation
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_LAYERSENSITIVITY_H
