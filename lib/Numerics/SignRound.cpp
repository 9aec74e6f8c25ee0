//===- SignRound.cpp - Rounding learned by signed gradients ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/SignRound.h"

#include "Codec.h"
#include "LayerLoss.h"

#include "easyquant/Support/Parallel.h"

namespace easyquant::numerics {
namespace {

constexpr int64_t kCheckpoints = 4;
/// Rows that a thread takes at a time.
constexpr int64_t kStepRows = 32;
constexpr float kLeastFactor = 0.5f, kLargestFactor = 1.5f;

/// A weight that is learned.
struct Learned {
  const TrainedSite *site;
  std::vector<float> values, rounded, offsets; ///< N x K: w, what and v
  std::vector<float> gradient;                 ///< of `rounded`
  std::vector<float> factors;                  ///< a, by slice
  QuantizedMatrix codes;                       ///< of round to nearest at first
  std::vector<float> scales;                   ///< s
};

/// One slice: a step of the given rate (0: none), then its codes and what they stand for.
struct SliceStep {
  const float *w, *gradient;
  float *v, *rounded;
  int8_t *codes;
  int64_t count;
  float scale; ///< a s
  int32_t zeroPoint;
  CodeRange range;
};

/// The gradients of offsets and factor; moves the offsets.
EASYQUANT_VECTOR_CLONES
double moveOffsets(const SliceStep &slice, float rate) {
  const auto lo = static_cast<float>(slice.range.min - slice.zeroPoint);
  const auto hi = static_cast<float>(slice.range.max - slice.zeroPoint);
  constexpr int64_t lanes = 8, chunk = 64;
  double sums[lanes] = {};
  // Sums apart from the rest, and nothing that may overlap: both loops become vector code.
  float ofFactor[chunk];
  for (int64_t first = 0; first < slice.count; first += chunk) {
    const int64_t count = std::min(chunk, slice.count - first);
    const float *__restrict w = slice.w + first, *__restrict gradient = slice.gradient + first;
    float *__restrict v = slice.v + first;
    for (int64_t i = 0; i < count; ++i) {
      const float steps = w[i] / slice.scale, place = steps + v[i];
      const float code = static_cast<float>(roundClamped(place, lo, hi));
      const bool inside = place >= lo && place <= hi;
      ofFactor[i] = code - (inside ? steps : 0.0f);
      const float sign = gradient[i] > 0 ? 1.0f : gradient[i] < 0 ? -1.0f : 0.0f;
      const float moved = v[i] - (inside ? rate * sign : 0.0f);
      v[i] = moved < -0.5f ? -0.5f : moved > 0.5f ? 0.5f : moved;
    }
    int64_t i = 0;
    for (; i + lanes <= count; i += lanes)
      for (int64_t l = 0; l < lanes; ++l)
        sums[l] += static_cast<double>(gradient[i + l]) * ofFactor[i + l];
    for (; i < count; ++i)
      sums[i % lanes] += static_cast<double>(gradient[i]) * ofFactor[i];
  }
  double total = 0;
  for (double sum : sums)
    total += sum;
  return total;
}

EASYQUANT_VECTOR_CLONES
void roundSlice(const SliceStep &slice) {
  const auto lo = static_cast<float>(slice.range.min - slice.zeroPoint);
  const auto hi = static_cast<float>(slice.range.max - slice.zeroPoint);
  const float *__restrict w = slice.w, *__restrict v = slice.v;
  float *__restrict rounded = slice.rounded;
  int8_t *__restrict codes = slice.codes;
  for (int64_t i = 0; i < slice.count; ++i) {
    const int32_t code = roundClamped(w[i] / slice.scale + v[i], lo, hi);
    codes[i] = static_cast<int8_t>(code + slice.zeroPoint);
    rounded[i] = slice.scale * static_cast<float>(code);
  }
}

class RoundingLearner {
public:
  RoundingLearner(DifferentiableLayer &layer, std::span<const ConstMatrix> targets,
                  const SignRoundOptions &options)
      : layer(layer), loss(layer, targets, options.heldOut, options.skippedRows, ""),
        options(options) {}
  Result<TrainedWeights> run(std::span<const TrainedSite> sites);

private:
  Result<void> start(const TrainedSite &site);
  void step(Learned &weight, float rate) const;
  Result<void> step(float rate);

