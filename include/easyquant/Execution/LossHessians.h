//===- LossHessians.h - What an error of a weight costs the model -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// With x what a linear reads and g the gradient of the loss at its output (LossGradients.h),
//
//      H = (2/n) sum |g|^2 x x^T   (K x K)        Hout = (2/n) sum g g^T   (N x N)
//
// over n tokens; those of an expert are over the rows that chose it. H weighs a token by what the
// loss makes of it. Both are factors, but for a number,
// of an approximation of the Fisher information of the weight W (N x K): an error E of it costs
// about tr(Hout E H E^T) (Tseng, Sun, De Sa, 2025, https://arxiv.org/abs/2505.22988).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LOSSHESSIANS_H
#define EASYQUANT_EXECUTION_LOSSHESSIANS_H

#include "easyquant/Execution/TrainedLayer.h"
#include "easyquant/Numerics/Statistics.h"

namespace easyquant::execution {

/// H and Hout of a site, symmetric; Hout is empty where it was not asked for.
struct HessianPair {
  int64_t tokens = 0;
  std::vector<float> inputs, outputs;

  /// Was there a token with a gradient that is not 0?
  bool isReached() const {
    return llvm::any_of(inputs, [](float value) { return value != 0; });
  }
};

/// tr(Hout E H E^T), E an error (N x K) of the weight, in double from products in float.
double costOf(const HessianPair &hessians, numerics::ConstMatrix error, unsigned threads);

/// What that error adds to the mean KL divergence of a token, in nats, to second order. With
/// A = E[|g|^2 x x^T] = H / 2 and G = E[g g^T] = Hout / 2 the Fisher information is G (x) A /
/// tr(G), and KL is half its quadratic form: tr(Hout E H E^T) / (4 tr(Hout)).
double divergenceOf(const HessianPair &hessians, numerics::ConstMatrix error, unsigned threads);

/// What Hessians are of: the weight of a site, or of one expert of it.
struct LossWeight {
  std::string name; ///< "expert 3 of site 'model...'"
  int64_t rows, columns;
};

/// The Hessians of several weights; SampleSum sums them.
class LossHessians {
public:
  /// Sums over no token. `rows`: Hout, too.
  LossHessians(llvm::ArrayRef<LossWeight> weights, bool rows);

  /// Adds a sample. Errors, naming site: those of Gram::update.
  Result<void> add(llvm::ArrayRef<TrainedLayer::Rows> rows, unsigned threads);
  void merge(const LossHessians &later);

  /// The Hessians of weight `i`, of which nothing is left here.
  HessianPair take(size_t i);

  template <typename Visit> void fields(Visit &&visit) {
    for (Sums &sums : all)
      visit(sums.inputs), visit(sums.outputs);
  }

private:
  struct Sums {
    std::string name;
    numerics::Gram inputs, outputs;
  };
  std::vector<Sums> all;
  bool hasRows;
  std::vector<float> squares; ///< |g|^2, by token
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LOSSHESSIANS_H
