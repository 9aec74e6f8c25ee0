//===- LossHessians.cpp - What an error of a weight costs the model -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Execution/LossHessians.h"

#include "easyquant/Numerics/Gradients.h"
#include "easyquant/Support/Parallel.h"

using namespace easyquant;
using namespace easyquant::execution;
using numerics::ConstMatrix;
using numerics::Matrix;

double easyquant::execution::costOf(const HessianPair &hessians, ConstMatrix error,
                                    unsigned threads) {
  const int64_t rows = error.rows, columns = error.columns;
  std::vector<float> left(rows * columns), right(rows * columns);
  numerics::linearInputGradient(error, {hessians.inputs.data(), columns, columns},
                                Matrix(left.data(), rows, columns), threads);
  numerics::linearInputGradient({hessians.outputs.data(), rows, rows}, error,
                                Matrix(right.data(), rows, columns), threads);
  double cost = 0;
  for (int64_t i = 0; i < rows * columns; ++i)
    cost += static_cast<double>(left[i]) * right[i];
  return cost;
}

double easyquant::execution::divergenceOf(const HessianPair &hessians, ConstMatrix error,
                                          unsigned threads) {
  double trace = 0;
  for (int64_t i = 0; i < error.rows; ++i)
    trace += hessians.outputs[i * error.rows + i];
  return costOf(hessians, error, threads) / (4 * trace);
}

LossHessians::LossHessians(llvm::ArrayRef<LossWeight> weights, bool rows) : hasRows(rows) {
  for (const LossWeight &weight : weights)
    all.push_back(
        {weight.name, numerics::Gram(weight.columns), numerics::Gram(rows ? weight.rows : 0)});
}

Result<void> LossHessians::add(llvm::ArrayRef<TrainedLayer::Rows> rows, unsigned threads) {
  for (auto [sums, values] : llvm::zip_equal(all, rows)) {
    const ConstMatrix x = values.input, g = values.gradient;
    squares.resize(g.rows);
    parallelFor(g.rows, threads, [&](int64_t i) {
      double square = 0;
      for (int64_t j = 0; j < g.columns; ++j)
        square += static_cast<double>(g(i, j)) * g(i, j);
      squares[i] = static_cast<float>(square);
    });
    Result<void> done = sums.inputs.update(x, squares, threads);
    if (done && hasRows)
      done = sums.outputs.update(g, threads);
    if (!done)
      return makeError(done.error().code, "gradients of the loss at {}: {}", sums.name,
                       done.error().message);
  }
  return {};
}

void LossHessians::merge(const LossHessians &later) {
  for (auto [mine, theirs] : llvm::zip_equal(all, later.all)) {
    mine.inputs.merge(theirs.inputs);
    mine.outputs.merge(theirs.outputs);
  }
}

HessianPair LossHessians::take(size_t i) {
  Sums &sums = all[i];
  return {sums.inputs.tokens(), std::move(sums.inputs).takeHessian(),
          std::move(sums.outputs).takeHessian()};
}
