//===- HeadSensitivity.h - What formats do to the output head ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Behind the head there is nothing that could be left out: the loss of every format is measured.
// An embedding that shares the head's weight has its format, so that such models are run from the
// first layer on. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_HEADSENSITIVITY_H
#define EASYQUANT_LIB_SEARCH_HEADSENSITIVITY_H

#include "LayerSensitivity.h"

namespace easyquant::search {

class HeadSensitivity {
public:
  /// Fails with a diagnostic.
  static mlir::FailureOr<HeadSensitivity> create(LayerRunner &runner, const SearchGroup &group,
                                                 ModelLoss &loss, unsigned threads);

  /// Gives the head, and an embedding that shares its weight, the format of a plan of each site.
  /// Fails with a diagnostic, as all of these.
  mlir::LogicalResult round(llvm::ArrayRef<equant::PlanAttr> plans);
  /// The states that go into the first layer.
  mlir::FailureOr<HiddenStates> embed();
  /// The losses of models with this head, whose last layers made `states`.
  mlir::FailureOr<std::vector<ModelLosses>> lossesOf(llvm::ArrayRef<const HiddenStates *> states) {
    return loss->allOf(states, program);
  }

  /// Errors are losses of the whole model with the head alone rounded.
  mlir::FailureOr<LayerFindings> measure();

private:
  HeadSensitivity(LayerRunner &runner, const SearchGroup &group, ModelLoss &loss, unsigned threads,
                  HiddenStates input, CompiledSubgraph program)
      : runner(&runner), group(&group), loss(&loss), threads(threads), input(std::move(input)),
        program(std::move(program)) {}
  /// Where the program has the weight of a site.
  const SubgraphWeight &placeOf(const PlannedSite &site) const;
  mlir::FailureOr<float> lossOf(const HiddenStates &states);
  mlir::FailureOr<float> lossOf(llvm::ArrayRef<equant::PlanAttr> plans);

  LayerRunner *runner;
  const SearchGroup *group;
  ModelLoss *loss;
  unsigned threads;
  HiddenStates input; ///< what the head reads in the float model
  CompiledSubgraph program;
  bool sharesTable = false; ///< the embedding has a weight of the head; known once it has run
};

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_HEADSENSITIVITY_H
