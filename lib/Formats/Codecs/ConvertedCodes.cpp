//===- ConvertedCodes.cpp - Codes of one format in another ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Codecs/ConvertedCodes.h"

#include <algorithm>
#include <cmath>
#include <utility>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::Granularity;
using numerics::QuantizedMatrix;
using numerics::ScaleFormat;
using numerics::Scheme;

/// Schemes with the same codes, the closest one first.
static std::vector<Scheme> closestSchemes(const Scheme &scheme, int64_t columns) {
  const bool isFloat = scheme.scales == ScaleFormat::F32 || scheme.scales == ScaleFormat::F16 ||
                       scheme.scales == ScaleFormat::BF16;
  if (!isFloat || scheme.outer)
    return {};
  std::vector<Scheme> closest;
  for (ScaleFormat scales : {scheme.scales, ScaleFormat::F32, ScaleFormat::F16}) {
    Scheme other = scheme;
    other.superBlocks = false;
    other.scales = scales;
    closest.push_back(other);
    other.granularity = Granularity::Group;
    const int64_t whole = scheme.groupSize ? scheme.groupSize : columns;
    for (int64_t group : {128, 64, 32, 16})
      if (group < whole && whole % group == 0) {
        other.groupSize = group;
        closest.push_back(other);
      }
  }
  // A minimum holds any zero point, rounded once.
  for (size_t i = 0, count = closest.size(); scheme.hasZeroPoints() && i < count; ++i)
    if (closest[i].groupSize != 0 && closest[i].scales != ScaleFormat::BF16) {
      closest.push_back(closest[i]);
      closest.back().minima = true;
    }
  return closest;
}

Result<std::unique_ptr<WeightCodec>> formats::codecForCodes(const CheckpointFormat &format,
                                                            QuantizedSite &site) {
  auto codec = format.codecFor(site);
  if (codec || codec.error().code != ErrorCode::Unsupported)
    return codec;
  for (const Scheme &scheme : closestSchemes(site.weight, site.columns)) {
    QuantizedSite other = site;
    other.weight = scheme;
    if (auto found = format.codecFor(other)) {
      site.weight = scheme;
      return found;
    }
  }
  return codec;
}

bool formats::mayChange(const Scheme &from, const WeightCodec &codec) {
  const Scheme &to = codec.WeightReader::scheme;
  return from.outer || from.minima != to.minima ||
         (to.scales != from.scales && to.scales != ScaleFormat::F32);
}

ConvertingLayout::ConvertingLayout(const WeightCodec &codec)
    : WeightLayout(codec.WeightReader::scheme, codec.rows, codec.columns), codec(codec) {}

void ConvertingLayout::pack(int64_t firstRow, const QuantizedMatrix &block,
                            numerics::PackedWeight &out) const {
  const Scheme &to = codec.WeightReader::scheme;
  QuantizedMatrix converted = block;
  converted.scheme = to;
  const int64_t groups = numerics::groupCount(block.columns, to.groupSize);
  const int64_t repeated = groups / block.params.groups;
  auto repeat = [&](auto &values) {
    auto once = std::exchange(values, {});
    values.reserve(once.size() * repeated);
    for (auto value : once)
      values.insert(values.end(), repeated, value);
  };
  converted.params.groups = groups;
  repeat(converted.params.scales);
  repeat(converted.params.zeroPoints);
  repeat(converted.params.minima);
  if (to.minima && block.scheme.hasZeroPoints())
    for (int64_t i = 0; i < std::ssize(converted.params.scales); ++i)
      converted.params.minima.push_back(
          converted.params.scales[i] *
          static_cast<float>(numerics::codeRange(to).min - converted.params.zeroPoints[i]));
  if (to.minima)
    converted.params.zeroPoints.clear();
  for (std::vector<float> *values : {&converted.params.scales, &converted.params.minima})
    for (float &value : *values)
      value = numerics::roundScale(value, to.scales);
  codec.pack(firstRow, converted, out);
}

void WeightChange::add(const WeightChange &other) {
  largest = std::max(largest, other.largest);
  squares += other.squares;
  weights += other.weights;
}

double WeightChange::relative() const { return weights > 0 ? std::sqrt(squares / weights) : 0; }

Result<WeightChange> formats::changeOf(const QuantizedMatrix &rows, int64_t firstRow,
                                       const WeightCodec &codec, const StoredParts &stored) {
  auto other = codec.unpack(firstRow, rows.rows, stored);
  if (!other)
    return Unexpected(other.error());
  const int64_t columns = rows.columns;
  const int64_t group = rows.scheme.groupSize ? rows.scheme.groupSize : columns;
  std::vector<float> before(rows.rows * columns), after(before.size());
  numerics::dequantize(rows, {before.data(), rows.rows, columns});
  numerics::dequantize(*other, {after.data(), rows.rows, columns});
  WeightChange change;
  for (int64_t i = 0; i < std::ssize(before); ++i) {
    const double weight = before[i], moved = std::abs(after[i] - weight);
    change.squares += moved * moved;
    change.weights += weight * weight;
    if (moved == 0)
      continue;
    const double step =
        rows.params.scales[paramIndex(rows.params, i / columns, i % columns / group)];
    change.largest = std::max(change.largest, moved / std::abs(weight != 0 ? weight : step));
  }
  return change;
}
