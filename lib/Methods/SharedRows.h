//===- SharedRows.h - Weights whose rows ranks share ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Rows of a weight are rounded one by one: each rank takes some, and all have all of them in the
// end. Private to lib/Methods.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_SHAREDROWS_H
#define EASYQUANT_LIB_CALIBRATION_SHAREDROWS_H

#include "easyquant/Execution/Ranks.h"
#include "easyquant/Numerics/Quantize.h"

#include <functional>

namespace easyquant::methods {

using namespace execution;

/// Which rows a rank has made.
using RowsOfRank = std::function<numerics::RowRange(int rank)>;

/// Puts the rows of all ranks together; `params` may be of the own rows alone. Parameters that are
/// those of all rows (one scale a tensor, an outer scale) every rank has already. Collective.
/// Errors: those of Ranks.
Result<void> gatherRows(const Ranks &ranks, numerics::QParams &params,
                        const numerics::Scheme &scheme, int64_t rows, const RowsOfRank &rowsOf);
Result<void> gatherRows(const Ranks &ranks, numerics::QuantizedMatrix &weight,
                        const RowsOfRank &rowsOf);

/// `round`, again with scales of f32 where those of the scheme do not hold the scales of some
/// rank's rows and `mayWiden`. Collective. Errors: those of `round` on this rank. An error of
/// another rank fails the next collective, not this one.
template <typename T>
Result<T> roundOnAll(const Ranks &ranks, const numerics::Scheme &scheme, bool mayWiden,
                     llvm::function_ref<Result<T>(const numerics::Scheme &)> round) {
  Result<T> rounded = round(scheme);
  const bool fits = rounded || rounded.error().code != ErrorCode::OutOfRange || !mayWiden;
  Result<bool> fitAll = ranks.all(fits);
  if (!fitAll)
    return Unexpected(fitAll.error());
  return *fitAll ? std::move(rounded) : round(numerics::withWideScales(scheme));
}

} // namespace easyquant::methods

#endif // EASYQUANT_LIB_CALIBRATION_SHAREDROWS_H
