//===- Gptq.cpp - Rounding that corrects its own errors -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Gptq.h"

#include "Codec.h"
#include "LinearAlgebra.h"

#include "easyquant/Support/Parallel.h"

#include <algorithm>
#include <numeric>

namespace easyquant::numerics {
namespace {

//===- Factoring ----------------------------------------------------------===//

/// U = R^-1 where H = R R^T and R is upper triangular, for then H^-1 = U^T U. Reversing rows and
/// columns makes R the lower factor that Cholesky finds; no inverse of H is ever formed. False when
/// that is not possible in T.
template <typename T>
bool factorDamped(ConstMatrix h, const GptqFactor &factor, double damping, unsigned threads,
                  std::vector<T> &upper) {
  const int64_t n = h.rows;
  std::vector<T> lower(n * n);
  parallelFor(n, threads, [&](int64_t i) {
    int64_t row = factor.order[n - 1 - i];
    for (int64_t j = 0; j <= i; ++j) {
      int64_t column = factor.order[n - 1 - j];
      bool dead = factor.dead[row] || factor.dead[column];
      lower[i * n + j] = dead ? T(0) : T(h(row, column));
    }
    lower[i * n + i] = static_cast<T>((factor.dead[row] ? 1.0 : h(row, row)) + damping);
  });
  if (!cholesky(lower.data(), n, threads))
    return false;
  upper.resize(n * n);
  invertLowerTriangle(lower.data(), n, upper.data(), threads);
  std::reverse(upper.begin(), upper.end());
  auto isFinite = [](T v) { return std::isfinite(static_cast<float>(v)); };
  if (!std::all_of(upper.begin(), upper.end(), isFinite))
    return false;
  for (int64_t i = 0; i < n; ++i)
    if (static_cast<float>(upper[i * n + i]) <= 0)
      return false;
  return true;
}

Result<void> checkHessian(ConstMatrix h, const GptqOptions &options) {
  if (h.rows != h.columns)
    return makeError(ErrorCode::InvalidArgument, "Hessian of {} x {}: expected a square matrix",
                     h.rows, h.columns);
  if (!std::isfinite(options.damping) || options.damping <= 0)
    return makeError(ErrorCode::InvalidArgument, "damping {}: expected a positive number",
                     options.damping);
  for (int64_t i = 0; i < h.rows; ++i) {
    if (absMaxBits(h.row(i), h.columns) >= kInfinityBits) {
      int64_t j = 0;
      while (std::isfinite(h(i, j)))
        ++j;
      return makeError(ErrorCode::InvalidArgument,
                       "element ({}, {}) of the Hessian is {}: an input of the calibration run "
                       "was not finite, or too large for its square to be",
                       i, j, h(i, j));
    }
    if (h(i, i) < 0)
      return makeError(ErrorCode::InvalidArgument,
                       "diagonal element {} of the Hessian is {}: a sum of squares is not negative",
                       i, h(i, i));
  }
  return {};
}

//===- Rounding -----------------------------------------------------------===//

/// Columns that are rounded without a matrix product in between.
constexpr int64_t kLeafColumns = 32;
constexpr int64_t kMaxBlockRows = 256;

/// Rows that one thread rounds at a time: at least 16 pieces for the threads to share where that
/// leaves enough rows for matrix products.
int64_t blockRows(int64_t rows) {
  return std::clamp<int64_t>((rows / 16 + 15) / 16 * 16, 32, kMaxBlockRows);
}

/// Rounds rows of w, whose columns are in the factor's order.
struct RowBlock {
  const GptqFactor &factor;
  const Scheme &scheme;
  const ScaleRule &rule;
  bool staticGroups;
  int64_t firstRow;
  Matrix w;
  QuantizedMatrix &out;
  Matrix differences = {}; ///< of all rows, W - What; with a row factor
  ConstMatrix given = {};  ///< all rows of w as they were; with a row factor
  const RowFactor *rowFactor = nullptr;
  std::vector<float> errors = std::vector<float>(w.rows * w.columns);
  double loss = 0;

  Matrix columns(Matrix m, int64_t first, int64_t last) const {
    return Matrix(m.data + first, m.rows, last - first, m.stride);
  }
  int64_t groupOf(int64_t column) const {
    return scheme.groupSize == 0 ? 0 : column / scheme.groupSize;
  }
  int64_t paramOf(int64_t row, int64_t group) const {
    return (out.params.rows == 1 ? 0 : (firstRow + row) * out.params.groups) + group;
  }

