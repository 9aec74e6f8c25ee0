//===- SharedRows.cpp - Weights whose rows ranks share --------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SharedRows.h"

using namespace easyquant;
using namespace easyquant::methods;
using numerics::RowRange;

/// `values` has `width` elements a row, of which the own rows are there.
template <typename T>
static Result<void> gather(const Ranks &ranks, std::vector<T> &values, int64_t width,
                           const RowsOfRank &rowsOf) {
  if (ranks.size() == 1 || values.empty())
    return {};
  const RowRange own = rowsOf(ranks.rank());
  auto part = std::as_bytes(std::span(values).subspan(own.first * width, own.count * width));
  Result<std::vector<Bytes>> all = ranks.gather(Bytes(part.begin(), part.end()));
  if (!all)
    return Unexpected(all.error());
  for (int rank = 0; rank < ranks.size(); ++rank) {
    const RowRange rows = rowsOf(rank);
    auto to =
        std::as_writable_bytes(std::span(values).subspan(rows.first * width, rows.count * width));
    if ((*all)[rank].size() != to.size())
      return makeError(ErrorCode::Corrupt, "rank {} of {}: found {} bytes of rank {}, expected {}",
                       ranks.rank(), ranks.size(), (*all)[rank].size(), rank, to.size());
    std::ranges::copy((*all)[rank], to.begin());
  }
  return {};
}

Result<void> methods::gatherRows(const Ranks &ranks, numerics::QParams &params,
                                 const numerics::Scheme &scheme, int64_t rows,
                                 const RowsOfRank &rowsOf) {
  const RowRange own = rowsOf(ranks.rank());
  auto widen = [&](auto &values) {
    values.insert(values.begin(), own.first * params.groups, {});
    values.resize(rows * params.groups);
  };
  if (params.rows != rows) {
    widen(params.scales);
    if (scheme.hasZeroPoints())
      widen(params.zeroPoints);
    if (scheme.minima)
      widen(params.minima);
    params.rows = rows;
  }
  if (auto done = gather(ranks, params.scales, params.groups, rowsOf); !done)
    return done;
  if (auto done = gather(ranks, params.minima, params.groups, rowsOf); !done)
    return done;
  return gather(ranks, params.zeroPoints, params.groups, rowsOf);
}

Result<void> methods::gatherRows(const Ranks &ranks, numerics::QuantizedMatrix &weight,
                                 const RowsOfRank &rowsOf) {
  if (auto done = gather(ranks, weight.codes, weight.columns, rowsOf); !done)
    return done;
  if (weight.scheme.granularity == numerics::Granularity::Tensor)
    return {};
  return gatherRows(ranks, weight.params, weight.scheme, weight.rows, rowsOf);
}
