//===- ExpertGradients.cpp - Gradients of mixtures of experts -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/ExpertGradients.h"

#include "easyquant/Numerics/Gradients.h"
#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cmath>

namespace easyquant::numerics {

/// Calls `body` with the number of each expert and its rows, of which there may be none.
template <typename Body>
static void forEachExpert(std::span<const int32_t> offsets, unsigned threads, Body body) {
  parallelFor(std::ssize(offsets) - 1, threads,
              [&](int64_t e) { body(e, offsets[e], offsets[e + 1] - offsets[e]); });
}

void expertInputGradient(ConstMatrix dy, ConstMatrix w, std::span<const int32_t> offsets, Matrix dx,
                         unsigned threads) {
  const int64_t outputs = dy.columns;
  forEachExpert(offsets, threads, [&](int64_t e, int64_t first, int64_t count) {
    if (count > 0)
      linearInputGradient(dy.middleRows(first, count), w.middleRows(e * outputs, outputs),
                          dx.middleRows(first, count), /*threads=*/1);
  });
}

void expertWeightGradient(ConstMatrix dy, ConstMatrix x, std::span<const int32_t> offsets,
                          Matrix dw, unsigned threads) {
  const int64_t outputs = dy.columns;
  forEachExpert(offsets, threads, [&](int64_t e, int64_t first, int64_t count) {
    const Matrix own = dw.middleRows(e * outputs, outputs);
    if (count > 0)
      return linearWeightGradient(dy.middleRows(first, count), x.middleRows(first, count), own,
                                  /*threads=*/1);
    for (int64_t i = 0; i < outputs; ++i)
      std::fill_n(own.row(i), own.columns, 0.0f);
  });
}

void weighChoices(ConstMatrix x, std::span<const int32_t> places, ConstMatrix weights, Matrix y) {
  for (int64_t i = 0; i < std::ssize(places); ++i) {
    const float weight = weights(i / weights.columns, i % weights.columns);
    for (int64_t k = 0; k < x.columns; ++k)
      y(places[i], k) = weight * x(places[i], k);
  }
}

static double dot(const float *a, const float *b, int64_t count) {
  double sum = 0;
  for (int64_t k = 0; k < count; ++k)
    sum += static_cast<double>(a[k]) * b[k];
  return sum;
}

void choiceWeightsGradient(ConstMatrix dy, ConstMatrix x, std::span<const int32_t> places,
                           Matrix dweights) {
  for (int64_t m = 0; m < dy.rows; ++m)
    for (int64_t j = 0; j < dweights.columns; ++j)
      dweights(m, j) =
          static_cast<float>(dot(dy.row(m), x.row(places[m * dweights.columns + j]), dy.columns));
}

static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void sharedExpertGradient(ConstMatrix dy, ConstMatrix shared, ConstMatrix gate, Matrix dshared,
                          Matrix dgate) {
  for (int64_t m = 0; m < dy.rows; ++m) {
    const double part = sigmoid(gate(m, 0));
    for (int64_t k = 0; k < dy.columns; ++k)
      dshared(m, k) = static_cast<float>(part * dy(m, k));
    dgate(m, 0) = static_cast<float>(part * (1 - part) * dot(dy.row(m), shared.row(m), dy.columns));
  }
}

/// With c_j the constant factor of choice j and g_j = c_j dw_j, and over the experts that share:
///
///      softmax            w_j = c_j p_j          dl_i = p_i (g_i - sum_j g_j p_j)
///      sigmoid            w_j = c_j s_j          dl_j = g_j s_j (1 - s_j)
///      sigmoid, parts     w_j = c_j s_j / S      dl_j = (g_j - sum_i g_i s_i / S) / S s_j (1 -
///      s_j)
void routeGradient(ConstMatrix dweights, ConstMatrix logits, std::span<const int32_t> offsets,
                   std::span<const int32_t> places, const Router &router, Matrix dlogits) {
  const int64_t experts = logits.columns, chosen = dweights.columns;
  std::vector<double> g(experts), score(experts);
  std::vector<bool> shares(experts);
  for (int64_t m = 0; m < logits.rows; ++m) {
    std::ranges::fill(g, 0.0);
    std::fill(shares.begin(), shares.end(), !router.sigmoid && !router.renormalize);
    for (int64_t j = 0; j < chosen; ++j) {
      const int64_t e =
          std::ranges::upper_bound(offsets, places[m * chosen + j]) - offsets.begin() - 1;
      g[e] = router.scale * (router.factors.empty() ? 1.0 : router.factors[e]) * dweights(m, j);
      shares[e] = true;
    }
    double most = -INFINITY, sum = router.sigmoid ? 1e-20 : 0, along = 0;
    for (int64_t e = 0; e < experts; ++e)
      if (shares[e])
        most = std::max<double>(most, logits(m, e));
    for (int64_t e = 0; e < experts; ++e)
      if (shares[e])
        sum += score[e] = router.sigmoid ? sigmoid(logits(m, e)) : std::exp(logits(m, e) - most);
    const bool areParts = !router.sigmoid || router.renormalize;
    for (int64_t e = 0; e < experts; ++e)
      if (shares[e] && areParts)
        along += g[e] * score[e] / sum;
    for (int64_t e = 0; e < experts; ++e) {
      const double slope = !shares[e]       ? 0
                           : router.sigmoid ? score[e] * (1 - score[e]) / (areParts ? sum : 1)
                                            : score[e] / sum;
      dlogits(m, e) = static_cast<float>(slope * (g[e] - along));
    }
  }
}

} // namespace easyquant::numerics