  /// Rounds columns [first, last), which all columns before them have already corrected, and
  /// corrects those among them. Ranges are halved between groups as long as they hold several, so
  /// that a group is whole and corrected when its scales are chosen.
  Result<void> round(int64_t first, int64_t last) {
    const int64_t group = scheme.groupSize == 0 ? w.columns : scheme.groupSize;
    const int64_t firstGroup = first / group, lastGroup = (last - 1) / group;
    int64_t middle = first + (last - first) / 2;
    if (!staticGroups && firstGroup != lastGroup) {
      middle = std::clamp((middle + group / 2) / group, firstGroup + 1, lastGroup) * group;
    } else {
      if (!staticGroups && first == firstGroup * group &&
          last == std::min(first + group, w.columns))
        if (auto ok = chooseScales(first, last); !ok)
          return ok;
      if (last - first <= kLeafColumns) {
        roundLeaf(first, last);
        return {};
      }
    }
    if (auto ok = round(first, middle); !ok)
      return ok;
    Matrix all(errors.data(), w.rows, w.columns);
    ConstMatrix correction(factor.upper.data() + first * w.columns + middle, middle - first,
                           last - middle, w.columns);
    gemm(-1, columns(all, first, middle), Transpose::No, correction, Transpose::No, 1,
         columns(w, middle, last));
    return round(middle, last);
  }

  Result<void> chooseScales(int64_t first, int64_t last) {
    Scheme perRow = scheme;
    if (!scheme.minima) { // which groups alone have; there is one group anyway
      perRow.granularity = Granularity::Channel;
      perRow.groupSize = 0;
    }
    ScaleRule own = rule;
    if (rule.kind == ScaleRuleKind::HessianDiagonal)
      own.weights = rule.weights.subspan(first, last - first);
    auto params = chooseQParams(columns(w, first, last), perRow, own, out.params.outerOf(0));
    if (!params)
      return Unexpected(params.error());
    for (int64_t i = 0; i < w.rows; ++i) {
      setSlice(out.params, paramOf(i, groupOf(first)), sliceParams(scheme, *params, i));
    }
    return {};
  }

  /// Works on a transposed copy: the loops run down the rows, which are independent.
  void roundLeaf(int64_t first, int64_t last) {
    withCodec(scheme, [&](const auto &codec) {
      rowFactor ? roundLeafByRows(codec, first, last) : roundLeaf(codec, first, last);
    });
  }
  template <typename Codec> void roundLeaf(const Codec &codec, int64_t first, int64_t last) {
    const int64_t rows = w.rows, count = last - first;
    float tile[kLeafColumns][kMaxBlockRows], error[kMaxBlockRows], scale[kMaxBlockRows];
    float minimum[kMaxBlockRows];
    int32_t zeroPoint[kMaxBlockRows], code[kMaxBlockRows];
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < count; ++j)
        tile[j][i] = w(i, first + j);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t column = factor.order[first + j];
      const float *upper = &factor.upper[(first + j) * w.columns + first];
      for (int64_t i = 0; i < rows; ++i) {
        const SliceParams slice = sliceParams(scheme, out.params, paramOf(i, groupOf(column)));
        scale[i] = slice.scale;
        zeroPoint[i] = slice.zeroPoint;
        minimum[i] = slice.minimum;
      }
      for (int64_t i = 0; i < rows; ++i) {
        const float above = tile[j][i] - minimum[i];
        Rounded rounded = codec.round(above / scale[i], zeroPoint[i]);
        code[i] = rounded.code;
        error[i] = (above - scale[i] * rounded.value) / upper[j];
      }
      for (int64_t t = j + 1; t < count; ++t)
        for (int64_t i = 0; i < rows; ++i)
          tile[t][i] -= error[i] * upper[t];
      for (int64_t i = 0; i < rows; ++i) {
        loss += static_cast<double>(error[i]) * error[i];
        errors[i * w.columns + first + j] = error[i];
        out.codes[(firstRow + i) * w.columns + column] = static_cast<int8_t>(code[i]);
      }
    }
  }

  /// What rows of earlier blocks have to do with these.
  void takeRowsBefore() {
    if (firstRow > 0)
      gemm(1,
           ConstMatrix(&rowFactor->lower[firstRow * rowFactor->rows], w.rows, firstRow,
                       rowFactor->rows),
           Transpose::No, ConstMatrix(differences.data, firstRow, w.columns, differences.stride),
           Transpose::No, 1, w);
  }
  /// The same for the rows of a leaf, one after the other: the loops run along the columns.
  template <typename Codec> void roundLeafByRows(const Codec &codec, int64_t first, int64_t last) {
    const int64_t count = last - first;
    for (int64_t i = 0; i < w.rows; ++i) {
      const int64_t row = firstRow + i;
      const float *factors = &rowFactor->lower[row * rowFactor->rows + firstRow];
      float target[kLeafColumns];
      std::copy_n(w.row(i) + first, count, target);
      for (int64_t k = 0; k < i; ++k) {
        const float *difference = differences.row(firstRow + k) + first;
        for (int64_t j = 0; j < count; ++j)
          target[j] += factors[k] * difference[j];
      }
      for (int64_t j = 0; j < count; ++j) {
        const int64_t column = factor.order[first + j], param = paramOf(i, groupOf(column));
        const float *upper = &factor.upper[(first + j) * w.columns + first];
        const auto [scale, zeroPoint, minimum] = sliceParams(scheme, out.params, param);
        const float above = target[j] - minimum;
        Rounded rounded = codec.round(above / scale, zeroPoint);
        const float error = (above - scale * rounded.value) / upper[j];
        for (int64_t t = j + 1; t < count; ++t)
          target[t] -= error * upper[t];
        loss += rowFactor->weights[row] * static_cast<double>(error) * error;
        errors[i * w.columns + first + j] = error;
        differences(row, first + j) = given(row, first + j) - (scale * rounded.value + minimum);
        out.codes[row * w.columns + column] = static_cast<int8_t>(rounded.code);
      }
    }
  }
};

