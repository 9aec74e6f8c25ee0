//===- LayerLoss.cpp - What a layer's weights are trained by --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LayerLoss.h"

#include <algorithm>
#include <cmath>

namespace easyquant::numerics {

LayerLoss::LayerLoss(DifferentiableLayer &layer, std::span<const ConstMatrix> targets,
                     double heldOut, int64_t skippedRows, std::string_view remedy)
    : layer(layer), targets(targets), skippedRows(skippedRows), remedy(remedy) {
  const auto count = static_cast<double>(targets.size());
  training =
      targets.size() - static_cast<size_t>(std::clamp(std::round(heldOut * count), 1.0, count - 1));
}

Result<double> LayerLoss::of(size_t sequence, std::span<const Matrix> gradients) {
  ConstMatrix target = targets[sequence];
  output.resize(target.rows * target.columns);
  Matrix y(output.data(), target.rows, target.columns);
  if (auto done = layer.forward(sequence, y); !done)
    return Unexpected(done.error());
  const int64_t skipped = std::min(skippedRows, y.rows);
  const double count = static_cast<double>(std::max<int64_t>((y.rows - skipped) * y.columns, 1));
  double sum = 0;
  for (int64_t i = 0; i < y.rows; ++i)
    for (int64_t j = 0; j < y.columns; ++j) {
      double difference = i < skipped ? 0 : static_cast<double>(y(i, j)) - target(i, j);
      sum += difference * difference;
      y(i, j) = static_cast<float>(2 * difference / count); // dL/dy from here on
    }
  if (!std::isfinite(sum))
    return makeError(ErrorCode::InvalidArgument,
                     "the output of the quantized layer is not finite on sequence {}{}", sequence,
                     remedy);
  if (!gradients.empty())
    if (auto done = layer.backward(sequence, y, gradients); !done)
      return Unexpected(done.error());
  return sum / count;
}

Result<double> LayerLoss::ofHeldOut() {
  double sum = 0;
  for (size_t i = training; i < targets.size(); ++i) {
    auto one = of(i);
    if (!one)
      return one;
    sum += *one;
  }
  return sum / static_cast<double>(targets.size() - training);
}

} // namespace easyquant::numerics
