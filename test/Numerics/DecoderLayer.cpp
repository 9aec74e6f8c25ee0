//===- DecoderLayer.cpp - A decoder layer and its gradients ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "DecoderLayer.h"

#include "LinearAlgebra.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace easyquant::numerics {
namespace {

/// c = alpha op(a) op(b) + beta c, rows of c shared among threads in pieces of fixed height.
template <typename T>
void product(T alpha, MatrixView<const T> a, Transpose transposeA, MatrixView<const T> b,
             Transpose transposeB, T beta, MatrixView<T> c, unsigned threads) {
  constexpr int64_t height = 64;
  parallelFor((c.rows + height - 1) / height, threads, [&](int64_t piece) {
    const int64_t first = piece * height, rows = std::min(height, c.rows - first);
    MatrixView<const T> part = transposeA == Transpose::Yes
                                   ? MatrixView<const T>(a.data + first, a.rows, rows, a.stride)
                                   : a.middleRows(first, rows);
    gemm(alpha, part, transposeA, b, transposeB, beta, c.middleRows(first, rows));
  });
}

template <typename T> T sigmoid(T x) { return 1 / (1 + std::exp(-x)); }

/// gelu(x) and its derivative.
template <typename T> std::pair<T, T> gelu(T x, DecoderActivation kind) {
  if (kind == DecoderActivation::GeluErf) {
    T cdf = T(0.5) * (1 + std::erf(x / std::numbers::sqrt2_v<T>));
    T density = std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi_v<T>);
    return {x * cdf, cdf + x * density};
  }
  const T rate = std::sqrt(2 / std::numbers::pi_v<T>), cubic = T(0.044715);
  T t = std::tanh(rate * (x + cubic * x * x * x));
  T slope = (1 - t * t) * rate * (1 + 3 * cubic * x * x);
  return {T(0.5) * x * (1 + t), T(0.5) * (1 + t) + T(0.5) * x * slope};
}

/// A head's columns.
template <typename T> MatrixView<T> head(MatrixView<T> rows, int64_t index, int64_t width) {
  return {rows.data + index * width, rows.rows, width, rows.stride};
}

} // namespace

template <typename T>
MatrixView<T> DecoderLayer<T>::buffer(std::vector<T> &memory, int64_t rows, int64_t columns) {
  memory.resize(rows * columns);
  return {memory.data(), rows, columns};
}

//===- Pieces -------------------------------------------------------------===//

template <typename T>
void DecoderLayer<T>::linear(const DecoderWeights<T> &layer, DecoderLinear which,
                             MatrixView<const T> x, MatrixView<T> y) {
  product<T>(1, x, Transpose::No, layer.weights[which], Transpose::Yes, 0, y, threads);
  if (const T *bias = layer.biases[which])
    for (int64_t i = 0; i < y.rows; ++i)
      for (int64_t j = 0; j < y.columns; ++j)
        y(i, j) += bias[j];
}

template <typename T>
void DecoderLayer<T>::normalize(MatrixView<const T> x, const T *weight, const T *bias,
                                std::vector<T> &rates, MatrixView<T> y) {
  const bool centered = shape.norm == DecoderNorm::Layer;
  rates.assign(2 * x.rows, T(0)); // rate and mean of each row
  for (int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, squares = 0;
    for (int64_t j = 0; centered && j < x.columns; ++j)
      mean += x(i, j);
    mean /= static_cast<double>(x.columns);
    for (int64_t j = 0; j < x.columns; ++j)
      squares += (x(i, j) - mean) * (x(i, j) - mean);
    squares /= static_cast<double>(x.columns);
    T rate = static_cast<T>(1 / std::sqrt(squares + shape.epsilon));
    rates[2 * i] = rate;
    rates[2 * i + 1] = static_cast<T>(mean);
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = (x(i, j) - rates[2 * i + 1]) * rate * weight[j] + (bias ? bias[j] : T(0));
  }
}

/// With z = (x - mean) rate and g = dy weight, both of C columns:
/// dx += rate (g - z sum(g z) / C - sum(g) / C), the last term of LayerNorm only.
template <typename T>
void DecoderLayer<T>::normalizeBackward(MatrixView<const T> x, const T *weight,
                                        const std::vector<T> &rates, MatrixView<const T> dy,
                                        MatrixView<T> dx) {
  const bool centered = shape.norm == DecoderNorm::Layer;
  for (int64_t i = 0; i < x.rows; ++i) {
    const T rate = rates[2 * i], mean = rates[2 * i + 1];
    double along = 0, sum = 0;
    for (int64_t j = 0; j < x.columns; ++j) {
      double g = static_cast<double>(dy(i, j)) * weight[j];
      along += g * (x(i, j) - mean) * rate;
      sum += g;
    }
    along /= static_cast<double>(x.columns);
    sum = centered ? sum / static_cast<double>(x.columns) : 0;
    for (int64_t j = 0; j < x.columns; ++j)
      dx(i, j) += rate * static_cast<T>(static_cast<double>(dy(i, j)) * weight[j] -
                                        (x(i, j) - mean) * rate * along - sum);
  }
}

