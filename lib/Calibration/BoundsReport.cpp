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
namespace json = llvm::json;

/// JSON has no infinities.
static json::Value number(double value) {
  return std::isfinite(value) ? json::Value(value) : json::Value(nullptr);
}

/// The share is null where the bound is 0 and the error is not.
static json::Object pairOf(double measured, double bound) {
  return json::Object{{"measured", number(measured)},
                      {"bound", number(bound)},
                      {"share", measured == 0 ? json::Value(0.0) : number(measured / bound)}};
}

static json::Object pairOf(const std::string &site, const WorstPair &pair) {
  json::Object entry = pairOf(pair.measured, pair.bound);
  entry["site"] = site;
  entry["largest"] = number(pair.largest);
  return entry;
}

void BoundsReport::addSite(const std::string &site, const LinearErrors &errors,
                           numerics::MovedBytes moved) {
  weights.push_back(pairOf(site, errors.weights));
  outputs.push_back(pairOf(site, errors.outputs));
  bytes.push_back(
      json::Object{{"site", site}, {"fused", moved.fused}, {"separate", moved.separate}});
}

void BoundsReport::addCache(int64_t layer, llvm::StringLiteral tensor, int bits,
                            const CacheErrors &errors) {
  json::Object entry =
      pairOf(errors.measured, numerics::simQuantErrorBound(errors.minima, errors.maxima, bits));
  entry["layer"] = layer;
  entry["tensor"] = tensor;
  entry["bits"] = bits;
  caches.push_back(std::move(entry));
}

void BoundsReport::addSmoothing(const Sites &sites, const Smoothing &smoothing) {
  smoothings.push_back(json::Object{{"sites", json::Array(sites)},
                                    {"best_mean", number(smoothing.mean)},
                                    {"best_least", number(smoothing.least)},
                                    {"best_greatest", number(smoothing.greatest)},
                                    {"searched", number(smoothing.searched)},
                                    {"error_best", number(smoothing.bestError)},
                                    {"error_searched", number(smoothing.searchedError)},
                                    {"error_plain", number(smoothing.plainError)}});
}

void BoundsReport::addSampling(const Sites &sites, const std::vector<SampledMean> &means) {
  for (const SampledMean &mean : means) {
    json::Object entry = pairOf(mean.measured, mean.bound);
    entry["sites"] = json::Array(sites);
    entry["samples"] = mean.samples;
    samplings.push_back(std::move(entry));
  }
}

void BoundsReport::addLayers(const Growth &growth) {
  std::vector<double> bounds = numerics::compoundedErrors(growth.gain, growth.local);
  for (size_t i = 0; i < bounds.size(); ++i) {
    json::Object entry = pairOf(growth.measured[i], bounds[i]);
    entry["layer"] = static_cast<int64_t>(i);
    entry["local"] = number(growth.local[i]);
    entry["measured_gain"] = number(growth.gain[i]);
    layers.push_back(std::move(entry));
  }
}

json::Object BoundsReport::take(json::Object header) {
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
