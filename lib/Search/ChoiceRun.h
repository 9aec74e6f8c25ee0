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

#include "ModelLoss.h"
#include "SearchSpace.h"

#include "easyquant/Calibration/MethodRun.h"

#include <span>

namespace easyquant::search {

class ChoiceRun {
public:
  /// `stamp` is of all that losses depend on, but the choice.
  /// `loss` is asked for where the journal does not know.
  ChoiceRun(MethodRun &method, const SearchSpace &space,
            llvm::function_ref<mlir::FailureOr<ModelLoss *>()> loss, std::string stamp,
            unsigned threads)
      : method(method), runner(method.runner()), space(space), loss(loss), stamp(std::move(stamp)),
        threads(threads) {}

  /// The losses of the model whose group i has candidate `choice[i]`. Fails with a diagnostic.
  mlir::FailureOr<ModelLosses> run(std::span<const size_t> choice);
  /// Has this rank, or another one, run it? Collective, as MethodRun::has.
  bool isKnown(std::span<const size_t> choice) const {
    const std::string own = stampOf(choice);
    return method.has(fileOf(own), own);
  }

private:
  std::string stampOf(std::span<const size_t> choice) const;
  static std::string fileOf(const std::string &stamp) {
    return "search_choice_" + stamp + ".safetensors";
  }
  mlir::FailureOr<ModelLosses> measure(std::span<const size_t> choice);
  mlir::LogicalResult runLayer(size_t index, std::span<const size_t> choice,
                               const HiddenStates *exact, HiddenStates &states);

  MethodRun &method;
  LayerRunner &runner;
  const SearchSpace &space;
  llvm::function_ref<mlir::FailureOr<ModelLoss *>()> loss;
  std::string stamp;
  unsigned threads;
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_CHOICERUN_H
