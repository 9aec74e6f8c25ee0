//===- LinearAlgebraTest.cpp ----------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The oracles are the definitions, summed in double.
//
//===----------------------------------------------------------------------===//

#include "LinearAlgebra.h"

#include "RandomData.h"
#include "easyquant/Support/Parallel.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

TEST(LinearAlgebra, ProductsOfRowMajorMatrices) {
  for (auto [m, n, k] : {std::tuple{1, 1, 1}, {2, 3, 17}, {17, 5, 2}, {33, 40, 65}, {3, 4, 0}})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        // Strides beyond the columns: views of wider matrices.
        int64_t aRows = ta ? k : m, aColumns = ta ? m : k, bRows = tb ? n : k,
                bColumns = tb ? k : n;
        std::vector<float> a = gaussian(aRows * (aColumns + 3) + 1, 1);
        std::vector<float> b = gaussian(bRows * (bColumns + 1) + 1, 2);
        std::vector<float> c = gaussian(m * (n + 2), 3), before = c;
        ConstMatrix av(a.data(), aRows, aColumns, aColumns + 3);
        ConstMatrix bv(b.data(), bRows, bColumns, bColumns + 1);
        Matrix cv(c.data(), m, n, n + 2);
        gemm(-0.5f, av, ta ? Transpose::Yes : Transpose::No, bv,
             tb ? Transpose::Yes : Transpose::No, 2, cv);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t j = 0; j < n + 2; ++j) {
            double expected = before[i * (n + 2) + j];
            if (j < n) {
              double sum = 0;
              for (int64_t t = 0; t < k; ++t)
                sum += double(ta ? av(t, i) : av(i, t)) * (tb ? bv(j, t) : bv(t, j));
              expected = 2 * expected - 0.5 * sum;
            }
            ASSERT_NEAR(c[i * (n + 2) + j], expected, 1e-4);
          }
      }
}

template <typename T> void factorAndInvert(int64_t n, double tolerance) {
  std::vector<float> root = gaussian(n * n, n);
  std::vector<double> spd(n * n);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t t = 0; t < n; ++t)
        spd[i * n + j] += double(root[i * n + t]) * root[j * n + t];
      spd[i * n + j] += i == j ? static_cast<double>(n) : 0.0;
    }
  std::vector<T> l(spd.begin(), spd.end());
  ASSERT_TRUE(cholesky(l.data(), n, 2));
  std::vector<T> inverse(n * n, T(7));
  invertLowerTriangle(l.data(), n, inverse.data(), 2);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = i + 1; j < n; ++j)
      ASSERT_EQ(inverse[i * n + j], 0);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j) {
      double product = 0, identity = 0;
      for (int64_t t = 0; t <= j; ++t)
        product += double(l[i * n + t]) * l[j * n + t];
      for (int64_t t = j; t <= i; ++t)
        identity += double(l[i * n + t]) * inverse[t * n + j];
      ASSERT_NEAR(product, spd[i * n + j], tolerance * static_cast<double>(n));
      ASSERT_NEAR(identity, i == j, tolerance);
    }
}

TEST(LinearAlgebra, CholeskyFactorsAndTheirInverses) {
  for (int64_t n : {1, 2, 17, 100, 256, 300}) {
    factorAndInvert<float>(n, 1e-4);
    factorAndInvert<double>(n, 1e-12);
  }
  std::vector<float> indefinite = {1, 0, 2, 1};
  EXPECT_FALSE(cholesky(indefinite.data(), 2, 1));
  EXPECT_TRUE(cholesky(static_cast<float *>(nullptr), 0, 1));
}

TEST(LinearAlgebra, FactorsDoNotDependOnThreads) {
  const int64_t n = 700;
  std::vector<float> spd(n * n, 0.5f), noise = gaussian(n * n, 9);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      spd[i * n + j] += i == j ? 40 : 0.1f * noise[i * n + j];
  std::vector<float> one = spd, many = spd, oneInverse(n * n), manyInverse(n * n);
  ASSERT_TRUE(cholesky(one.data(), n, 1));
  ASSERT_TRUE(cholesky(many.data(), n, 3));
  invertLowerTriangle(one.data(), n, oneInverse.data(), 1);
  invertLowerTriangle(many.data(), n, manyInverse.data(), 3);
  EXPECT_EQ(oneInverse, manyInverse);
}

TEST(Parallel, DoesEveryPieceOnce) {
  for (unsigned threads : {0u, 1u, 2u, 7u})
    for (int64_t count : {0, 1, 5, 1000}) {
      std::vector<int> done(count);
      parallelFor(count, threads, [&](int64_t i) { ++done[i]; });
      EXPECT_EQ(done, std::vector<int>(count, 1));
    }
}

} // namespace
