//===- Gradients.cpp - Gradients that sum over tokens ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Gradients.h"

#include "LinearAlgebra.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace easyquant::numerics {
namespace {

/// c = op(a) b, rows of c shared among threads in pieces of fixed height.
void product(ConstMatrix a, Transpose transposeA, ConstMatrix b, Matrix c, unsigned threads) {
  constexpr int64_t height = 96;
  parallelFor((c.rows + height - 1) / height, threads, [&](int64_t piece) {
    const int64_t first = piece * height, rows = std::min(height, c.rows - first);
    ConstMatrix part = transposeA == Transpose::Yes
                           ? ConstMatrix(a.data + first, a.rows, rows, a.stride)
                           : a.middleRows(first, rows);
    gemm(1, part, transposeA, b, Transpose::No, 0, c.middleRows(first, rows));
  });
}

void fillZero(Matrix rows) {
  for (int64_t i = 0; i < rows.rows; ++i)
    std::fill_n(rows.row(i), rows.columns, 0.0f);
}

/// A head's columns.
template <typename T> MatrixView<T> head(MatrixView<T> rows, int64_t index, int64_t width) {
  return {rows.data + index * width, rows.rows, width, rows.stride};
}

/// dw += sum over the rows and their pieces of dw.size() columns of dy (x - mean) / deviation.
void normWeightGradient(ConstMatrix dy, ConstMatrix x, double epsilon, bool centred,
                        std::span<float> dw) {
  const auto width = static_cast<int64_t>(dw.size());
  std::vector<double> sums(dw.size());
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t first = 0; first < x.columns; first += width) {
      const float *in = x.row(i) + first, *d = dy.row(i) + first;
      double mean = 0, squares = 0;
      for (int64_t j = 0; centred && j < width; ++j)
        mean += in[j] / static_cast<double>(width);
      for (int64_t j = 0; j < width; ++j)
        squares += (in[j] - mean) * (in[j] - mean);
      const double rate = 1 / std::sqrt(squares / static_cast<double>(width) + epsilon);
      for (int64_t j = 0; j < width; ++j)
        sums[j] += d[j] * (in[j] - mean) * rate;
    }
  std::copy(sums.begin(), sums.end(), dw.begin());
}

/// The gradients of one head: dq is written, dk and dv are added to.
class HeadGradient {
public:
  HeadGradient(const reference::AttentionParams &params, int64_t tokens, int64_t h)
      : sink(params.sinkLogits.empty() ? -INFINITY : params.sinkLogits[h]),
        scale(static_cast<float>(params.scale)), bound(static_cast<float>(params.bound)),
        window(params.window), p(kQueries * tokens), ds(kQueries * tokens),
        slopes(bound > 0 ? kQueries * tokens : 0) {}

  void run(ConstMatrix dy, ConstMatrix q, ConstMatrix k, ConstMatrix v, Matrix dq, Matrix dk,
           Matrix dv);

private:
  /// Queries whose probabilities are in memory at a time.
  static constexpr int64_t kQueries = 64;
  void tile(int64_t first, ConstMatrix dy, ConstMatrix q, ConstMatrix k, ConstMatrix v, Matrix dq,
            Matrix dk, Matrix dv);

  float sink; ///< a score without a value, which gets its part
  float scale, bound;
  int64_t window;
  std::vector<float> p, ds;
  std::vector<float> slopes; ///< of the bounded scores, if they are
};

} // namespace

void HeadGradient::run(ConstMatrix dy, ConstMatrix q, ConstMatrix k, ConstMatrix v, Matrix dq,
                       Matrix dk, Matrix dv) {
  for (int64_t first = 0; first < q.rows; first += kQueries) {
    const int64_t count = std::min(kQueries, q.rows - first);
    const int64_t begin = window > 0 ? std::max<int64_t>(0, first - window + 1) : 0;
    const int64_t seen = first + count - begin; // by any of them
    tile(first - begin, dy.middleRows(first, count), q.middleRows(first, count),
         k.middleRows(begin, seen), v.middleRows(begin, seen), dq.middleRows(first, count),
         dk.middleRows(begin, seen), dv.middleRows(begin, seen));
  }
}

