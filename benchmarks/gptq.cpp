//===- gptq.cpp - GPTQ beside matrix products of as many operations -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Factoring a Hessian takes 2/3 K^3 operations (a Cholesky factor and its inverse), rounding N K^2
// (the corrections). OpenBLAS's sgemm, on threads of its own, does the same number in the same run.
//
//   easyquant-gptq-bench [N [K [THREADS]]]
//
//===----------------------------------------------------------------------===//

#include "Roofs.h"

#include "easyquant/Numerics/Gptq.h"

#include <cblas.h>
#include <fmt/core.h>

#include <cstdlib>
#include <random>
#include <thread>

using namespace easyquant;
using namespace easyquant::numerics;

namespace {

struct Timed {
  double seconds, operations;
  void print(const char *what) const {
    fmt::print("{:<24}{:8.2f} s {:8.1f} GFlop/s\n", what, seconds, operations / seconds / 1e9);
  }
};

template <typename Work> Timed timed(double operations, int threads, Work &&work) {
  double start = bench::now(threads);
  work();
  return {bench::now(threads) - start, operations};
}

} // namespace

int main(int argc, char **argv) {
  const int64_t n = argc > 1 ? std::atoll(argv[1]) : 4096, k = argc > 2 ? std::atoll(argv[2]) : n;
  const int threads = argc > 3
                          ? std::atoi(argv[3])
                          : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  if (n < 1 || k < 1 || threads < 1) {
    fmt::print(stderr,
               "error: expected positive numbers: easyquant-gptq-bench [N [K [THREADS]]]\n");
    return 1;
  }
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> w(n * k), x(2 * k * k), h(k * k);
  for (float &v : w)
    v = normal(random);
  for (float &v : x)
    v = normal(random);
  openblas_set_num_threads(threads);
  cblas_ssyrk(CblasRowMajor, CblasLower, CblasTrans, k, 2 * k, 1.0f / static_cast<float>(k),
              x.data(), k, 0, h.data(), k);

  const double factoring = 2.0 / 3.0 * k * k * k, rounding = 1.0 * n * k * k;
  std::vector<float> product(n * k);
  int64_t depth = static_cast<int64_t>((factoring + rounding) / (2.0 * n * k));
  Timed gemm = timed(2.0 * n * k * depth, threads, [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, n, k, depth, 1, x.data(), depth,
                x.data(), k, 0, product.data(), k);
  });

  GptqOptions options{.actOrder = true, .threads = static_cast<unsigned>(threads)};
  Result<GptqFactor> factor;
  Timed factored = timed(factoring, threads,
                         [&] { factor = factorHessian(ConstMatrix(h.data(), k, k), options); });
  if (!factor) {
    fmt::print(stderr, "error: {}\n", factor.error().message);
    return 1;
  }
  Result<GptqResult> result;
  Timed rounded = timed(rounding, threads, [&] {
    result =
        gptq(ConstMatrix(w.data(), n, k), *factor, Scheme{4, false, Granularity::Group, 128, false},
             {ScaleRuleKind::ZeroPoint}, options);
  });
  if (!result) {
    fmt::print(stderr, "error: {}\n", result.error().message);
    return 1;
  }

  fmt::print("{}, {} x {}, {} thread{}\n", bench::cpuModel(), n, k, threads,
             threads == 1 ? "" : "s");
  gemm.print("sgemm");
  factored.print("factor");
  rounded.print("round");
  Timed all{factored.seconds + rounded.seconds, factoring + rounding};
  all.print("factor and round");
  fmt::print("of sgemm's speed        {:8.2f}\n",
             all.operations / all.seconds / (gemm.operations / gemm.seconds));
  return 0;
}
