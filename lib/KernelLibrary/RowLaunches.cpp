//===- RowLaunches.cpp - Row-wise operations of all targets ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "RowLaunches.h"

using namespace mlir;
using namespace easyquant;

RowOp easyquant::rowOpOf(lm::GluActivation activation) {
  switch (activation) {
  case lm::GluActivation::Silu:
    return RowOp::SiluMul;
  case lm::GluActivation::GeluTanh:
    return RowOp::GeluMul;
  case lm::GluActivation::Clamped:
    return RowOp::ClampedMul;
  case lm::GluActivation::None:
    return RowOp::Mul;
  case lm::GluActivation::Sigmoid:
    return RowOp::SigmoidMul;
  }
  llvm_unreachable("every activation of a gate is a row operation");
}

Value easyquant::rowsOf(const KernelOps &kernel) {
  if (isa<equant::OnlineScaleOp>(kernel.first()))
    return kernel.find<equant::QuantizeRowsOp>().getInput();
  return kernel.first()->getOperand(0);
}

LogicalResult easyquant::setQuantization(LaunchBuilder &b, equant::QuantizeRowsOp op,
                                         const KernelOps &kernel, Arguments &arguments) {
  if (failed(checkOnline(op, kernel)))
    return failure();
  Value rows = b.rows(b[rowsOf(kernel)]);
  if (op.getAbsmax())
    arguments.set("absmax", b[op.getAbsmax()]);
  if (op.getScaleAttr())
    arguments.set("scale", b.constant(op.getScaleAttr()));
  if (op.getZeroPointAttr())
    arguments.set("zero", b.constant(op.getZeroPointAttr()));
  arguments.setResultCodes(op.getRows(), rows);
  auto scale = kernel.find<equant::OnlineScaleOp>();
  if (!scale)
    return success();
  auto track = kernel.find<equant::TrackOp>();
  const int64_t fields = scale.getState().getType().getFields();
  arguments.set("first", b.index(static_cast<int64_t>(scale.getIndex()) * fields));
  Value extrema = b.extrema(track.getState(), rows);
  if (!extrema)
    return track.emitOpError("has a state of other sites than those before it");
  arguments.set("extrema", b.columns(extrema, 2 * static_cast<int64_t>(track.getIndex()), 2));
  return success();
}

void easyquant::addRowOps(KernelLibrary &library, const RowLaunch &launch) {
  auto unary = [launch](LaunchBuilder &b, const KernelOps &kernel, RowOp op) {
    Arguments arguments(b, {{"x", b[rowsOf(kernel)]}});
    return launch(b, kernel, op, 0, arguments);
  };
  library.add<equant::QuantizeRowsOp>([unary](auto &b, auto op, const KernelOps &kernel) {
    return unary(b, kernel, RowOp::Quantize);
  });
  library.add<equant::OnlineScaleOp>([unary](auto &b, auto op, const KernelOps &kernel) {
    auto quantize = kernel.find<equant::QuantizeRowsOp>();
    if (!quantize || quantize.getInput().getParentBlock() == op->getBlock())
      return LogicalResult(op.emitOpError("expected to be fused with a quantization of rows that "
                                          "another kernel has made"));
    return unary(b, kernel, RowOp::Quantize);
  });
  library.add<equant::HadamardOp>([unary](auto &b, auto op, const KernelOps &kernel) {
    if (op.getInput().getType().hasStaticShape())
      return LogicalResult(op.emitOpError(
          "rotates a constant: run equant-materialize-weights before, which evaluates it"));
    const bool isQuantized = bool(kernel.find<equant::QuantizeRowsOp>());
    return unary(b, kernel, isQuantized ? RowOp::Quantize : RowOp::Copy);
  });
  library.add<equant::GatherColumnsOp>(
      [launch](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        Arguments arguments(b, {{"x", b[op.getInput()]}});
        if (failed(arguments.setWeight("order", op.getOrder())))
          return failure();
        return launch(b, kernel, RowOp::Gather, 0, arguments);
      });
  library.add<lm::GeluOp>([unary](auto &b, auto op, const KernelOps &kernel) {
    bool tanh = op.getApproximate() == lm::GeluApproximation::Tanh;
    return unary(b, kernel, tanh ? RowOp::GeluTanh : RowOp::GeluErf);
  });
  library.add<lm::RmsNormOp>([launch](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    if (failed(arguments.setWeight("weight", op.getWeight())))
      return failure();
    return launch(b, kernel, RowOp::RmsNorm, op.getEpsilon().convertToDouble(), arguments);
  });
  library.add<lm::LayerNormOp>(
      [launch](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        Arguments arguments(b, {{"x", b[op.getInput()]}});
        if (failed(arguments.setWeight("weight", op.getWeight())) ||
            failed(arguments.setWeight("bias", op.getBias())))
          return failure();
        return launch(b, kernel, RowOp::LayerNorm, op.getEpsilon().convertToDouble(), arguments);
      });
  library.add<lm::GluOp>([launch](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"gate", b[op.getGate()]}, {"up", b[op.getUp()]}});
    return launch(b, kernel, rowOpOf(op.getActivation()), 0, arguments);
  });
  library.add<lm::MultiplyOp>([launch](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    return launch(b, kernel, RowOp::Multiply, op.getFactor().convertToDouble(), arguments);
  });
  library.add<lm::SoftCapOp>([launch](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"x", b[op.getInput()]}});
    return launch(b, kernel, RowOp::SoftCap, op.getBound().convertToDouble(), arguments);
  });
  library.add<equant::AddBiasOp>(
      [launch](auto &b, auto op, const KernelOps &kernel) -> LogicalResult {
        Arguments arguments(b, {{"x", b[op.getInput()]}});
        if (failed(arguments.setWeight("bias", op.getBias())))
          return failure();
        return launch(b, kernel, RowOp::AddBias, 0, arguments);
      });
  library.add<lm::AddOp>([launch](auto &b, auto op, const KernelOps &kernel) {
    Arguments arguments(b, {{"a", b[op.getLhs()]}, {"b", b[op.getRhs()]}});
    return launch(b, kernel, RowOp::Add, 0, arguments);
  });
}
