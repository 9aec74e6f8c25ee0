//===- MaskClustersTest.cpp - Tokens of clusters on a simulated GPU -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SimtRunner.h"

#include "easyquant/Codegen/GPU/MaskClusters.h"

#include <algorithm>
#include <limits>
#include <random>

using namespace easyquant;
using namespace easyquant::gpu;

// Clusters of equal scores are taken together, and negative scores are as good as others. Several
// blocks have the tokens of a row, and threads several scores.
TEST(GPUMaskClusters, KeepsTokensOfTheBest) {
  for (auto [tokens, clusters, chosen] : {std::tuple<int64_t, int64_t, int64_t>{12, 4, 2},
                                          {97, 7, 1},
                                          {128, 64, 64},
                                          {4200, 300, 32},
                                          {600, 1024, 9}}) {
    const MaskClustersSpec spec{tokens, clusters, chosen};
    KernelLibrary library;
    const Description kernel = library.add(spec);
    SCOPED_TRACE(kernel.name);
    std::mt19937 random(3);
    std::normal_distribution<float> normal(-2.0f);
    std::vector<float> clusterOf(static_cast<size_t>(tokens));
    for (int64_t i = 0; i < tokens; ++i)
      clusterOf[static_cast<size_t>(i)] = static_cast<float>((i * 5 + 3) % clusters);
    constexpr int64_t rows = 2;
    const int64_t scoreStride = clusters + 3;
    std::vector<float> scores(static_cast<size_t>(rows * scoreStride)),
        logits(static_cast<size_t>(rows * tokens));
    for (float &value : scores)
      value = normal(random);
    for (float &value : logits)
      value = normal(random);
    scores[static_cast<size_t>(scoreStride + 1)] = scores[static_cast<size_t>(scoreStride)];
    simt::Device device;
    DeviceBuffer<float> written(device, logits), read(device, scores), of(device, clusterOf);
    run(device, library, kernel, rows,
        {{"logits", written},
         {"logits_stride", tokens},
         {"scores", read},
         {"scores_stride", scoreStride},
         {"clusters", of}});
    const std::vector<float> found = written.read();
    for (int64_t row = 0; row < rows; ++row) {
      const auto own = scores.begin() + row * scoreStride;
      std::vector<float> best(own, own + clusters);
      std::ranges::sort(best, std::greater<>());
      best.erase(std::unique(best.begin(), best.end()), best.end());
      const float least = best[std::min(static_cast<size_t>(chosen), best.size()) - 1];
      for (int64_t token = 0; token < tokens; ++token) {
        const auto at = static_cast<size_t>(row * tokens + token);
        const bool isKept = own[(token * 5 + 3) % clusters] >= least;
        ASSERT_EQ(found[at], isKept ? logits[at] : std::numeric_limits<float>::lowest())
            << "row " << row << ", token " << token;
      }
    }
  }
}
