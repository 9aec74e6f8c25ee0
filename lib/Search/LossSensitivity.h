//===- LossSensitivity.h - What formats cost by the loss's metric -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With the Hessians of the loss no format has to be run: what a rounded weight adds to the
// divergence of the model follows from its error (divergenceOf). Activations are taken as they are.
// Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_LOSSSENSITIVITY_H
#define EASYQUANT_LIB_SEARCH_LOSSSENSITIVITY_H

#include "LayerSensitivity.h"

#include "easyquant/Execution/LossStatistics.h"

namespace easyquant::search {

/// Fails with a diagnostic where a format of a layer rounds activations, too, or where there are
/// experts.
mlir::LogicalResult checkFloatActivations(const SearchSpace &space);

/// The sites of the groups, in their order.
llvm::SmallVector<equant::QuantizableOpInterface> opsOf(llvm::ArrayRef<const SearchGroup *> groups);

/// Errors of the groups of a layer in nats, so that what its blocks lose is their sum. `losses` are
/// those of opsOf(groups). Fails with a diagnostic that names the site.
mlir::FailureOr<LayerFindings> findingsByLoss(const ModelConstants &constants,
                                              llvm::ArrayRef<const SearchGroup *> groups,
                                              llvm::ArrayRef<SiteLoss> losses, unsigned threads);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_LOSSSENSITIVITY_H
