//===- LossSensitivity.cpp - What formats cost by the loss's metric -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LossSensitivity.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::execution;
using namespace easyquant::methods;
using namespace easyquant::search;
using equant::PlanAttr;
using numerics::Matrix;

namespace {

/// A group of sites, each with Hessians of its own.
class GroupByLoss {
public:
  GroupByLoss(const ModelConstants &constants, const SearchGroup &group, ArrayRef<SiteLoss> losses,
              unsigned threads)
      : constants(constants), group(group), losses(losses), threads(threads) {
    for (auto [site, loss] : llvm::zip_equal(group.sites, losses))
      inputs.emplace_back(loss.all.inputs, columnsOf(site), GroupInputs::Ranges::Coarse, threads);
  }

  FailureOr<GroupFindings> measure();

private:
  static int64_t columnsOf(const PlannedSite &site) {
    return cast<RankedTensorType>(site.weight().getType()).getDimSize(1);
  }
  FailureOr<float> errorOf(ArrayRef<PlanAttr> plans);

  const ModelConstants &constants;
  const SearchGroup &group;
  ArrayRef<SiteLoss> losses;
  unsigned threads;
  std::vector<GroupInputs> inputs; ///< of each site
};

} // namespace

FailureOr<float> GroupByLoss::errorOf(ArrayRef<PlanAttr> plans) {
  auto learned = withLearnedTables(constants, group.sites, plans, inputs.front(), threads);
  if (failed(learned))
    return failure();
  double sum = 0;
  for (auto [i, site] : llvm::enumerate(group.sites)) {
    FailureOr<WeightValues> weight = readWeight(constants, site);
    if (failed(weight))
      return failure();
    std::vector<float> rounded(weight->values.size());
    if (failed(roundWeight(constants, site, (*learned)[i], &inputs[i], threads,
                           Matrix(rounded.data(), weight->rows, weight->columns))))
      return failure();
    for (size_t at = 0; at < rounded.size(); ++at)
      rounded[at] = weight->values[at] - rounded[at];
    const double cost =
        divergenceOf(losses[i].all, {rounded.data(), weight->rows, weight->columns}, threads);
    if (!std::isfinite(cost))
      return emitError(site.loc()) << "site '" << site.name() << "': rounding it costs " << cost
                                   << " nats by the Hessians of the loss; expected a finite "
                                      "number. Calibrate on other text";
    sum += cost;
  }
  return static_cast<float>(sum);
}

FailureOr<GroupFindings> GroupByLoss::measure() {
  GroupFindings findings;
  FailureOr<std::vector<float>> weighted = weightErrors(constants, group, inputs.front(), threads);
  if (failed(weighted))
    return failure();
  findings.weightErrors = *weighted;
  findings.errors.assign(group.candidates.size(), kDropped);
  for (size_t kept : worthMeasuring(group, *weighted)) {
    FailureOr<float> error = errorOf(group.candidates[kept].plans);
    if (failed(error))
      return failure();
    findings.errors[kept] = *error;
  }
  auto planned =
      llvm::map_to_vector(group.sites, [](const PlannedSite &site) { return site.plan; });
  FailureOr<float> found = errorOf(planned);
  if (failed(found))
    return failure();
  findings.found = *found;
  return findings;
}

LogicalResult easyquant::search::checkFloatActivations(const SearchSpace &space) {
  for (const SearchGroup &group : space.groups) {
    if (group.areExperts())
      return emitError(group.sites.front().loc())
             << "sensitivity=loss has no losses of experts, found those of '" << group.name()
             << "': take sensitivity=blocks";
    for (const FormatCandidate &candidate : group.candidates)
      if (!group.isHead && activationsOf(candidate.plans.front()))
        return emitError(group.sites.front().loc())
               << "sensitivity=loss sees the rounding of weights alone, and "
               << space.formats[candidate.format].name() << " rounds activations of '"
               << group.name() << "', too: search formats of float activations, or take "
               << "sensitivity=blocks";
  }
  return success();
}

SmallVector<equant::QuantizableOpInterface>
easyquant::search::opsOf(ArrayRef<const SearchGroup *> groups) {
  SmallVector<equant::QuantizableOpInterface> ops;
  for (const SearchGroup *group : groups)
    for (const PlannedSite &site : group->sites)
      ops.push_back(site.op);
  return ops;
}

FailureOr<LayerFindings> easyquant::search::findingsByLoss(const ModelConstants &constants,
                                                           ArrayRef<const SearchGroup *> groups,
                                                           ArrayRef<SiteLoss> losses,
                                                           unsigned threads) {
  LayerFindings findings;
  for (const SearchGroup *group : groups) {
    const size_t count = group->sites.size();
    FailureOr<GroupFindings> found =
        GroupByLoss(constants, *group, losses.take_front(count), threads).measure();
    if (failed(found))
      return failure();
    losses = losses.drop_front(count);
    findings.losses.resize(std::max(findings.losses.size(), group->block + 1));
    findings.losses[group->block] += found->found;
    findings.groups.push_back(std::move(*found));
  }
  return findings;
}
