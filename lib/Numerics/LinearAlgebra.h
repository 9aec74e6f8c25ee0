//===- LinearAlgebra.h - What Numerics takes from BLAS and LAPACK --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics. Matrices are row-major. OpenBLAS runs on the calling thread alone: it
// cuts its work by the number of its threads, so that its sums, and with them our codes, would
// depend on that number. Threads are ours (Support/Parallel.h), over pieces of fixed size.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_LINEARALGEBRA_H
#define EASYQUANT_LIB_NUMERICS_LINEARALGEBRA_H

#include "easyquant/Numerics/Matrix.h"

namespace easyquant::numerics {

enum class Transpose { No, Yes };

/// c = alpha op(a) op(b) + beta c. c must not overlap a or b; with beta = 0 it is only written.
void gemm(float alpha, ConstMatrix a, Transpose transposeA, ConstMatrix b, Transpose transposeB,
          float beta, Matrix c);
void gemm(double alpha, MatrixView<const double> a, Transpose transposeA,
          MatrixView<const double> b, Transpose transposeB, double beta, MatrixView<double> c);

/// The lower triangle of the n x n matrix a becomes L with a = L L^T; the rest is left undefined.
/// False when a is not positive definite. On `threads` threads (0: one per core), with the same
/// bits for any number.
bool cholesky(float *a, int64_t n, unsigned threads);
bool cholesky(double *a, int64_t n, unsigned threads);

/// inverse = L^-1, lower triangular with zeros above the diagonal, of a lower triangular matrix l
/// whose diagonal has no zero. Threads as above.
void invertLowerTriangle(const float *l, int64_t n, float *inverse, unsigned threads);
void invertLowerTriangle(const double *l, int64_t n, double *inverse, unsigned threads);

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_LINEARALGEBRA_H
