//===- SearchEntropy.h - Losses guessed without a run -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The loss of a format at a site is taken to be the noise that it adds to the site's output in
// proportion to the signal, ||W - What||^2 / ||W||^2, times the information that goes in: the
// entropy of the histogram of the site's activations, in bits. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_SEARCHENTROPY_H
#define EASYQUANT_LIB_SEARCH_SEARCHENTROPY_H

#include "SearchSpace.h"

#include "easyquant/Formats/StatisticsFile.h"
#include "easyquant/Numerics/FormatChoice.h"

namespace easyquant::search {

/// The table of the space's candidates: for each group the mean over its weights of what its sites
/// lose. Weights are rounded to nearest. Fails with a diagnostic: a site without a histogram, a
/// weight that cannot be rounded.
mlir::FailureOr<numerics::FormatTable>
entropyTable(const ModelConstants &constants, const SearchSpace &space,
             const formats::StatisticsFile &statistics,
             llvm::function_ref<void(size_t group)> progress);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_SEARCHENTROPY_H
