//===- FormatTables.h - Random costs of formats -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_NUMERICS_FORMATTABLES_H
#define EASYQUANT_TEST_NUMERICS_FORMATTABLES_H

#include "easyquant/Numerics/FormatChoice.h"

#include <cmath>
#include <functional>
#include <random>

namespace easyquant::numerics {

/// Formats of 2, 3, 4 and more bits, each a few times as good as the one before, of groups that
/// matter unequally; some dominated.
inline FormatTable randomTable(size_t groups, size_t formats, unsigned seed) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> uniform(0, 1);
  FormatTable table(groups);
  for (std::vector<FormatCost> &costs : table) {
    const auto size = static_cast<int64_t>(100 + random() % 900);
    double loss = std::exp(4 * uniform(random));
    for (size_t i = 0; i < formats; ++i) {
      costs.push_back(
          {static_cast<int64_t>(i + 2) * size + static_cast<int64_t>(random() % 50), loss});
      loss *= 1.2 - uniform(random);
    }
  }
  return table;
}

/// Calls `visit` with every choice there is.
inline void enumerate(const FormatTable &table,
                      const std::function<void(const FormatChoice &)> &visit) {
  std::vector<size_t> formats(table.size());
  for (size_t group = 0; group < table.size();) {
    visit(costOf(table, formats));
    for (group = 0; group < table.size() && ++formats[group] == table[group].size(); ++group)
      formats[group] = 0;
  }
}

/// What no table tells: groups that matter more beside one another.
inline double trueLoss(const FormatTable &table, std::span<const size_t> formats) {
  double loss = 0, before = 0;
  for (size_t group = 0; group < table.size(); ++group) {
    const double own = table[group][formats[group]].loss;
    loss += own + 0.5 * std::sqrt(own * before);
    before = own;
  }
  return loss;
}

} // namespace easyquant::numerics

#endif // EASYQUANT_TEST_NUMERICS_FORMATTABLES_H
