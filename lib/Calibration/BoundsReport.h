//===- BoundsReport.h - Errors and bounds as JSON ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What equant-measure-bounds writes; the pass's description has the keys. Private to
// lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_BOUNDSREPORT_H
#define EASYQUANT_LIB_CALIBRATION_BOUNDSREPORT_H

#include "ErrorsAndBounds.h"

#include "easyquant/Numerics/MovedBytes.h"

#include "easyquant/Support/Json.h"

namespace easyquant::calibration {

/// Errors of the hidden states, an element a layer.
struct Growth {
  std::vector<double> measured, local, gain;
};

class BoundsReport {
public:
  using Sites = std::vector<std::string>;

  void addSite(const std::string &site, const LinearErrors &errors, numerics::MovedBytes moved);
  void addCache(int64_t layer, const char *tensor, int bits, const CacheErrors &errors);
  void addSmoothing(const Sites &sites, const Smoothing &smoothing);
  void addSampling(const Sites &sites, const std::vector<SampledMean> &means);
  /// Computes the bounds of the growth.
  void addLayers(const Growth &growth);
  void leaveOut(const std::string &reason) { leftOut.push_back(reason); }

  /// All of it in `header`.
  Json::Object take(Json::Object header);

private:
  Json::Array weights, outputs, layers, caches, smoothings, samplings, bytes, leftOut;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_BOUNDSREPORT_H