/// Parameters of the whole weight, or of these rows where every row has its own.
Result<QParams> chooseParams(ConstMatrix w, const Scheme &scheme, const ScaleRule &rule,
                             RowRange rows) {
  if (scheme.granularity == Granularity::Tensor || rows.count == w.rows)
    return chooseQParams(w, scheme, rule);
  auto chosen = chooseQParams(w.middleRows(rows.first, rows.count), scheme, rule,
                              outerScale(absMaxOf(w), scheme));
  if (!chosen)
    return chosen;
  const int64_t before = rows.first * chosen->groups,
                behind = (w.rows - rows.first - rows.count) * chosen->groups;
  chosen->rows = w.rows;
  auto widen = [&](auto &values) {
    values.insert(values.begin(), before, {});
    values.insert(values.end(), behind, {});
  };
  widen(chosen->scales);
  if (scheme.hasZeroPoints())
    widen(chosen->zeroPoints);
  if (scheme.minima)
    widen(chosen->minima);
  return chosen;
}

} // namespace

RowRange gptqRows(int64_t rows, int64_t part, int64_t parts) {
  return partOfRows(rows, blockRows(rows), part, parts);
}

Result<GptqFactor> factorHessian(ConstMatrix hessian, const GptqOptions &options) {
  if (auto ok = checkHessian(hessian, options); !ok)
    return Unexpected(ok.error());
  const int64_t n = hessian.rows;
  GptqFactor factor;
  factor.columns = n;
  factor.dead.resize(n);
  factor.order.resize(n);
  std::iota(factor.order.begin(), factor.order.end(), 0);
  double mean = 0;
  int64_t live = 0;
  for (int64_t i = 0; i < n; ++i) {
    factor.dead[i] = hessian(i, i) == 0;
    live += !factor.dead[i];
    mean += hessian(i, i);
  }
  factor.weights.resize(n);
  for (int64_t i = 0; i < n; ++i)
    factor.weights[i] = factor.dead[i] ? 0 : hessian(i, i);
  mean = live == 0 ? 1 : mean / static_cast<double>(live);
  if (options.actOrder)
    std::sort(factor.order.begin(), factor.order.end(), [&](int64_t a, int64_t b) {
      return hessian(a, a) != hessian(b, b) ? hessian(a, a) > hessian(b, b) : a < b;
    });

  constexpr int kSteps = 10;
  for (int step = 1; step <= kSteps; ++step) {
    factor.damping = step * options.damping;
    if (factorDamped(hessian, factor, factor.damping * mean, options.threads, factor.upper))
      return factor;
  }
  factor.inDouble = true;
  std::vector<double> upper;
  for (int step = 1; step <= kSteps; ++step) {
    factor.damping = step * options.damping;
    if (factorDamped(hessian, factor, factor.damping * mean, options.threads, upper)) {
      factor.upper.assign(upper.begin(), upper.end());
      return factor;
    }
  }
  return makeError(ErrorCode::InvalidArgument,
                   "the Hessian ({} x {}) is not positive definite, not even with damping {}: "
                   "calibrate on more tokens, raise the damping, or leave this site out (--ignore)",
                   n, n, factor.damping);
}