  DifferentiableLayer &layer;
  LayerLoss loss;
  const SignRoundOptions &options;
  std::vector<Learned> learned;
  std::vector<Matrix> gradients;
};

} // namespace

Result<void> RoundingLearner::start(const TrainedSite &site) {
  if (!site.scheme.isInteger())
    return makeError(ErrorCode::InvalidArgument,
                     "signround of {}: it learns which of two integers a weight becomes; take gptq "
                     "or lkd",
                     toString(site.scheme));
  ConstMatrix w = site.weight;
  Learned weight;
  weight.site = &site;
  for (int64_t i = 0; i < w.rows; ++i)
    weight.values.insert(weight.values.end(), w.row(i), w.row(i) + w.columns);
  ConstMatrix values(weight.values.data(), w.rows, w.columns);
  weight.codes = {site.scheme, w.rows, w.columns, {}, {}};
  if (site.params) {
    weight.codes.params = *site.params;
  } else {
    auto params = chooseQParams(values, site.scheme, site.rule);
    if (!params)
      return Unexpected(params.error());
    weight.codes.params = std::move(*params);
  }
  weight.codes.codes.resize(weight.values.size());
  if (auto done = quantize(values, site.scheme, weight.codes.params, weight.codes.codes); !done)
    return done;
  weight.scales = weight.codes.params.scales;
  weight.factors.assign(weight.scales.size(), 1.0f);
  for (auto *each : {&weight.rounded, &weight.offsets, &weight.gradient})
    each->resize(weight.values.size());
  gradients.push_back({weight.gradient.data(), w.rows, w.columns});
  learned.push_back(std::move(weight)); // the vectors keep their memory
  return {};
}

void RoundingLearner::step(Learned &weight, float rate) const {
  QuantizedMatrix &q = weight.codes;
  const CodeRange range = codeRange(q.scheme);
  const int64_t blocks = (q.rows + kStepRows - 1) / kStepRows;
  parallelFor(blocks, options.threads, [&](int64_t b) {
    for (int64_t i = b * kStepRows; i < std::min(q.rows, (b + 1) * kStepRows); ++i)
      for (int64_t g = 0; g < q.params.groups; ++g) {
        auto [begin, count] = groupColumns(g, q.scheme.groupSize, q.columns);
        const int64_t at = i * q.columns + begin, p = i * q.params.groups + g;
        float &scale = q.params.scales[p], &factor = weight.factors[p];
        SliceStep slice{&weight.values[at],
                        &weight.gradient[at],
                        &weight.offsets[at],
                        &weight.rounded[at],
                        &q.codes[at],
                        count,
                        scale,
                        q.scheme.symmetric ? 0 : q.params.zeroPoints[p],
                        range};
        if (rate > 0) {
          const double slope = moveOffsets(slice, rate);
          const float sign = static_cast<float>((slope > 0) - (slope < 0));
          factor = std::clamp(factor - rate / 4 * sign, kLeastFactor, kLargestFactor);
          const float outer = q.params.outerOf(i);
          const float rounded = roundScale(factor * weight.scales[p] / outer, q.scheme.scales);
          if (isScale(rounded, q.scheme.scales))
            slice.scale = scale = rounded * outer;
        }
        roundSlice(slice);
      }
  });
}

Result<void> RoundingLearner::step(float rate) {
  for (size_t i = 0; i < learned.size(); ++i) {
    Learned &weight = learned[i];
    step(weight, rate);
    ConstMatrix rounded(weight.rounded.data(), weight.codes.rows, weight.codes.columns);
    if (auto set = layer.setWeight(i, rounded); !set)
      return set;
  }
  return {};
}

Result<TrainedWeights> RoundingLearner::run(std::span<const TrainedSite> sites) {
  learned.reserve(sites.size());
  for (const TrainedSite &site : sites)
    if (auto ok = start(site); !ok)
      return Unexpected(ok.error());
  if (auto ok = step(/*rate=*/0); !ok)
    return Unexpected(ok.error());
  std::optional<TrainedWeights> best;
  if (auto ok = loss.keepBest(learned, best); !ok)
    return Unexpected(ok.error());
  for (int64_t i = 0; i < options.steps; ++i) {
    if (auto ok = loss.of(static_cast<size_t>(i) % loss.trained(), gradients); !ok)
      return Unexpected(ok.error());
    const double rest = 1 - static_cast<double>(i) / static_cast<double>(options.steps);
    if (auto ok = step(static_cast<float>(rest / static_cast<double>(options.steps))); !ok)
      return Unexpected(ok.error());
    if ((i + 1) * kCheckpoints / options.steps == i * kCheckpoints / options.steps)
      continue;
    if (auto ok = loss.keepBest(learned, best); !ok)
      return Unexpected(ok.error());
  }
  return std::move(*best);
}

Result<TrainedWeights> learnRounding(DifferentiableLayer &layer, std::span<const TrainedSite> sites,
                                     std::span<const ConstMatrix> targets,
                                     const SignRoundOptions &options) {
  if (options.steps < 0 || !(options.heldOut > 0) || !(options.heldOut < 1) ||
      options.skippedRows < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "signround with {} steps, {} held out and {} rows skipped: expected 0 or more "
                     "steps, and a share between 0 and 1",
                     options.steps, options.heldOut, options.skippedRows);
  if (targets.size() < 2)
    return makeError(ErrorCode::InvalidArgument,
                     "signround on {} sequences: expected at least 2, one of which is held out; "
                     "calibrate on more samples",
                     targets.size());
  return RoundingLearner(layer, targets, options).run(sites);
}

} // namespace easyquant::numerics
