//===- ChoiceRun.h - Whole models in chosen formats -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Runs the model with every group in its chosen format, and remembers the losses in the work
// folder. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_CHOICERUN_H
#define EASYQUANT_LIB_SEARCH_CHOICERUN_H

#include "HeadSensitivity.h"
#include "ModelLoss.h"
#include "SearchSpace.h"

#include "easyquant/Methods/MethodRun.h"

#include <optional>
#include <vector>

namespace easyquant::search {

/// The candidate of each group.
using Choice = std::vector<size_t>;

class ChoiceRun {
public:
  /// `stamp` is of all that losses depend on, but the choice.
  /// `loss` is asked for where the journal does not know.
  ChoiceRun(methods::MethodRun &method, const SearchSpace &space,
            llvm::function_ref<mlir::FailureOr<ModelLoss *>()> loss, std::string stamp,
            unsigned threads)
      : method(method), runner(method.runner()), space(space), loss(loss), stamp(std::move(stamp)),
        threads(threads) {}

  /// The losses of the models whose group i has candidate `choice[i]`. Those that the journal does
  /// not know are run together, kTogether at a time. Fails with a diagnostic.
  mlir::FailureOr<std::vector<ModelLosses>> run(llvm::ArrayRef<Choice> choices);
  /// Has this rank, or another one, run it? Collective, as MethodRun::has.
  bool isKnown(const Choice &choice) const {
    const std::string own = stampOf(choice);
    return method.has(fileOf(own), own);
  }

private:
  /// How many hidden states are in memory, and how much of the work an interruption loses.
  static constexpr size_t kTogether = 8;

  std::string stampOf(const Choice &choice) const;
  static std::string fileOf(const std::string &stamp) {
    return "search_choice_" + stamp + ".safetensors";
  }
  mlir::FailureOr<std::optional<ModelLosses>> read(const Choice &choice) const;
  mlir::LogicalResult write(const Choice &choice, const ModelLosses &losses) const;
  mlir::FailureOr<std::vector<ModelLosses>> measure(llvm::ArrayRef<const Choice *> choices);
  /// One layer of all models, and of the float one where rounding reads what its linears read.
  mlir::LogicalResult runLayer(size_t index, llvm::ArrayRef<const Choice *> choices,
                               const HiddenStates *exact, std::vector<HiddenStates> &states);
  mlir::FailureOr<std::vector<HiddenStates>> embed(llvm::ArrayRef<const Choice *> choices,
                                                   HeadSensitivity *head);
  mlir::FailureOr<std::vector<ModelLosses>> lossesOf(llvm::ArrayRef<const Choice *> choices,
                                                     const std::vector<HiddenStates> &states,
                                                     HeadSensitivity *head, ModelLoss &objective);

  methods::MethodRun &method;
  LayerRunner &runner;
  const SearchSpace &space;
  llvm::function_ref<mlir::FailureOr<ModelLoss *>()> loss;
  std::string stamp;
  unsigned threads;
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_CHOICERUN_H
