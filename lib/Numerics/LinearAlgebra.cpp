//===- LinearAlgebra.cpp - What Numerics takes from BLAS and LAPACK -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearAlgebra.h"

#include "easyquant/Support/Parallel.h"

#include <cblas.h>
#include <f77blas.h>

#include <algorithm>

namespace easyquant::numerics {
namespace {

/// Before the first call of all: no two threads set it at once.
void runOnTheCallingThread() {
  static const bool once = (openblas_set_num_threads(1), true);
  (void)once;
}

//===- The same names for both precisions ---------------------------------===//

/// c -= a b^T for a of m x k and c of m x n.
void product(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c,
             int64_t stride) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, -1, a, stride, b, stride, 1, c,
              stride);
}
void product(int64_t m, int64_t n, int64_t k, const double *a, const double *b, double *c,
             int64_t stride) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, -1, a, stride, b, stride, 1, c,
              stride);
}
/// x (m x n) = op(l)^-1 x, or x op(l)^-1 on the right side.
void solve(CBLAS_SIDE side, CBLAS_TRANSPOSE transpose, int64_t m, int64_t n, const float *l,
           float *x, int64_t stride) {
  cblas_strsm(CblasRowMajor, side, CblasLower, transpose, CblasNonUnit, m, n, 1, l, stride, x,
              stride);
}
void solve(CBLAS_SIDE side, CBLAS_TRANSPOSE transpose, int64_t m, int64_t n, const double *l,
           double *x, int64_t stride) {
  cblas_dtrsm(CblasRowMajor, side, CblasLower, transpose, CblasNonUnit, m, n, 1, l, stride, x,
              stride);
}
// LAPACK is column-major: our lower triangle is its upper one.
bool factor(blasint n, float *a, blasint stride) {
  char upper = 'U';
  blasint info = 0;
  spotrf_(&upper, &n, a, &stride, &info);
  return info == 0;
}
bool factor(blasint n, double *a, blasint stride) {
  char upper = 'U';
  blasint info = 0;
  dpotrf_(&upper, &n, a, &stride, &info);
  return info == 0;
}

//===- Factors by tiles ---------------------------------------------------===//

constexpr int64_t kFactorTile = 256;

template <typename T> bool choleskyByTiles(T *a, int64_t n, unsigned threads) {
  runOnTheCallingThread();
  auto tile = [&](int64_t i, int64_t j) { return a + i * kFactorTile * n + j * kFactorTile; };
  auto size = [&](int64_t i) { return std::min(kFactorTile, n - i * kFactorTile); };
  const int64_t tiles = (n + kFactorTile - 1) / kFactorTile;
  for (int64_t p = 0; p < tiles; ++p) {
    if (!factor(size(p), tile(p, p), n))
      return false;
    const int64_t below = tiles - p - 1;
    parallelFor(below, threads, [&](int64_t t) {
      int64_t i = p + 1 + t;
      solve(CblasRight, CblasTrans, size(i), size(p), tile(p, p), tile(i, p), n);
    });
    parallelFor(below * below, threads, [&](int64_t t) {
      int64_t i = p + 1 + t / below, j = p + 1 + t % below;
      if (j <= i)
        product(size(i), size(j), size(p), tile(i, p), tile(j, p), tile(i, j), n);
    });
  }
  return true;
}

/// Column by column of tiles: L X = I from the diagonal down.
template <typename T> void invertByTiles(const T *l, int64_t n, T *inverse, unsigned threads) {
  runOnTheCallingThread();
  std::fill_n(inverse, n * n, T(0));
  parallelFor((n + kFactorTile - 1) / kFactorTile, threads, [&](int64_t t) {
    const int64_t first = t * kFactorTile, columns = std::min(kFactorTile, n - first);
    T *x = inverse + first * n + first;
    for (int64_t j = 0; j < columns; ++j)
      x[j * n + j] = 1;
    solve(CblasLeft, CblasNoTrans, n - first, columns, l + first * n + first, x, n);
  });
}

} // namespace

static CBLAS_TRANSPOSE flag(Transpose t) { return t == Transpose::Yes ? CblasTrans : CblasNoTrans; }

template <typename T, typename Blas>
static void gemmBy(Blas blas, T alpha, MatrixView<const T> a, Transpose transposeA,
                   MatrixView<const T> b, Transpose transposeB, T beta, MatrixView<T> c) {
  if (c.rows == 0 || c.columns == 0)
    return;
  runOnTheCallingThread();
  int64_t depth = transposeA == Transpose::Yes ? a.rows : a.columns;
  blas(CblasRowMajor, flag(transposeA), flag(transposeB), c.rows, c.columns, depth, alpha, a.data,
       a.stride, b.data, b.stride, beta, c.data, c.stride);
}

void gemm(float alpha, ConstMatrix a, Transpose transposeA, ConstMatrix b, Transpose transposeB,
          float beta, Matrix c) {
  gemmBy(cblas_sgemm, alpha, a, transposeA, b, transposeB, beta, c);
}

void gemm(double alpha, MatrixView<const double> a, Transpose transposeA,
          MatrixView<const double> b, Transpose transposeB, double beta, MatrixView<double> c) {
  gemmBy(cblas_dgemm, alpha, a, transposeA, b, transposeB, beta, c);
}

bool cholesky(float *a, int64_t n, unsigned threads) { return choleskyByTiles(a, n, threads); }
bool cholesky(double *a, int64_t n, unsigned threads) { return choleskyByTiles(a, n, threads); }

void invertLowerTriangle(const float *l, int64_t n, float *inverse, unsigned threads) {
  invertByTiles(l, n, inverse, threads);
}
void invertLowerTriangle(const double *l, int64_t n, double *inverse, unsigned threads) {
  invertByTiles(l, n, inverse, threads);
}

} // namespace easyquant::numerics
