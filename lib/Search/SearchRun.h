//===- SearchRun.h - What a search for formats measures ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Measures layer by layer, keeps what it finds in the work folder, and turns errors into losses.
// Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_SEARCHRUN_H
#define EASYQUANT_LIB_SEARCH_SEARCHRUN_H

#include "ChoiceRun.h"
#include "LayerSensitivity.h"

#include "easyquant/Methods/MethodRun.h"
#include "easyquant/Numerics/FormatChoice.h"

namespace easyquant::search {

/// The losses of the formats that are worth choosing from. Group i has losses for candidates[i] of
/// its formats.
struct SearchTable {
  numerics::FormatTable costs;
  std::vector<std::vector<size_t>> candidates;

  std::vector<size_t> candidatesOf(std::span<const size_t> formats) const;
};

/// A pair of a group and a candidate that was run to the end.
struct CheckedPair {
  size_t group, candidate;
  double predicted, measured;
};

/// Where the errors of layers come from.
struct Sensitivity {
  bool isByLoss = false; ///< from the Hessians of the loss; else from blocks that are run
  std::string hessians;  ///< the file that has them; empty: the model is run backward
};

class SearchRun {
public:
  SearchRun(methods::MethodRun &run, const SearchSpace &space, Objective objective,
            Sensitivity sensitivity, unsigned threads);

  /// Measures what no earlier run has. `progress` is called before each layer. Fails with a
  /// diagnostic.
  mlir::LogicalResult measure(llvm::function_ref<void(int64_t layer)> progress);
  /// What was measured, as losses.
  SearchTable table() const;
  std::vector<CheckedPair> checkedPairs() const;
  llvm::ArrayRef<LayerFindings> findings() const { return layers; }

  /// The losses of the whole model. Fails with a diagnostic.
  mlir::FailureOr<ModelLosses> lossesOf(std::span<const size_t> candidates);
  /// Runs them, dealt out to the ranks, so that lossesOf knows them all. Collective.
  mlir::LogicalResult runChoices(llvm::ArrayRef<Choice> choices);
  /// What this process has run, in passes of the float model over the tokens used.
  double forwards() const { return run.runner().multiplications() / oneForward; }

private:
  mlir::FailureOr<ModelLoss *> modelLoss();
  mlir::FailureOr<LayerFindings> read(int64_t layer);
  mlir::LogicalResult write(int64_t layer, const LayerFindings &findings);
  mlir::FailureOr<LayerFindings> measureHead();
  mlir::LogicalResult measureOwn(llvm::ArrayRef<int64_t> places,
                                 llvm::function_ref<void(int64_t layer)> progress);
  mlir::LogicalResult measureByLoss(llvm::ArrayRef<int64_t> places,
                                    llvm::function_ref<void(int64_t layer)> progress);
  bool isOwn(size_t turn) const { return run.ranks().inTurn(turn) == run.ranks().rank(); }
  std::string stampOf(int64_t layer) const;
  const std::string &stamp() const { return run.stamp(run.layerCount() - 1); }
  std::vector<const SearchGroup *> groupsOf(size_t layer) const;
  std::vector<double> lossesPerError() const;

  methods::MethodRun &run;
  const SearchSpace &space;
  Objective objective;
  Sensitivity sensitivity;
  unsigned threads;
  double oneForward = 0; ///< multiplications
  std::optional<ModelLoss> loss;
  std::vector<LayerFindings> layers;
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_SEARCHRUN_H
