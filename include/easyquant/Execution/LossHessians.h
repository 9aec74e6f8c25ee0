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
// over n tokens. H weighs a token by what the loss makes of it. Both are factors, but for a number,
// of an approximation of the Fisher information of the weight W (N x K): an error E of it costs
// about tr(Hout E H E^T) (Tseng, Sun, De Sa, 2025, https://arxiv.org/abs/2505.22988).
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_LOSSHESSIANS_H
#define EASYQUANT_EXECUTION_LOSSHESSIANS_H

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Execution/TrainedLayer.h"
#include "easyquant/Numerics/Statistics.h"

namespace easyquant::execution {

/// H and Hout of a site, symmetric; Hout is empty where it was not asked for.
struct HessianPair {
  int64_t tokens = 0;
  std::vector<float> inputs, outputs;
};

/// tr(Hout E H E^T), E an error (N x K) of the weight, in double from products in float.
double costOf(const HessianPair &hessians, numerics::ConstMatrix error, unsigned threads);

/// What that error adds to the mean KL divergence of a token, in nats, to second order. With
/// A = E[|g|^2 x x^T] = H / 2 and G = E[g g^T] = Hout / 2 the Fisher information is G (x) A /
/// tr(G), and KL is half its quadratic form: tr(Hout E H E^T) / (4 tr(Hout)).
double divergenceOf(const HessianPair &hessians, numerics::ConstMatrix error, unsigned threads);

/// The Hessians of the sites of a layer; SampleSum sums them.
class LossHessians {
public:
  /// Sums over no token. `rows`: Hout, too.
  LossHessians(llvm::ArrayRef<equant::QuantizableOpInterface> sites, bool rows);

  /// Adds a sample. Errors, naming site: those of Gram::update.
  Result<void> add(llvm::ArrayRef<TrainedLayer::Rows> rows, unsigned threads);
  void merge(const LossHessians &later);

  /// The Hessians of site `i`, of which nothing is left here. Errors: InvalidArgument, naming the
  /// site, where all gradients were 0.
  Result<HessianPair> take(size_t i);

  template <typename Visit> void fields(Visit &&visit) {
    for (Site &site : sites)
      visit(site.inputs), visit(site.outputs);
  }

private:
  struct Site {
    std::string name;
    numerics::Gram inputs, outputs;
  };
  std::vector<Site> sites;
  bool hasRows;
  std::vector<float> squares; ///< |g|^2, by token
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_LOSSHESSIANS_H