Result<RowFactor> factorRows(ConstMatrix hessian, double damping, unsigned threads) {
  if (auto ok = checkHessian(hessian, {.damping = damping}); !ok)
    return Unexpected(ok.error());
  const int64_t n = hessian.rows;
  double mean = 0;
  for (int64_t i = 0; i < n; ++i)
    mean += hessian(i, i) / static_cast<double>(n);
  mean = mean > 0 ? mean : 1;
  // Reversing rows and columns makes the upper factor R of Hout = R R^T the lower one of Cholesky.
  std::vector<float> reversed(n * n);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j)
      reversed[i * n + j] = hessian(n - 1 - i, n - 1 - j);
    reversed[i * n + i] = static_cast<float>(hessian(n - 1 - i, n - 1 - i) + damping * mean);
  }
  if (!cholesky(reversed.data(), n, threads))
    return makeError(ErrorCode::InvalidArgument,
                     "the Hessian of rows ({} x {}) is not positive definite with damping {}", n, n,
                     damping);
  RowFactor factor{n, std::vector<float>(n * n), std::vector<float>(n)};
  for (int64_t i = 0; i < n; ++i) {
    const float diagonal = reversed[(n - 1 - i) * n + n - 1 - i];
    factor.weights[i] = diagonal * diagonal;
    for (int64_t k = 0; k < i; ++k) // V_ik = R_ki / R_ii
      factor.lower[i * n + k] = reversed[(n - 1 - k) * n + n - 1 - i] / diagonal;
  }
  return factor;
}

Result<GptqResult> gptq(ConstMatrix w, const GptqFactor &factor, const Scheme &scheme,
                        const ScaleRule &asked, const GptqOptions &options) {
  ScaleRule rule = asked;
  if (rule.kind == ScaleRuleKind::HessianDiagonal)
    rule.weights = factor.weights;
  if (w.columns != factor.columns)
    return makeError(ErrorCode::InvalidArgument,
                     "weight of {} x {} and Hessian of {} x {}: expected a Hessian of {} x {}",
                     w.rows, w.columns, factor.columns, factor.columns, w.columns, w.columns);
  if (options.rowFactor && (options.rowFactor->rows != w.rows || options.parts != 1))
    return makeError(ErrorCode::InvalidArgument,
                     "weight of {} rows in {} parts, and feedback over {} rows: expected the same "
                     "rows in one part",
                     w.rows, options.parts, options.rowFactor->rows);
  for (int64_t i = 0; i < w.rows; ++i)
    if (absMaxBits(w.row(i), w.columns) >= kInfinityBits)
      return notFiniteError(w.row(i), w.columns, i);

  // Scales are chosen before columns are put in order: groups are those of memory.
  std::vector<float> values(w.rows * w.columns);
  for (int64_t i = 0; i < w.rows; ++i)
    for (int64_t j = 0; j < w.columns; ++j)
      values[i * w.columns + j] = factor.dead[j] ? 0 : w(i, j);
  const RowRange part = gptqRows(w.rows, options.part, options.parts);
  auto params = chooseParams(ConstMatrix(values.data(), w.rows, w.columns), scheme, rule, part);
  if (!params)
    return Unexpected(params.error());
  bool natural = std::is_sorted(factor.order.begin(), factor.order.end());
  if (!natural)
    for (int64_t i = 0; i < w.rows; ++i)
      for (int64_t j = 0; j < w.columns; ++j)
        values[i * w.columns + j] = factor.dead[factor.order[j]] ? 0 : w(i, factor.order[j]);

  GptqResult result{{scheme, w.rows, w.columns, {}, std::move(*params)}};
  result.weight.codes.resize(w.rows * w.columns);
  if (w.columns == 0)
    return result;
  std::vector<float> given, differences;
  if (options.rowFactor) {
    given = values;
    differences.resize(values.size());
  }
  const int64_t height = blockRows(w.rows), blocks = (part.count + height - 1) / height;
  std::vector<Result<double>> losses(blocks, Result<double>(0.0));
  // With a row factor blocks depend on those before them.
  parallelFor(blocks, options.rowFactor ? 1 : options.threads, [&](int64_t b) {
    int64_t first = part.first + b * height,
            rows = std::min(height, part.first + part.count - first);
    RowBlock block{
        .factor = factor,
        .scheme = scheme,
        .rule = rule,
        .staticGroups = !natural || options.staticGroups ||
                        scheme.granularity == Granularity::Tensor ||
                        scheme.isTwoLevel(), // groups share what their scales are in units of
        .firstRow = first,
        .w = Matrix(values.data() + first * w.columns, rows, w.columns),
        .out = result.weight,
        .differences = Matrix(differences.data(), w.rows, w.columns),
        .given = ConstMatrix(given.data(), w.rows, w.columns),
        .rowFactor = options.rowFactor,
    };
    if (options.rowFactor)
      block.takeRowsBefore();
    if (auto ok = block.round(0, w.columns); !ok)
      losses[b] = Unexpected(ok.error());
    else
      losses[b] = block.loss;
  });
  for (const Result<double> &loss : losses) {
    if (!loss)
      return Unexpected(loss.error());
    result.loss += *loss;
  }
  if (!std::isfinite(result.loss))
    return makeError(ErrorCode::InvalidArgument,
                     "corrections of the weights left the range of float: raise the damping, or "
                     "leave this site out (--ignore)");
  return result;
}

} // namespace easyquant::numerics
