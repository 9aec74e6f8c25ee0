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

/// The lower triangle of the n x n matrix a becomes L with a = L L^T; the rest stays. False when a
/// is not positive definite.
bool cholesky(float *a, int64_t n);
bool cholesky(double *a, int64_t n);

/// The lower triangular n x n matrix l becomes its inverse; what is above the diagonal stays. False
/// when it is singular.
bool invertLowerTriangle(float *l, int64_t n);
bool invertLowerTriangle(double *l, int64_t n);

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_LINEARALGEBRA_H
