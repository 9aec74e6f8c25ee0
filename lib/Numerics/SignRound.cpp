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
  std::vector<ScaleUnits> units;               ///< by slice
};

/// One slice: a step of the given rate (0: none), then its codes and what they stand for.
struct SliceStep {
  const float *w, *gradient;
  float *v, *rounded;
  int8_t *codes;
  int64_t count;
  float scale; ///< a s
  int32_t zeroPoint;
  float minimum;
  const Scheme *scheme;
};

/// What a weight with its offset becomes, in units of a s; is it not clamped?
struct Placed {
  Rounded rounded;
  bool inside;
};

struct IntegerPlacer {
  float lo, hi;
  int32_t zeroPoint;

  EASYQUANT_INLINE Placed place(float steps, float offset) const {
    const float place = steps + offset;
    const int32_t nearest = roundClamped(place, lo, hi);
    return {{nearest + zeroPoint, static_cast<float>(nearest)}, place >= lo && place <= hi};
  }
};

template <int bits> struct TablePlacer {
  using Codec = TableCodec<bits>;
  Codec codec;

  EASYQUANT_INLINE Placed place(float steps, float offset) const {
    constexpr int last = Codec::kSize - 1;
    // The two neighbours; the outermost ones of what lies beyond.
    int32_t index = 0;
    float low = codec.table[0], high = codec.table[1], middle = codec.middles[0];
    for (int i = 1; i < last; ++i) {
      const bool isAbove = steps >= codec.table[i];
      index += isAbove;
      low = isAbove ? codec.table[i] : low;
      high = isAbove ? codec.table[i + 1] : high;
      middle = isAbove ? codec.middles[i] : middle;
    }
    const float place = steps + offset * (high - low);
    const bool isUp = place > middle; // TableCodec's, without an offset
    const bool isBelow = low == codec.table[0] && place < low;
    const bool isBeyond = high == codec.table[last] && place > high;
    return {{index + isUp - Codec::kSize / 2, isUp ? high : low}, !(isBelow | isBeyond)};
  }
};

/// body(placer) with that of a slice, whose scheme checkRoundingIsLearned lets through.
template <typename Body> EASYQUANT_INLINE auto withPlacer(const SliceStep &slice, Body &&body) {
  const Scheme &scheme = *slice.scheme;
  if (scheme.codes == CodeFormat::Table)
    switch (scheme.bits) {
    case 2:
      return body(TablePlacer<2>{TableCodec<2>::of(*scheme.table)});
    case 3:
      return body(TablePlacer<3>{TableCodec<3>::of(*scheme.table)});
    default:
      return body(TablePlacer<4>{TableCodec<4>::of(*scheme.table)});
    }
  const CodeRange range = codeRange(scheme);
  return body(IntegerPlacer{static_cast<float>(range.min - slice.zeroPoint),
                            static_cast<float>(range.max - slice.zeroPoint), slice.zeroPoint});
}

/// The gradients of offsets and factor; moves the offsets.
template <typename Placer>
EASYQUANT_INLINE double moveOffsetsBy(const Placer &placer, const SliceStep &slice, float rate) {
  constexpr int64_t lanes = 8, chunk = 64;
  double sums[lanes] = {};
  const float up = slice.scale < 0 ? -1.0f : 1.0f; // where a code more takes the weight
  // Sums apart from the rest, and nothing that may overlap: both loops become vector code.
  float ofFactor[chunk];
  for (int64_t first = 0; first < slice.count; first += chunk) {
    const int64_t count = std::min(chunk, slice.count - first);
    const float *__restrict w = slice.w + first, *__restrict gradient = slice.gradient + first;
    float *__restrict v = slice.v + first;
    for (int64_t i = 0; i < count; ++i) {
      const float steps = (w[i] - slice.minimum) / slice.scale;
      const auto [rounded, inside] = placer.place(steps, v[i]);
      ofFactor[i] = rounded.value - (inside ? steps : 0.0f);
      const float sign = gradient[i] > 0 ? up : gradient[i] < 0 ? -up : 0.0f;
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
  return total * up;
}

EASYQUANT_VECTOR_CLONES
double moveOffsets(const SliceStep &slice, float rate) {
  return withPlacer(slice, [&](const auto &placer) __attribute__((always_inline)) {
    return moveOffsetsBy(placer, slice, rate);
  });
}

template <typename Placer>
EASYQUANT_INLINE void roundSliceBy(const Placer placer, const SliceStep &slice) {
  const float *__restrict w = slice.w, *__restrict v = slice.v;
  float *__restrict rounded = slice.rounded;
  int8_t *__restrict codes = slice.codes;
  const int64_t count = slice.count;
  // Codes, which are bytes, might lie over what is not local.
  const float scale = slice.scale, minimum = slice.minimum;
  for (int64_t i = 0; i < count; ++i) {
    const Rounded nearest = placer.place((w[i] - minimum) / scale, v[i]).rounded;
    codes[i] = static_cast<int8_t>(nearest.code);
    rounded[i] = scale * nearest.value + minimum;
  }
}
EASYQUANT_VECTOR_CLONES
void roundSlice(const SliceStep &slice) {
  withPlacer(slice, [&](const auto &placer)
                        __attribute__((always_inline)) { roundSliceBy(placer, slice); });
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
  if (auto ok = checkRoundingIsLearned(site.scheme); !ok)
    return ok;
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
  weight.units = unitsOf(weight.codes.params, site.scheme);
  weight.factors.assign(weight.scales.size(), 1.0f);
  for (auto *each : {&weight.rounded, &weight.offsets, &weight.gradient})
    each->resize(weight.values.size());
  gradients.push_back({weight.gradient.data(), w.rows, w.columns});
  learned.push_back(std::move(weight)); // the vectors keep their memory
  return {};
}

void RoundingLearner::step(Learned &weight, float rate) const {
  QuantizedMatrix &q = weight.codes;
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
                        zeroPointOf(q.scheme, q.params, p),
                        q.scheme.minima ? q.params.minima[p] : 0,
                        &q.scheme};
        if (rate > 0) {
          const double slope = moveOffsets(slice, rate);
          const float sign = static_cast<float>((slope > 0) - (slope < 0));
          factor = std::clamp(factor - rate / 4 * sign, kLeastFactor, kLargestFactor);
          const ScaleUnits units = weight.units[p];
          const float nearest =
              nearestScale(factor * weight.scales[p] / units.scale, q.scheme, units);
          if (nearest != 0)
            slice.scale = scale = nearest;
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

Result<void> checkRoundingIsLearned(const Scheme &scheme) {
  // FP8 and FP4 stay out: a scale that is a power of two, as MXFP4's, cannot move a little.
  if (!scheme.isInteger() && scheme.codes != CodeFormat::Table)
    return makeError(ErrorCode::InvalidArgument,
                     "signround of {}: it learns which of two integers, or of two values of a "
                     "table, a weight becomes; take gptq or lkd",
                     toString(scheme));
  if (scheme.granularity == Granularity::Tensor)
    return makeError(ErrorCode::InvalidArgument,
                     "signround of {}: it learns a range of each row or group; take gptq or lkd",
                     toString(scheme));
  return {};
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
                     "calibrate on more or longer samples",
                     targets.size());
  return RoundingLearner(layer, targets, options).run(sites);
}

} // namespace easyquant::numerics
