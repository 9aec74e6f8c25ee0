//===- SiteBounds.cpp - Errors and bounds of single sites -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SiteBounds.h"

using namespace mlir;
using namespace easyquant;
using namespace easyquant::calibration;
using equant::FoldPoint;
using equant::QuantizableOpInterface;
using numerics::ConstMatrix;

/// Floats of a weight that are in memory at a time, where its scheme allows to cut it.
static constexpr int64_t kChunkFloats = int64_t(1) << 22;

static LogicalResult fail(Location loc, const Error &error) {
  return emitError(loc) << error.message;
}

LogicalResult SiteBounds::visitRows(QuantizableOpInterface op, bool whole,
                                    llvm::function_ref<Result<void>(ConstMatrix)> visit) const {
  Value weight = op.getWeightOperand().get();
  auto type = cast<RankedTensorType>(weight.getType());
  const int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);
  const int64_t step = whole ? rows : std::clamp<int64_t>(kChunkFloats / columns, 1, rows);
  std::vector<float> values(step * columns);
  for (int64_t first = 0; first < rows; first += step) {
    const int64_t count = std::min(step, rows - first);
    if (failed(constants.readRows(weight, op.getSite(), first,
                                  std::span(values.data(), count * columns))))
      return failure();
    if (auto done = visit({values.data(), count, columns}); !done)
      return fail(op.getLoc(), done.error());
  }
  return success();
}

LogicalResult SiteBounds::addLinears(const SiteGroup &group, const ActivationSummary &activation) {
  const int64_t columns = lm::columns(group.activation);
  for (const PlannedSite &site : group.sites) {
    std::optional<numerics::Scheme> input;
    if (site.plan.getInput())
      input = site.plan.getInput().toNumerics();
    auto rows = QuantizedRows::make(activation.picked, columns, input);
    if (!rows)
      return fail(site.loc(), rows.error());
    const numerics::Scheme scheme = site.scheme();
    LinearErrors errors;
    auto visit = [&](ConstMatrix weight) -> Result<void> {
      auto codes = roundToNearest(site, weight);
      if (!codes)
        return Unexpected(codes.error());
      errors.merge(measureLinear(weight, *codes, *rows, threads));
      return {};
    };
    if (failed(visitRows(site.op, scheme.granularity == numerics::Granularity::Tensor, visit)))
      return failure();
    const int64_t features = cast<RankedTensorType>(site.weight().getType()).getDimSize(0);
    report.addSite(
        site.name(), errors,
        numerics::movedBytes(features, columns, scheme, input.has_value(), /*tokens=*/1));
  }
  return success();
}

void SiteBounds::addSampling(const SiteGroup &group, const ActivationSummary &activation) {
  BoundsReport::Sites names;
  for (const PlannedSite &site : group.sites)
    names.push_back(site.name());
  report.addSampling(names, measureSampling(activation.scales, order, kSamplingRisk));
}

LogicalResult SiteBounds::addSmoothing(const FoldPoint &point,
                                       const ActivationSummary &activation) {
  equant::PlanAttr plan;
  for (QuantizableOpInterface op : point.readers)
    if (equant::PlanAttr other = equant::getPlan(op); !plan && other && other.getInput())
      plan = other;
  const numerics::Scheme scheme = plan.getWeight().toNumerics();
  const numerics::SmoothedCodes codes{.maxActivation =
                                          numerics::codeRange(plan.getInput().toNumerics()).max,
                                      .maxWeight = numerics::codeRange(scheme).max,
                                      .groupSize = scheme.groupSize};
  const std::vector<float> &activationPeaks = activation.peaks.channels();
  numerics::AbsMax weights(point.columns());
  for (QuantizableOpInterface op : point.readers)
    if (failed(visitRows(op, false, [&](ConstMatrix rows) { return weights.update(rows); })))
      return failure();
  std::vector<float> squares = activation.moments.variances();
  for (auto [square, mean] : llvm::zip_equal(squares, activation.moments.means()))
    square += mean * mean;
  auto search =
      numerics::SmoothingSearch::create(activationPeaks, squares, weights.channels(), codes);
  if (!search)
    return fail(QuantizableOpInterface(point.readers.front()).getLoc(), search.error());
  for (QuantizableOpInterface op : point.readers)
    if (failed(visitRows(op, false, [&](ConstMatrix rows) -> Result<void> {
          search->update(rows);
          return {};
        })))
      return failure();
  BoundsReport::Sites names;
  for (StringRef site : point.sites())
    names.push_back(site.str());
  if (auto found = measureSmoothing(activationPeaks, weights.channels(), *search, codes))
    report.addSmoothing(names, *found);
  else
    report.leaveOut("smoothing of what '" + names.front() + "' reads: " + found.error().message);
  return success();
}

LogicalResult SiteBounds::addCache(lm::AttentionOp attention, int64_t layer,
                                   const CachedRows &cached) {
  const int64_t headDim = attention.getHeadDim(), columns = lm::columns(attention.getKey());
  auto tokens = [&](const std::vector<float> &rows) { return std::ssize(rows) / columns; };
  int64_t shortest = tokens(cached.keys.front());
  for (const std::vector<float> &keys : cached.keys)
    shortest = std::min(shortest, tokens(keys));
  for (int bits : {8, 4, 2}) {
    auto scheme = measurableKVScheme(bits, shortest, headDim);
    if (!scheme) {
      if (layer == 0 && bits == 8)
        report.leaveOut("keys and values: " + scheme.error().message);
      return success();
    }
    CacheErrors ofKeys, ofValues;
    for (auto [keys, values] : llvm::zip_equal(cached.keys, cached.values)) {
      auto done = ofKeys.seeKeys({keys.data(), tokens(keys), columns}, *scheme, headDim);
      if (done)
        done = ofValues.seeValues({values.data(), tokens(values), columns}, *scheme, headDim);
      if (!done)
        return fail(attention.getLoc(), done.error());
    }
    report.addCache(layer, "keys", bits, ofKeys);
    report.addCache(layer, "values", bits, ofValues);
  }
  return success();
}
