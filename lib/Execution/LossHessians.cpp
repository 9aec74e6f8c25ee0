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

LossHessians::LossHessians(llvm::ArrayRef<equant::QuantizableOpInterface> ops, bool rows)
    : hasRows(rows) {
  for (equant::QuantizableOpInterface op : ops) {
    auto type = llvm::cast<mlir::RankedTensorType>(op.getWeightOperand().get().getType());
    sites.push_back({op.getSite().str(), numerics::Gram(type.getDimSize(1)),
                     numerics::Gram(rows ? type.getDimSize(0) : 0)});
  }
}

Result<void> LossHessians::add(llvm::ArrayRef<TrainedLayer::Rows> rows, unsigned threads) {
  for (auto [site, values] : llvm::zip_equal(sites, rows)) {
    const ConstMatrix x = values.input, g = values.gradient;
    squares.resize(g.rows);
    parallelFor(g.rows, threads, [&](int64_t i) {
      double square = 0;
      for (int64_t j = 0; j < g.columns; ++j)
        square += static_cast<double>(g(i, j)) * g(i, j);
      squares[i] = static_cast<float>(square);
    });
    Result<void> done = site.inputs.update(x, squares, threads);
    if (done && hasRows)
      done = site.outputs.update(g, threads);
    if (!done)
      return makeError(done.error().code, "gradients of the loss at site '{}': {}", site.name,
                       done.error().message);
  }
  return {};
}

void LossHessians::merge(const LossHessians &later) {
  for (auto [mine, theirs] : llvm::zip_equal(sites, later.sites)) {
    mine.inputs.merge(theirs.inputs);
    mine.outputs.merge(theirs.outputs);
  }
}

Result<HessianPair> LossHessians::take(size_t i) {
  Site &site = sites[i];
  HessianPair pair{site.inputs.tokens(), std::move(site.inputs).takeHessian(),
                   std::move(site.outputs).takeHessian()};
  if (llvm::all_of(pair.inputs, [](float value) { return value == 0; }))
    return makeError(
        ErrorCode::InvalidArgument,
        "site '{}': the loss of the calibration text does not depend on it: found no "
        "gradient but 0. Calibrate on longer samples, or leave this site out (--ignore)",
        site.name);
  return pair;
}
