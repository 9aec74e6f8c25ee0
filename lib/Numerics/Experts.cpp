//===- Experts.cpp - Which experts compute which rows ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Experts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

using namespace easyquant::numerics;

Routing easyquant::numerics::route(ConstMatrix logits, const Router &router) {
  const int64_t rows = logits.rows, experts = logits.columns, chosen = router.chosen;
  Routing routing;
  routing.offsets.resize(experts + 1);
  std::vector<int32_t> expertOf;
  std::vector<int32_t> order(experts);
  for (int64_t row = 0; row < rows; ++row) {
    auto logit = [&](int64_t expert) { return static_cast<double>(logits(row, expert)); };
    auto score = [&](int64_t expert) { return 1 / (1 + std::exp(-logit(expert))); };
    auto key = [&](int64_t expert) {
      if (!router.sigmoid)
        return logit(expert);
      return score(expert) + (router.bias.empty() ? 0.0 : router.bias[expert]);
    };
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(
        order, [&](int32_t a, int32_t b) { return key(a) != key(b) ? key(a) > key(b) : a < b; });
    auto part = [&](int64_t choice) {
      return router.sigmoid ? score(order[choice])
                            : std::exp(logit(order[choice]) - logit(order[0]));
    };
    double sum = router.sigmoid ? 1e-20 : 0;
    for (int64_t i = 0; i < (router.sigmoid || router.renormalize ? chosen : experts); ++i)
      sum += part(i);
    if (router.sigmoid && !router.renormalize)
      sum = 1;
    for (int64_t choice = 0; choice < chosen; ++choice) {
      expertOf.push_back(order[choice]);
      const double factor = router.factors.empty() ? 1.0 : router.factors[order[choice]];
      routing.weights.push_back(static_cast<float>(factor * router.scale * part(choice) / sum));
      ++routing.offsets[order[choice] + 1];
    }
  }
  std::partial_sum(routing.offsets.begin(), routing.offsets.end(), routing.offsets.begin());
  std::vector<int32_t> next = routing.offsets;
  routing.order.resize(expertOf.size());
  for (size_t i = 0; i < expertOf.size(); ++i) {
    const int32_t place = next[expertOf[i]]++;
    routing.places.push_back(place);
    routing.order[place] = static_cast<int32_t>(static_cast<int64_t>(i) / chosen);
  }
  return routing;
}

void easyquant::numerics::combine(ConstMatrix x, const Routing &routing, Matrix y) {
  const int64_t chosen = std::ssize(routing.places) / y.rows;
  for (int64_t row = 0; row < y.rows; ++row)
    for (int64_t column = 0; column < y.columns; ++column) {
      double sum = 0;
      for (int64_t i = row * chosen; i < (row + 1) * chosen; ++i)
        sum += static_cast<double>(routing.weights[i]) * x(routing.places[i], column);
      y(row, column) = static_cast<float>(sum);
    }
}