/// direction 1 rotates, -1 rotates back: the transpose of a rotation.
template <typename T>
void DecoderLayer<T>::rotate(const DecoderWeights<T> &layer, MatrixView<T> rows, T direction) {
  if (!layer.rope.data)
    return;
  const int64_t half = shape.headDim / 2;
  for (int64_t t = 0; t < rows.rows; ++t)
    for (int64_t first = 0; first < rows.columns; first += shape.headDim)
      for (int64_t i = 0; i < half; ++i) {
        T cosine = layer.rope(t, 2 * i), sine = direction * layer.rope(t, 2 * i + 1);
        T &a = rows(t, first + i), &b = rows(t, first + half + i);
        T turned = a * cosine - b * sine;
        b = b * cosine + a * sine;
        a = turned;
      }
}

template <typename T> void DecoderLayer<T>::attend() {
  const int64_t width = shape.headDim, group = shape.heads / shape.kvHeads;
  MatrixView<const T> queries = buffer(q, tokens, shape.heads * width);
  MatrixView<const T> keys = buffer(k, tokens, shape.kvHeads * width);
  MatrixView<const T> values = buffer(v, tokens, shape.kvHeads * width);
  MatrixView<T> out = buffer(attended, tokens, shape.heads * width);
  buffer(scores, shape.heads * tokens, tokens);
  parallelFor(shape.heads, threads, [&](int64_t h) {
    MatrixView<T> p(scores.data() + h * tokens * tokens, tokens, tokens);
    gemm(static_cast<T>(shape.attentionScale), head(queries, h, width), Transpose::No,
         head(keys, h / group, width), Transpose::Yes, T(0), p);
    for (int64_t i = 0; i < tokens; ++i) {
      T most = *std::max_element(p.row(i), p.row(i) + i + 1);
      double sum = 0;
      for (int64_t j = 0; j <= i; ++j)
        sum += p(i, j) = std::exp(p(i, j) - most);
      for (int64_t j = 0; j < tokens; ++j)
        p(i, j) = j <= i ? static_cast<T>(p(i, j) / sum) : T(0);
    }
    gemm(T(1), MatrixView<const T>(p), Transpose::No, head(values, h / group, width), Transpose::No,
         T(0), head(out, h, width));
  });
}

/// dv = P^T do, dP = do v^T, dS = P (dP - rowsum(dP P)), dq = c dS k, dk = c dS^T q. The heads of a
/// group share k and v: a piece is a group.
template <typename T>
void DecoderLayer<T>::attendBackward(MatrixView<const T> dOut, MatrixView<T> dq, MatrixView<T> dk,
                                     MatrixView<T> dv) {
  const int64_t width = shape.headDim, group = shape.heads / shape.kvHeads;
  const T scale = static_cast<T>(shape.attentionScale);
  MatrixView<const T> queries = buffer(q, tokens, shape.heads * width);
  MatrixView<const T> keys = buffer(k, tokens, shape.kvHeads * width);
  MatrixView<const T> values = buffer(v, tokens, shape.kvHeads * width);
  parallelFor(shape.kvHeads, threads, [&](int64_t kv) {
    std::vector<T> memory(tokens * tokens);
    MatrixView<T> ds(memory.data(), tokens, tokens);
    for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
      const T beta = h == kv * group ? 0 : 1;
      MatrixView<const T> p(scores.data() + h * tokens * tokens, tokens, tokens);
      MatrixView<const T> d = head(dOut, h, width);
      gemm(T(1), p, Transpose::Yes, d, Transpose::No, beta, head(dv, kv, width));
      gemm(T(1), d, Transpose::No, head(values, kv, width), Transpose::Yes, T(0), ds);
      for (int64_t i = 0; i < tokens; ++i) {
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j)
          sum += static_cast<double>(ds(i, j)) * p(i, j);
        for (int64_t j = 0; j < tokens; ++j)
          ds(i, j) = p(i, j) * (ds(i, j) - static_cast<T>(sum));
      }
      gemm(scale, MatrixView<const T>(ds), Transpose::No, head(keys, kv, width), Transpose::No,
           T(0), head(dq, h, width));
      gemm(scale, MatrixView<const T>(ds), Transpose::Yes, head(queries, h, width), Transpose::No,
           beta, head(dk, kv, width));
    }
  });
}

//===- The layer ----------------------------------------------------------===//

