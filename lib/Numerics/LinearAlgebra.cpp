//===- LinearAlgebra.cpp - What Numerics takes from BLAS and LAPACK -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearAlgebra.h"

#include <cblas.h>
#include <f77blas.h>

namespace easyquant::numerics {
namespace {

/// Before the first call of all: no two threads set it at once.
void runOnTheCallingThread() {
  static const bool once = (openblas_set_num_threads(1), true);
  (void)once;
}

/// LAPACK is column-major: our lower triangle is its upper one.
char kUpper = 'U', kNonUnit = 'N';

} // namespace

void gemm(float alpha, ConstMatrix a, Transpose transposeA, ConstMatrix b, Transpose transposeB,
          float beta, Matrix c) {
  if (c.rows == 0 || c.columns == 0)
    return;
  runOnTheCallingThread();
  int64_t depth = transposeA == Transpose::Yes ? a.rows : a.columns;
  auto flag = [](Transpose t) { return t == Transpose::Yes ? CblasTrans : CblasNoTrans; };
  cblas_sgemm(CblasRowMajor, flag(transposeA), flag(transposeB), c.rows, c.columns, depth, alpha,
              a.data, a.stride, b.data, b.stride, beta, c.data, c.stride);
}

bool cholesky(float *a, int64_t n) {
  runOnTheCallingThread();
  blasint size = n, leading = n > 0 ? n : 1, info = 0;
  spotrf_(&kUpper, &size, a, &leading, &info);
  return info == 0;
}

bool cholesky(double *a, int64_t n) {
  runOnTheCallingThread();
  blasint size = n, leading = n > 0 ? n : 1, info = 0;
  dpotrf_(&kUpper, &size, a, &leading, &info);
  return info == 0;
}

bool invertLowerTriangle(float *l, int64_t n) {
  runOnTheCallingThread();
  blasint size = n, leading = n > 0 ? n : 1, info = 0;
  strtri_(&kUpper, &kNonUnit, &size, l, &leading, &info);
  return info == 0;
}

bool invertLowerTriangle(double *l, int64_t n) {
  runOnTheCallingThread();
  blasint size = n, leading = n > 0 ? n : 1, info = 0;
  dtrtri_(&kUpper, &kNonUnit, &size, l, &leading, &info);
  return info == 0;
}

} // namespace easyquant::numerics
