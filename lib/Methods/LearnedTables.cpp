//===- LearnedTables.cpp - Tables of values at sites ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Methods/LearnedTables.h"

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/LearnedTable.h"

#include <deque>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::methods;
using equant::PlanAttr;

/// Rows of a weight from which its table is learned: some ten thousand values for each of the
/// table's from the narrowest weight on.
static constexpr int64_t kSampledRows = 256;

bool easyquant::methods::isToBeLearned(PlanAttr plan) {
  equant::CodebookAttr codebook = plan.getWeight().getCodebook();
  return codebook && codebook.toNumerics()->isToBeLearned();
}

SmallVector<WeightToLearn> easyquant::methods::weightsToLearn(ArrayRef<PlannedSite> sites) {
  return llvm::map_to_vector(sites, [](const PlannedSite &site) {
    return WeightToLearn{site.weight(), site.name(), site.loc()};
  });
}

/// Evenly spread over the weight.
static FailureOr<WeightValues> sampleRows(const ModelConstants &constants,
                                          const WeightToLearn &weight) {
  auto type = cast<RankedTensorType>(weight.value.getType());
  const int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  WeightValues sample;
  sample.rows = std::min(rows, kSampledRows);
  sample.columns = columns;
  sample.values.resize(sample.rows * columns);
  for (int64_t i = 0; i < sample.rows; ++i)
    if (failed(constants.readRows(weight.value, weight.site, i * rows / sample.rows,
                                  std::span(sample.values).subspan(i * columns, columns))))
      return failure();
  return sample;
}

FailureOr<PlanAttr> easyquant::methods::withLearnedTable(const ModelConstants &constants,
                                                         ArrayRef<WeightToLearn> weights,
                                                         PlanAttr plan,
                                                         std::span<const float> meanSquares,
                                                         unsigned threads) {
  if (!isToBeLearned(plan))
    return plan;
  std::vector<WeightValues> samples;
  for (const WeightToLearn &weight : weights) {
    FailureOr<WeightValues> sample = sampleRows(constants, weight);
    if (failed(sample))
      return failure();
    samples.push_back(std::move(*sample));
  }
  SmallVector<numerics::RowsToLearn> rows;
  std::deque<std::vector<float>> rotatedSquares;
  for (auto [weight, sample] : llvm::zip_equal(weights, samples)) {
    rows.push_back({sample.view(), meanSquares});
    const int64_t block = plan.getWeight().getHadamard();
    if (block == 0 || equant::rotationOf(weight.value))
      continue;
    // equant-rotate is still to come.
    numerics::rotateConstant(sample.values, block);
    if (!meanSquares.empty())
      rows.back().meanSquares =
          rotatedSquares.emplace_back(numerics::rotatedMeanSquares(meanSquares, block));
  }
  auto table =
      numerics::learnTable(rows, plan.getWeight().toNumerics(),
                           equant::toNumerics(plan.getRule(), plan.getPercentile()), threads);
  if (!table)
    return emitError(weights.front().loc)
           << "site '" << weights.front().site << "': " << table.error().message;
  return plan.withCodebook(**table);
}
