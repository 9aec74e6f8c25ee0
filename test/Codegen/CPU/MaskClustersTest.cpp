//===- MaskClustersTest.cpp - Logits of tokens in chosen clusters ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GuardedBuffer.h"
#include "KernelRunner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>

using namespace mlir;
using namespace easyquant::cpu;

// Tokens of clusters whose score is among the best keep their logits, in order of nothing else:
// clusters of equal scores are taken together, and negative scores are as good as others.
TEST(MaskClusters, KeepsTokensOfTheBest) {
  for (const Target &target : testTargets())
    for (auto [tokens, clusters, chosen] : {std::tuple<int64_t, int64_t, int64_t>{12, 4, 2},
                                            {97, 7, 1},
                                            {128, 64, 64},
                                            {330, 33, 5},
                                            {4096, 100, 32}}) {
      MaskClustersSpec spec{tokens, clusters, chosen};
      SCOPED_TRACE(symbolName(spec));
      KernelRunner run(
          target, [&](ModuleOp module) { return getOrEmitMaskClusters(module, spec, target); });
      std::mt19937 random(3);
      std::normal_distribution<float> normal(-2.0f);
      GuardedBuffer<float> clusterOf(tokens);
      for (int64_t i = 0; i < tokens; ++i)
        clusterOf[i] = static_cast<float>((i * 5 + 3) % clusters);
      MemRef<float, 1> clusterView(clusterOf.data(), {tokens});
      for (int64_t rows : {1, 2, 5}) {
        GuardedBuffer<float> logits(rows * tokens), scores(rows * clusters);
        for (int64_t i = 0; i < rows * clusters; ++i)
          scores[i] = normal(random);
        if (rows > 1) // the second row has two of one score
          scores[clusters + 1] = scores[clusters];
        std::vector<float> input(static_cast<size_t>(rows * tokens));
        for (float &value : input)
          value = normal(random);
        for (int64_t threads : {1, 2, 3}) {
          std::copy(input.begin(), input.end(), logits.data());
          MemRef<float, 2> all(logits.data(), {rows, tokens});
          MemRef<float, 2> scoreView(scores.data(), {rows, clusters});
          run(all, scoreView, clusterView, threads);
          for (int64_t row = 0; row < rows; ++row) {
            const float *of = scores.data() + row * clusters;
            std::vector<float> best(of, of + clusters);
            std::sort(best.begin(), best.end(), std::greater<>());
            best.erase(std::unique(best.begin(), best.end()), best.end());
            const float least = best[std::min<size_t>(chosen, best.size()) - 1];
            for (int64_t token = 0; token < tokens; ++token) {
              const int64_t at = row * tokens + token;
              const bool isKept = of[static_cast<int64_t>(clusterOf[token])] >= least;
              ASSERT_EQ(logits[at], isKept ? input[static_cast<size_t>(at)]
                                           : std::numeric_limits<float>::lowest())
                  << "row " << row << ", token " << token << ", " << threads << " threads";
            }
          }
        }
      }
    }
}