/// A tile of queries, the first of which is token `first` of the keys.
void HeadGradient::tile(int64_t first, ConstMatrix dy, ConstMatrix q, ConstMatrix k, ConstMatrix v,
                        Matrix dq, Matrix dk, Matrix dv) {
  Matrix probability(p.data(), q.rows, k.rows), slope(ds.data(), q.rows, k.rows);
  gemm(scale, q, Transpose::No, k, Transpose::Yes, 0, probability);
  gemm(1, dy, Transpose::No, v, Transpose::Yes, 0, slope);
  for (int64_t i = 0; i < q.rows; ++i) {
    float *score = probability.row(i), *d = slope.row(i);
    const int64_t end = first + i + 1, begin = window > 0 ? std::max<int64_t>(0, end - window) : 0;
    float *ofBound = bound > 0 ? slopes.data() + i * k.rows : nullptr;
    for (int64_t j = begin; ofBound && j < end; ++j) {
      const float t = std::tanh(score[j] / bound);
      score[j] = bound * t;
      ofBound[j] = 1 - t * t;
    }
    const float most = std::max(sink, *std::max_element(score + begin, score + end));
    double sum = std::exp(sink - most), along = 0;
    for (int64_t j = begin; j < end; ++j)
      sum += score[j] = std::exp(score[j] - most);
    for (int64_t j = begin; j < end; ++j) {
      score[j] = static_cast<float>(score[j] / sum);
      along += static_cast<double>(d[j]) * score[j];
    }
    for (int64_t j = begin; j < end; ++j)
      d[j] = score[j] * (d[j] - static_cast<float>(along)) * (ofBound ? ofBound[j] : 1.0f);
    for (float *row : {score, d}) {
      std::fill(row, row + begin, 0.0f);
      std::fill(row + end, row + k.rows, 0.0f);
    }
  }
  gemm(1, probability, Transpose::Yes, dy, Transpose::No, 1, dv);
  gemm(scale, slope, Transpose::No, k, Transpose::No, 0, dq);
  gemm(scale, slope, Transpose::Yes, q, Transpose::No, 1, dk);
}

void linearInputGradient(ConstMatrix dy, ConstMatrix w, Matrix dx, unsigned threads) {
  product(dy, Transpose::No, w, dx, threads);
}

void linearWeightGradient(ConstMatrix dy, ConstMatrix x, Matrix dw, unsigned threads) {
  product(dy, Transpose::Yes, x, dw, threads);
}

void biasGradient(ConstMatrix dy, std::span<float> db) {
  std::vector<double> sums(db.size());
  for (int64_t i = 0; i < dy.rows; ++i)
    for (int64_t j = 0; j < dy.columns; ++j)
      sums[j] += dy(i, j);
  std::copy(sums.begin(), sums.end(), db.begin());
}

void rmsNormWeightGradient(ConstMatrix dy, ConstMatrix x, double epsilon, std::span<float> dw) {
  normWeightGradient(dy, x, epsilon, /*centred=*/false, dw);
}

void layerNormWeightGradient(ConstMatrix dy, ConstMatrix x, double epsilon, std::span<float> dw) {
  normWeightGradient(dy, x, epsilon, /*centred=*/true, dw);
}

