//===- SearchReport.h - What a search for formats found ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// As a recipe, and as JSON for the front desk. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_SEARCHREPORT_H
#define EASYQUANT_LIB_SEARCH_SEARCHREPORT_H

#include "SearchRun.h"

#include "easyquant/Support/Json.h"

namespace easyquant::search {

/// A budget, and what a strategy chose within it.
struct SearchPoint {
  std::string budget; ///< avg_bits, max_bytes or lambda
  double value = 0;
  std::vector<size_t> candidates = {}; ///< of each group
  int64_t bytes = 0;                   ///< of all groups
  double predicted = 0;
  std::optional<ModelLosses> verified = {}; ///< none where nothing was run
  int64_t evaluations = 0;                 ///< whole models that the choice took, this one included
  std::optional<bool> isLocalOptimum = {}; ///< of greedy
  std::map<std::string, double> weights = {}; ///< of learned: by kind of group
};

/// The kind of a group: its name without the number of its layer.
std::string kindOf(const SearchGroup &group);

/// The recipe of the module with a rule for each format and kind of site.
mlir::DictionaryAttr recipeOf(mlir::ModuleOp module, const SearchSpace &space,
                              llvm::ArrayRef<size_t> candidates);

/// What is known of each group, format and point. `run` is null where nothing was run.
Json::Object reportOf(mlir::ModuleOp module, const SearchSpace &space, const SearchRun *run,
                      const SearchTable &table, llvm::ArrayRef<SearchPoint> points);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_SEARCHREPORT_H
