//===- SearchRounding.h - Weights as a candidate rounds them ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// By the method that will round them: GPTQ by itself, on the Hessian of the float activations,
// which serves all formats of one basis; everything else to nearest by the plan's rule, where
// distillation starts from. The model is in the plain basis: what a plan rounds in a rotated one
// comes back behind it. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_SEARCHROUNDING_H
#define EASYQUANT_LIB_SEARCH_SEARCHROUNDING_H

#include "SearchSpace.h"

#include "easyquant/Numerics/Gptq.h"

#include <map>

namespace easyquant::search {

/// What rounding takes from the activations that a group of sites reads.
class GroupInputs {
public:
  enum class Ranges {
    Coarse, ///< ScaleRule::coarse: where formats are compared, of which there are many
    Fine,
  };
  GroupInputs(const HiddenStates &rows, int64_t skipped, Ranges ranges, unsigned threads)
      : rows(&rows), columns(rows.columns()), skipped(skipped), ranges(ranges), threads(threads) {}
  /// The same from H = (2/n) sum c x x^T, K x K and in the plain basis, which counts tokens by c.
  GroupInputs(std::vector<float> hessian, int64_t columns, Ranges ranges, unsigned threads)
      : columns(columns), ranges(ranges), threads(threads) {
    hessians[0] = std::move(hessian);
  }

  /// The same where nothing is known of them.
  GroupInputs(Ranges ranges, unsigned threads) : columns(0), ranges(ranges), threads(threads) {}

  bool areKnown() const { return columns != 0; }
  bool areRangesCoarse() const { return ranges == Ranges::Coarse; }
  /// E[x_j^2] of every channel in a basis (0: the plain one); computed once. Empty where nothing is
  /// known.
  std::span<const float> meanSquares(int64_t hadamard);
  /// The factor with which plans of these options and this basis round; computed once.
  Result<const numerics::GptqFactor *> factor(const numerics::GptqOptions &options,
                                              int64_t hadamard);
  /// Tables that withLearnedTables has found, by the first of the sites and the plan, which scales
  /// of another type make no difference to.
  llvm::DenseMap<std::pair<mlir::Operation *, mlir::Attribute>, const numerics::Codebook *> tables;

private:
  /// Calls `use` with the tokens that count, in a basis, sample by sample.
  Result<void> forRows(int64_t hadamard,
                       llvm::function_ref<Result<void>(numerics::ConstMatrix)> use) const;

  /// H in a basis; computed once.
  Result<const std::vector<float> *> hessian(int64_t hadamard);

  const HiddenStates *rows = nullptr; ///< null: of H alone, or unknown
  int64_t columns;
  int64_t skipped = 0;
  Ranges ranges;
  unsigned threads;
  std::map<int64_t, std::vector<float>> squares, hessians; ///< by the basis
  /// By the basis, act-order and damping.
  std::map<std::tuple<int64_t, bool, double>, numerics::GptqFactor> factors;
};

/// The plans of a group's sites, with the table that its weights teach where theirs is to be
/// learned. Fails with a diagnostic.
mlir::FailureOr<llvm::SmallVector<equant::PlanAttr>>
withLearnedTables(const ModelConstants &constants, llvm::ArrayRef<PlannedSite> sites,
                  llvm::ArrayRef<equant::PlanAttr> plans, GroupInputs &inputs, unsigned threads);

/// Does rounding by the plan take anything from activations?
bool readsInputs(equant::PlanAttr plan);

/// What rounds the activations of a plan where it runs; null: they stay float, or their scales are
/// static or online, which no search sees.
equant::SchemeAttr activationsOf(equant::PlanAttr plan);

/// Rows of the weight of a site to nearest by `plan`, in its basis; `inputs` may be null where
/// nothing is taken from them. Errors: those of numerics::quantize.
Result<numerics::QuantizedMatrix> roundToNearest(const PlannedSite &site, equant::PlanAttr plan,
                                                 numerics::ConstMatrix rows, GroupInputs *inputs);

/// The weight of a site as `plan` will round it: what the codes stand for, in the plain basis, into
/// `out`, N x K. `inputs` may be null where nothing is taken from them. Fails with a diagnostic
/// that names the site.
mlir::LogicalResult roundWeight(const ModelConstants &constants, const PlannedSite &site,
                                equant::PlanAttr plan, GroupInputs *inputs, unsigned threads,
                                numerics::Matrix out);

/// Rounds the weight of a site as `plan` will, and puts what the codes stand for in its place in a
/// program, if that reads it. `inputs` may be null where nothing is taken from them. Fails with a
/// diagnostic that names the site.
mlir::LogicalResult roundInto(const ModelConstants &constants, const PlannedSite &site,
                              equant::PlanAttr plan, GroupInputs *inputs, unsigned threads,
                              CompiledSubgraph &program);

/// sum_j E[x_j^2] sum_n (w - what)^2 for each candidate, in its basis, rounded to nearest, from a
/// few rows of each weight, evenly spread; unknown E[x_j^2] are 1. Fails with a diagnostic.
mlir::FailureOr<std::vector<float>> weightErrors(const ModelConstants &constants,
                                                 const SearchGroup &group, GroupInputs &inputs,
                                                 unsigned threads);

/// The candidates that no other one of the same activations beats in bytes, weight error and what
/// was timed.
std::vector<size_t> worthMeasuring(const SearchGroup &group, llvm::ArrayRef<float> weightErrors);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_SEARCHROUNDING_H
