//===- StaticInputs.cpp - Constant scales of activations ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "StaticInputs.h"

#include "easyquant/Dialect/Equant/Analysis/RecipePlans.h"
#include "easyquant/Numerics/SiteStatistics.h"

#include <algorithm>

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using numerics::SliceParams;

FailureOr<StaticInputs> StaticInputs::open(ModuleOp module, StaticObserver observer) {
  if (auto known = checkValue(recipe::option::observer.info(), observer.name); !known)
    return emitError(module.getLoc()) << known.error().message;
  if (observer.percentile && observer.name != "percentile")
    return emitError(module.getLoc())
           << "a percentile belongs to observer percentile, found " << observer.name;
  auto path = module->getAttrOfType<StringAttr>(kStatisticsAttr);
  if (!path)
    return emitError(module.getLoc())
           << "static and online activations need statistics: calibrate first (the module has no "
           << kStatisticsAttr << "), or take dynamic activations";
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return failure();
  Result<formats::StatisticsFile> file = formats::StatisticsFile::open(path.str());
  if (!file)
    return emitError(module.getLoc()) << file.error().message;
  Result<std::string> hash = reader->source().hash();
  if (!hash)
    return emitError(module.getLoc()) << hash.error().message;
  if (auto same = file->checkModel(*hash); !same)
    return emitError(module.getLoc()) << same.error().message;
  return StaticInputs(std::move(*file), std::move(*reader), module, std::move(observer));
}

/// For people; `steps` as in columnSteps().
static std::string describe(ArrayRef<int64_t> steps) {
  std::string text;
  for (int64_t block : steps)
    text += (text.empty() ? "" : ", ") +
            (block ? fmt::format("rotated in blocks of {}", block) : std::string("scaled"));
  return text.empty() ? "as the model has them" : text;
}

/// The vector by which the channels of the activations were divided since they were observed, as
/// the weight tells; empty if they were not.
Result<std::vector<float>> StaticInputs::divisorsOf(StringRef site,
                                                    const ConstantTensor &weight) const {
  Result<std::vector<int64_t>> observed = file.basis(site.str());
  if (!observed)
    return Unexpected(observed.error());
  SmallVector<const ConstantStep *> steps;
  SmallVector<int64_t> read;
  for (const ConstantStep &step : weight.steps)
    if (step.axis == 1) {
      steps.push_back(&step);
      read.push_back(step.block);
    }
  const ArrayRef<int64_t> seen(*observed),
      since = ArrayRef(read).drop_front(std::min(seen.size(), read.size()));
  if (!ArrayRef(read).take_front(seen.size()).equals(seen) ||
      llvm::any_of(since, [](int64_t block) { return block != 0; }))
    return makeError(ErrorCode::InvalidArgument,
                     "{}: activations were observed {}, and are read {}: run equant-calibrate "
                     "behind equant-rotate",
                     file.path().string(), describe(seen), describe(read));
  std::vector<float> divisors;
  for (const ConstantStep *step : ArrayRef(steps).drop_front(seen.size())) {
    std::vector<float> factor(weight.columns());
    if (auto done = reader.readRows(step->factor, 0, factor.size(), factor); !done)
      return Unexpected(done.error());
    divisors.resize(factor.size(), 1.0f);
    for (size_t j = 0; j < factor.size(); ++j)
      divisors[j] = step->divide ? divisors[j] / factor[j] : divisors[j] * factor[j];
  }
  return divisors;
}

Result<SliceParams> StaticInputs::fromExtrema(StringRef site, StringRef observer,
                                              const numerics::Scheme &scheme,
                                              const std::vector<float> &divisors) const {
  const int64_t channels = divisors.size();
  std::vector<float> low, high;
  if (scheme.sinks || observer == "minmax" || !file.has((site + "/absmax").str())) {
    auto extrema = file.floats((site + (scheme.sinks ? "/inliers" : "/minmax")).str(),
                               std::vector<int64_t>{2, channels});
    if (!extrema)
      return Unexpected(extrema.error());
    low.assign(extrema->begin(), extrema->begin() + channels);
    high.assign(extrema->begin() + channels, extrema->end());
    for (int64_t j = 0; scheme.sinks && observer == "absmax" && j < channels; ++j) {
      high[j] = std::max(-low[j], high[j]);
      low[j] = -high[j];
    }
  } else {
    auto peaks = file.floats((site + "/absmax").str(), std::vector<int64_t>{channels});
    if (!peaks)
      return Unexpected(peaks.error());
    high = *peaks;
    low.resize(channels);
    std::transform(high.begin(), high.end(), low.begin(), std::negate<>());
  }
  float least = 0, greatest = 0;
  for (int64_t j = 0; j < channels; ++j) {
    // A negative factor exchanges the ends.
    float ends[] = {low[j] / divisors[j], high[j] / divisors[j]};
    for (float end : ends)
      if (!std::isfinite(end))
        return makeError(ErrorCode::Corrupt,
                         "channel {} reaches from {} to {} and is divided by {}: its range is not "
                         "finite",
                         j, low[j], high[j], divisors[j]);
    least = std::min({least, ends[0], ends[1]});
    greatest = std::max({greatest, ends[0], ends[1]});
  }
  return numerics::paramsOfRange(least, greatest, scheme);
}

