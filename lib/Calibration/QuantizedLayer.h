//===- QuantizedLayer.h - A layer as its plans would have it ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Weights are rounded to nearest and dequantized; where a plan has a scheme of inputs, the layer is
// cut at what such sites read, and the rows are quantized and dequantized there. Between the cuts
// run the float kernels. Integer kernels differ from it by the rounding of float sums. Private to
// lib/Calibration.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CALIBRATION_QUANTIZEDLAYER_H
#define EASYQUANT_LIB_CALIBRATION_QUANTIZEDLAYER_H

#include "easyquant/Execution/LayerSites.h"

#include "mlir/IR/OwningOpRef.h"

namespace easyquant::calibration {

using namespace execution;

/// Fails with a diagnostic on a plan that is not round to nearest with inputs quantized per token:
/// computed codes or scales, static inputs.
mlir::LogicalResult checkRoundsToNearest(const PlannedSite &site);

class QuantizedLayer {
public:
  /// Rounds the weights and compiles the pieces. Fails with a diagnostic.
  static mlir::FailureOr<QuantizedLayer> create(LayerRunner &runner, mlir::func::FuncOp layer);

  /// Takes one sample through the layer: T rows of hidden states each. Errors: those of
  /// LayerRunner::runSample.
  Result<void> run(int64_t sample, numerics::ConstMatrix input, numerics::Matrix output);

private:
  /// From what is known to `subgraph.outputs`, of which there is one. What `quantized` stands for
  /// is known from then on; null for the last piece.
  struct Piece {
    Subgraph subgraph;
    mlir::Value quantized;
    equant::SchemeAttr scheme; ///< of what is quantized
    CompiledSubgraph program;
  };

  explicit QuantizedLayer(LayerRunner &runner) : runner(&runner) {}

  LayerRunner *runner;
  std::string name;
  /// A copy in which the sites with quantized inputs read arguments of their own.
  mlir::OwningOpRef<mlir::func::FuncOp> copy;
  std::vector<Piece> pieces;
};

} // namespace easyquant::calibration

#endif // EASYQUANT_LIB_CALIBRATION_QUANTIZEDLAYER_H
