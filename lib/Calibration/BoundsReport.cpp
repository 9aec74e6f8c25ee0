//===- BoundsReport.cpp - Errors and bounds as JSON -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "BoundsReport.h"

#include "easyquant/Numerics/Bounds.h"

#include <cmath>

using namespace easyquant;
using namespace easyquant::calibration;

/// The share is null where the bound is 0 and the error is not.
static Json::Object pairOf(double measured, double bound) {
  return Json::Object{{"measured", measured},
                      {"bound", bound},
                      {"share", measured == 0 ? Json(0.0) : measured / bound}};
}

static Json::Object pairOf(const std::string &site, const WorstPair &pair) {
  Json::Object entry = pairOf(pair.measured, pair.bound);
  entry["site"] = site;
  entry["largest"] = pair.largest;
  return entry;
}

void BoundsReport::addSite(const std::string &site, const LinearErrors &errors,
                           numerics::MovedBytes moved) {
  weights.push_back(pairOf(site, errors.weights));
  outputs.push_back(pairOf(site, errors.outputs));
  bytes.push_back(
      Json::Object{{"site", site}, {"fused", moved.fused}, {"separate", moved.separate}});
}

void BoundsReport::addCache(int64_t layer, const char *tensor, int bits,
                            const CacheErrors &errors) {
  Json::Object entry =
      pairOf(errors.measured, numerics::simQuantErrorBound(errors.minima, errors.maxima, bits));
  entry["layer"] = layer;
  entry["tensor"] = tensor;
  entry["bits"] = bits;
  caches.push_back(std::move(entry));
}

void BoundsReport::addSmoothing(const Sites &sites, const Smoothing &smoothing) {
  smoothings.push_back(Json::Object{{"sites", Json(sites)},
                                    {"best_mean", smoothing.mean},
                                    {"best_least", smoothing.least},
                                    {"best_greatest", smoothing.greatest},
                                    {"searched", smoothing.searched},
                                    {"error_best", smoothing.bestError},
                                    {"error_searched", smoothing.searchedError},
                                    {"error_plain", smoothing.plainError}});
}

void BoundsReport::addSampling(const Sites &sites, const std::vector<SampledMean> &means) {
  for (const SampledMean &mean : means) {
    Json::Object entry = pairOf(mean.measured, mean.bound);
    entry["sites"] = Json(sites);
    entry["samples"] = mean.samples;
    samplings.push_back(std::move(entry));
  }
}

void BoundsReport::addLayers(const Growth &growth) {
  std::vector<double> bounds = numerics::compoundedErrors(growth.gain, growth.local);
  for (size_t i = 0; i < bounds.size(); ++i) {
    Json::Object entry = pairOf(growth.measured[i], bounds[i]);
    entry["layer"] = static_cast<int64_t>(i);
    entry["local"] = growth.local[i];
    entry["measured_gain"] = growth.gain[i];
    layers.push_back(std::move(entry));
  }
}

Json::Object BoundsReport::take(Json::Object header) {
  header["weights"] = std::move(weights);
  header["outputs"] = std::move(outputs);
  header["layers"] = std::move(layers);
  header["keys_values"] = std::move(caches);
  header["smoothing"] = std::move(smoothings);
  header["sampling"] = std::move(samplings);
  header["bytes_per_token"] = std::move(bytes);
  header["left_out"] = std::move(leftOut);
  return header;
}