template <typename T>
void DecoderLayer<T>::forward(const DecoderWeights<T> &layer, MatrixView<const T> x,
                              MatrixView<T> y) {
  tokens = x.rows;
  const int64_t width = shape.headDim;
  MatrixView<T> n1 = buffer(normed1, tokens, shape.hidden);
  normalize(x, layer.norm1, layer.norm1Bias, rates1, n1);
  MatrixView<T> queries = buffer(q, tokens, shape.heads * width);
  MatrixView<T> keys = buffer(k, tokens, shape.kvHeads * width);
  linear(layer, kQuery, n1, queries);
  linear(layer, kKey, n1, keys);
  linear(layer, kValue, n1, buffer(v, tokens, shape.kvHeads * width));
  rotate(layer, queries, 1);
  rotate(layer, keys, 1);
  attend();
  MatrixView<T> m = buffer(middle, tokens, shape.hidden);
  linear(layer, kOutput, buffer(attended, tokens, shape.heads * width), m);
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < shape.hidden; ++j)
      m(i, j) += x(i, j);

  MatrixView<T> n2 = buffer(normed2, tokens, shape.hidden);
  normalize(m, layer.norm2, layer.norm2Bias, rates2, n2);
  MatrixView<T> u = buffer(up, tokens, shape.intermediate);
  linear(layer, kUp, n2, u);
  MatrixView<T> s = buffer(inner, tokens, shape.intermediate);
  if (shape.activation == DecoderActivation::SiluMul) {
    linear(layer, kGate, n2, buffer(gate, tokens, shape.intermediate));
    for (size_t i = 0; i < inner.size(); ++i)
      inner[i] = gate[i] * sigmoid(gate[i]) * up[i];
  } else {
    for (size_t i = 0; i < inner.size(); ++i)
      inner[i] = gelu(up[i], shape.activation).first;
  }
  linear(layer, kDown, s, y);
  for (int64_t i = 0; i < tokens; ++i)
    for (int64_t j = 0; j < shape.hidden; ++j)
      y(i, j) += m(i, j);
}

template <typename T>
void DecoderLayer<T>::backward(const DecoderWeights<T> &layer, MatrixView<const T> dy,
                               const DecoderGradients<T> &gradients) {
  const int64_t width = shape.headDim, hidden = shape.hidden;
  auto weightGradient = [&](DecoderLinear which, MatrixView<const T> dOut, MatrixView<const T> in) {
    if (gradients[which].data)
      product<T>(1, dOut, Transpose::Yes, in, Transpose::No, 1, gradients[which], threads);
  };
  auto inputGradient = [&](DecoderLinear which, MatrixView<const T> dOut, T beta,
                           MatrixView<T> dIn) {
    product<T>(1, dOut, Transpose::No, layer.weights[which], Transpose::No, beta, dIn, threads);
  };
  std::vector<T> m0, m1, m2, m3, m4, m5;

  // y = m + down(inner)
  MatrixView<T> dInner = buffer(m0, tokens, shape.intermediate);
  weightGradient(kDown, dy, buffer(inner, tokens, shape.intermediate));
  inputGradient(kDown, dy, 0, dInner);
  MatrixView<const T> n2 = buffer(normed2, tokens, hidden);
  MatrixView<T> dn = buffer(m1, tokens, hidden);
  if (shape.activation == DecoderActivation::SiluMul) {
    MatrixView<T> dGate = buffer(m2, tokens, shape.intermediate);
    for (size_t i = 0; i < m0.size(); ++i) {
      T s = sigmoid(gate[i]);
      dGate.data[i] = m0[i] * up[i] * s * (1 + gate[i] * (1 - s));
      m0[i] *= gate[i] * s;
    }
    weightGradient(kGate, dGate, n2);
    inputGradient(kGate, dGate, 0, dn);
  } else {
    std::fill(m1.begin(), m1.end(), T(0));
    for (size_t i = 0; i < m0.size(); ++i)
      m0[i] *= gelu(up[i], shape.activation).second;
  }
  weightGradient(kUp, dInner, n2);
  inputGradient(kUp, dInner, 1, dn);
  MatrixView<T> dm = buffer(m3, tokens, hidden);
  for (int64_t i = 0; i < tokens; ++i)
    std::copy_n(dy.row(i), hidden, dm.row(i));
  normalizeBackward(buffer(middle, tokens, hidden), layer.norm2, rates2, dn, dm);

  // m = x + o(attended); x is given, so nothing goes further back than q, k and v.
  weightGradient(kOutput, dm, buffer(attended, tokens, shape.heads * width));
  if (!gradients[kQuery].data && !gradients[kKey].data && !gradients[kValue].data)
    return;
  MatrixView<T> dAttended = buffer(m0, tokens, shape.heads * width);
  inputGradient(kOutput, dm, 0, dAttended);
  MatrixView<T> dq = buffer(m2, tokens, shape.heads * width);
  MatrixView<T> dk = buffer(m4, tokens, shape.kvHeads * width);
  MatrixView<T> dv = buffer(m5, tokens, shape.kvHeads * width);
  attendBackward(dAttended, dq, dk, dv);
  rotate(layer, dq, -1);
  rotate(layer, dk, -1);
  MatrixView<const T> n1 = buffer(normed1, tokens, hidden);
  weightGradient(kQuery, dq, n1);
  weightGradient(kKey, dk, n1);
  weightGradient(kValue, dv, n1);
}

template class DecoderLayer<float>;
template class DecoderLayer<double>;

} // namespace easyquant::numerics