/// Heads that share keys and values give a part of dk and dv each, added up in their order.
void attentionGradient(const reference::AttentionParams &params, ConstMatrix dy, ConstMatrix q,
                       ConstMatrix k, ConstMatrix v, Matrix dq, Matrix dk, Matrix dv,
                       unsigned threads) {
  const int64_t tokens = q.rows, width = params.headDim, group = params.heads / params.kvHeads;
  const int64_t size = tokens * width;
  std::vector<float> parts(2 * params.heads * size);
  auto part = [&](int64_t which, int64_t h) {
    return Matrix(parts.data() + (which * params.heads + h) * size, tokens, width);
  };
  parallelFor(params.heads, threads, [&](int64_t h) {
    const int64_t kv = h / group;
    HeadGradient(params, tokens, h)
        .run(head(dy, h, width), head(q, h, width), head(k, kv, width), head(v, kv, width),
             head(dq, h, width), part(0, h), part(1, h));
  });
  fillZero(dk);
  fillZero(dv);
  parallelFor(params.kvHeads, threads, [&](int64_t kv) {
    for (auto [which, sum] : {std::pair(0, head(dk, kv, width)), std::pair(1, head(dv, kv, width))})
      for (int64_t h = kv * group; h < (kv + 1) * group; ++h)
        for (int64_t i = 0; i < tokens; ++i)
          for (int64_t j = 0; j < width; ++j)
            sum(i, j) += part(which, h)(i, j);
  });
}

void receivedAttention(const reference::AttentionParams &params, ConstMatrix q, ConstMatrix k,
                       std::span<float> received, unsigned threads) {
  // y = P v: with dy = 1 every column of dv = P^T dy has the sums of P's columns.
  const int64_t ofQueries = q.rows * q.columns, ofKeys = k.rows * k.columns;
  const std::vector<float> ones(ofQueries, 1.0f), zeros(ofKeys);
  std::vector<float> unused(ofQueries + ofKeys), sums(ofKeys);
  const Matrix dq(unused.data(), q.rows, q.columns),
      dk(unused.data() + ofQueries, k.rows, k.columns), dv(sums.data(), k.rows, k.columns);
  attentionGradient(params, {ones.data(), q.rows, q.columns}, q, k,
                    {zeros.data(), k.rows, k.columns}, dq, dk, dv, threads);
  for (int64_t i = 0; i < k.rows; ++i) {
    double sum = 0;
    for (int64_t kv = 0; kv < params.kvHeads; ++kv)
      sum += dv(i, kv * params.headDim);
    received[i] = static_cast<float>(sum / static_cast<double>(params.heads));
  }
}

void convolutionGradient(ConstMatrix dy, ConstMatrix w, Matrix dx) {
  const int64_t width = w.columns;
  for (int64_t t = 0; t < dy.rows; ++t) {
    float *row = dx.row(t);
    std::fill_n(row, dy.columns, 0.0f);
    for (int64_t later = std::min(width - 1, dy.rows - 1 - t); later >= 0; --later)
      for (int64_t c = 0; c < dy.columns; ++c)
        row[c] += w(c, width - 1 - later) * dy(t + later, c);
  }
}

void siluConvolutionGradient(ConstMatrix dy, ConstMatrix w, ConstMatrix x,
                             std::span<const float> bias, Matrix dx) {
  const int64_t width = w.columns;
  std::vector<float> through(static_cast<size_t>(dy.rows * dy.columns));
  const Matrix slopes(through.data(), dy.rows, dy.columns);
  for (int64_t t = 0; t < dy.rows; ++t)
    for (int64_t c = 0; c < dy.columns; ++c) {
      double sum = bias.empty() ? 0.0 : bias[c];
      for (int64_t i = std::max<int64_t>(0, width - 1 - t); i < width; ++i)
        sum += static_cast<double>(w(c, i)) * x(t - width + 1 + i, c);
      const double s = 1 / (1 + std::exp(-sum));
      slopes(t, c) = static_cast<float>(dy(t, c) * s * (1 + sum * (1 - s)));
    }
  convolutionGradient(slopes, w, dx);
}

void embeddingGradient(ConstMatrix dy, std::span<const int32_t> tokens, Matrix table) {
  fillZero(table);
  for (int64_t i = 0; i < dy.rows; ++i)
    for (int64_t j = 0; j < dy.columns; ++j)
      table(tokens[i], j) += dy(i, j);
}

} // namespace easyquant::numerics
