//===- GatedDelta.cpp - Gradients of gated delta nets ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Back through the tokens of a head. States before the tokens are computed again, a run of tokens
// at a time from the one that it begins with, so that memory grows with the runs.
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/GatedDelta.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace easyquant::numerics {
namespace {

constexpr int64_t kRun = 32;            ///< tokens
constexpr double kLengthEpsilon = 1e-6; ///< under the root of lengths, as in lm.gated_delta

/// One head of values.
class DeltaHead {
public:
  DeltaHead(const GatedDelta &net, int64_t head, int64_t keyHead, const DeltaRows<const float> &in)
      : in(in), head(head), keyDim(in.key.columns / net.keyHeads),
        valueDim(in.value.columns / net.valueHeads), firstKey(keyHead * keyDim),
        rate(std::exp(static_cast<double>(net.logRate[head]))), bias(net.bias[head]), k(keyDim),
        q(keyDim), error(valueDim), dk(keyDim), dq(keyDim), through(valueDim) {}

  /// Adds to the gradients of its key head, and sets its own.
  void differentiate(ConstMatrix dy, const DeltaRows<float> &out);

private:
  using State = std::vector<float>; ///< keyDim rows of valueDim

  /// The scalars and unit vectors of a token.
  void load(int64_t token);
  /// The state behind the token that is loaded.
  void step(int64_t token, State &state);
  void stepBack(int64_t token, ConstMatrix dy, const State &before, const DeltaRows<float> &out);
  /// Through the length: adds the gradient of x, whose unit vector is u.
  static void addThroughLength(const float *x, double length, std::span<const float> du,
                               double scale, float *dx);

  const DeltaRows<const float> &in;
  int64_t head, keyDim, valueDim, firstKey;
  double rate, bias;
  double decay = 0, slope = 0, strength = 0, lengthOfKey = 0, lengthOfQuery = 0;
  std::vector<float> k, q, error, dk, dq, through;
  State gradient; ///< of the state behind the token
};

double unitInto(const float *x, double scale, std::span<float> unit) {
  double squares = kLengthEpsilon;
  for (size_t i = 0; i < unit.size(); ++i)
    squares += static_cast<double>(x[i]) * x[i];
  const double length = std::sqrt(squares);
  for (size_t i = 0; i < unit.size(); ++i)
    unit[i] = static_cast<float>(x[i] * scale / length);
  return length;
}

double logistic(double x) { return 1 / (1 + std::exp(-x)); }

void DeltaHead::load(int64_t token) {
  lengthOfKey = unitInto(in.key.row(token) + firstKey, 1, k);
  lengthOfQuery =
      unitInto(in.query.row(token) + firstKey, 1 / std::sqrt(static_cast<double>(keyDim)), q);
  const double a = in.decay(token, head) + bias;
  decay = std::exp(-rate * (std::max(a, 0.0) + std::log1p(std::exp(-std::abs(a)))));
  slope = -rate * logistic(a) * decay;
  strength = logistic(in.strength(token, head));
}

void DeltaHead::step(int64_t token, State &state) {
  const auto kept = static_cast<float>(decay), by = static_cast<float>(strength);
  std::copy_n(in.value.row(token) + head * valueDim, valueDim, error.begin());
  for (int64_t i = 0; i < keyDim; ++i)
    for (int64_t j = 0; j < valueDim; ++j) {
      float &s = state[i * valueDim + j];
      s *= kept;
      error[j] -= s * k[i];
    }
  for (int64_t i = 0; i < keyDim; ++i)
    for (int64_t j = 0; j < valueDim; ++j)
      state[i * valueDim + j] += k[i] * by * error[j];
}

void DeltaHead::stepBack(int64_t token, ConstMatrix dy, const State &before,
                         const DeltaRows<float> &out) {
  const auto by = static_cast<float>(strength);
  State after = before;
  step(token, after); // and the error
  const float *d = dy.row(token) + head * valueDim;
  std::ranges::fill(through, 0.0f);
  for (int64_t i = 0; i < keyDim; ++i) {
    float forQuery = 0, forKey = 0;
    for (int64_t j = 0; j < valueDim; ++j) {
      float &g = gradient[i * valueDim + j];
      g += q[i] * d[j];
      forQuery += after[i * valueDim + j] * d[j];
      forKey += g * by * error[j];
      through[j] += g * k[i];
    }
    dq[i] = forQuery;
    dk[i] = forKey;
  }
  double ofStrength = 0, ofDecay = 0;
  float *dv = out.value.row(token) + head * valueDim;
  for (int64_t j = 0; j < valueDim; ++j) {
    ofStrength += static_cast<double>(through[j]) * error[j];
    dv[j] = by * through[j];
  }
  const auto kept = static_cast<float>(decay);
  for (int64_t i = 0; i < keyDim; ++i) {
    float forKey = 0, along = 0;
    for (int64_t j = 0; j < valueDim; ++j) {
      float &g = gradient[i * valueDim + j];
      const float s = before[i * valueDim + j];
      g -= k[i] * dv[j];
      forKey += kept * s * dv[j];
      along += g * s;
      g *= kept;
    }
    dk[i] -= forKey;
    ofDecay += along;
  }
  out.decay(token, head) = static_cast<float>(ofDecay * slope);
  out.strength(token, head) = static_cast<float>(ofStrength * strength * (1 - strength));
  addThroughLength(in.key.row(token) + firstKey, lengthOfKey, dk, 1, out.key.row(token) + firstKey);
  addThroughLength(in.query.row(token) + firstKey, lengthOfQuery, dq,
                   1 / std::sqrt(static_cast<double>(keyDim)), out.query.row(token) + firstKey);
}

void DeltaHead::addThroughLength(const float *x, double length, std::span<const float> du,
                                 double scale, float *dx) {
  double along = 0;
  for (size_t i = 0; i < du.size(); ++i)
    along += static_cast<double>(x[i]) * du[i];
  along /= length * length;
  for (size_t i = 0; i < du.size(); ++i)
    dx[i] += static_cast<float>(scale / length * (du[i] - x[i] * along));
}

void DeltaHead::differentiate(ConstMatrix dy, const DeltaRows<float> &out) {
  const int64_t tokens = dy.rows;
  std::vector<State> begins; // before the first token of each run
  State state(static_cast<size_t>(keyDim * valueDim));
  for (int64_t token = 0; token < tokens; ++token) {
    if (token % kRun == 0)
      begins.push_back(state);
    load(token);
    step(token, state);
  }
  gradient.assign(state.size(), 0.0f);
  for (int64_t run = std::ssize(begins) - 1; run >= 0; --run) {
    const int64_t first = run * kRun, last = std::min(first + kRun, tokens) - 1;
    std::vector<State> before = {std::move(begins[run])};
    for (int64_t token = first; token < last; ++token) {
      before.push_back(before.back());
      load(token);
      step(token, before.back());
    }
    for (int64_t token = last; token >= first; --token) {
      load(token);
      stepBack(token, dy, before[token - first], out);
    }
  }
}

} // namespace

void gatedDeltaGradient(const GatedDelta &net, ConstMatrix dy, const DeltaRows<const float> &in,
                        const DeltaRows<float> &out, unsigned threads) {
  const int64_t shared = net.valueHeads / net.keyHeads, keyDim = in.key.columns / net.keyHeads;
  parallelFor(net.keyHeads, threads, [&](int64_t keyHead) {
    for (int64_t token = 0; token < dy.rows; ++token)
      for (const Matrix &rows : {out.query, out.key})
        std::fill_n(rows.row(token) + keyHead * keyDim, keyDim, 0.0f);
    for (int64_t i = 0; i < shared; ++i) {
      const int64_t head = net.tiled ? i * net.keyHeads + keyHead : keyHead * shared + i;
      DeltaHead(net, head, keyHead, in).differentiate(dy, out);
    }
  });
}

} // namespace easyquant::numerics