Result<SliceParams> StaticInputs::fromHistogram(StringRef site, StringRef observer,
                                                const numerics::Scheme &scheme) const {
  auto counts = file.integers((site + "/histogram").str(),
                              std::vector<int64_t>{2 * numerics::Histogram::kBins});
  if (!counts)
    return Unexpected(counts.error());
  auto range = file.floats((site + "/histogram_range").str(), std::vector<int64_t>{2});
  if (!range)
    return Unexpected(range.error());
  auto histogram = numerics::Histogram::fromCounts(*counts, (*range)[0], (*range)[1]);
  if (!histogram)
    return Unexpected(histogram.error());
  numerics::ScaleRule rule{.kind = *numerics::scaleRuleKind(observer.str())};
  if (preset.percentile && observer == preset.name)
    rule.percentile = *preset.percentile;
  return numerics::chooseQParams(*histogram, scheme, rule);
}

Result<SliceParams> StaticInputs::fromAverages(StringRef site,
                                               const numerics::Scheme &scheme) const {
  auto averages = file.floats((site + "/ema").str(), std::vector<int64_t>{2});
  if (!averages)
    return Unexpected(averages.error());
  return numerics::Ema::params((*averages)[0], (*averages)[1], scheme);
}

Result<SliceParams> StaticInputs::choose(QuantizableOpInterface op, PlanAttr plan) const {
  std::string site = op.getSite().str();
  auto named = [&](const Error &error) {
    return makeError(error.code, "site '{}': {}", site, error.message);
  };
  FailureOr<ConstantTensor> weight =
      constants.match(op.getLoc(), site, op.getWeightOperand().get());
  if (failed(weight))
    return makeError(ErrorCode::Unsupported, "site '{}': its weight is no constant", site);
  Result<std::vector<float>> divisors = divisorsOf(site, *weight);
  if (!divisors)
    return named(divisors.error());
  auto own = dyn_cast_or_null<StringAttr>(plan.option(recipe::option::observer.info().key));
  StringRef observer = own ? own.getValue() : StringRef(preset.name);
  if (auto known = checkValue(recipe::option::observer.info(), observer.str()); !known)
    return named(known.error());
  const numerics::RangeObserver &how = *numerics::findRangeObserver(observer);
  const bool perChannel = how.isOfChannels;
  numerics::Scheme numeric = plan.getInput().toNumerics();
  if (!perChannel && numeric.sinks)
    return makeError(ErrorCode::Unsupported,
                     "site '{}': observer {} takes sinks for tokens like all others; take observer "
                     "minmax or absmax, or sinks none",
                     site, observer.str());
  if (!perChannel && !divisors->empty())
    return makeError(ErrorCode::Unsupported,
                     "site '{}': observer {} knows its activations as a whole, before they were "
                     "smoothed channel by channel; take observer minmax or absmax",
                     site, observer.str());
  divisors->resize(weight->columns(), 1.0f);
  // With an outer scale, calibration finds that one; scales of groups come at run time.
  const bool isOuter = numeric.outer;
  if (isOuter)
    numeric = {.bits = numeric.bits,
               .granularity = numerics::Granularity::Tensor,
               .codes = numeric.codes,
               .table = numeric.table};
  Result<SliceParams> params = perChannel ? fromExtrema(site, observer, numeric, *divisors)
                               : how.statistic == "ema" ? fromAverages(site, numeric)
                                                        : fromHistogram(site, observer, numeric);
  if (!params)
    return named(params.error());
  if (isOuter)
    params->scale = numerics::outerScale(params->scale * numerics::codeValues(numeric).absMax(),
                                         plan.getInput().toNumerics());
  return params;
}
