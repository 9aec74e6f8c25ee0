//===- SearchEntropy.cpp - Losses guessed without a run -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SearchEntropy.h"

#include "easyquant/Numerics/Hadamard.h"
#include "easyquant/Numerics/Histogram.h"
#include "easyquant/Numerics/Metrics.h"

#include <cmath>
#include <map>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::search;

/// Bits a value, of the bins of its histogram.
static Result<double> entropyOf(const formats::StatisticsFile &statistics,
                                const std::string &site) {
  auto counts = statistics.integers(site + "/histogram",
                                    std::vector<int64_t>{2 * numerics::Histogram::kBins});
  if (!counts)
    return Unexpected(counts.error());
  double total = 0, sum = 0;
  for (int64_t count : *counts) {
    total += static_cast<double>(count);
    if (count > 0)
      sum += static_cast<double>(count) * std::log2(static_cast<double>(count));
  }
  return total > 0 ? std::log2(total) - sum / total : 0;
}

FailureOr<numerics::FormatTable>
easyquant::search::entropyTable(const ModelConstants &constants, const SearchSpace &space,
                                const formats::StatisticsFile &statistics,
                                llvm::function_ref<void(size_t)> progress) {
  numerics::FormatTable table;
  for (auto [index, group] : llvm::enumerate(space.groups)) {
    progress(index);
    std::vector<numerics::FormatCost> &costs = table.emplace_back();
    for (const FormatCandidate &candidate : group.candidates)
      costs.push_back({candidate.bytes, 0, candidate.milliseconds});
    for (auto [number, site] : llvm::enumerate(group.sites)) {
      auto entropy = entropyOf(statistics, site.name());
      if (!entropy)
        return emitError(site.loc()) << entropy.error().message;
      FailureOr<WeightValues> weight = readWeight(constants, site);
      if (failed(weight))
        return failure();
      const auto count = static_cast<int64_t>(weight->values.size());
      const double share = static_cast<double>(count) / static_cast<double>(group.weights());
      std::vector<float> rounded(weight->values.size());
      std::map<int64_t, std::vector<float>> inBasis;
      for (auto [candidate, cost] : llvm::zip_equal(group.candidates, costs)) {
        const PlannedSite planned{site.op, candidate.plans[number]};
        numerics::ScaleRule rule = planned.rule();
        if (rule.kind == numerics::ScaleRuleKind::HessianDiagonal)
          rule.kind = numerics::ScaleRuleKind::Mse; // there is nothing to weigh errors by
        const int64_t block = planned.plan.getWeight().getHadamard();
        auto [known, isNew] = inBasis.try_emplace(block, weight->values);
        std::vector<float> &values = known->second;
        if (isNew && block != 0)
          numerics::rotateConstant(values, block);
        auto codes = numerics::quantize({values.data(), weight->rows, weight->columns},
                                        numerics::withWideScales(planned.scheme()), rule);
        if (!codes)
          return emitError(site.loc()) << "site '" << site.name() << "': " << codes.error().message;
        numerics::dequantize(*codes, {rounded.data(), weight->rows, weight->columns});
        const double error = numerics::relativeRms(values.data(), rounded.data(), count);
        // A weight of zeros, which has no relative error, carries no information either.
        cost.loss += std::isfinite(error) ? share * *entropy * error * error : 0;
      }
    }
  }
  return table;
}
