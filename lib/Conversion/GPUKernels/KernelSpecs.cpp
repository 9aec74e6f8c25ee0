//===- KernelSpecs.cpp - The kernels of ops -------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "KernelSpecs.h"

#include "easyquant/Numerics/FragmentPacking.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace easyquant {

int64_t columnsOf(Value matrix) { return cast<RankedTensorType>(matrix.getType()).getDimSize(1); }

/// What specs of linears have in common; false where there are no fragments of such weights.
template <typename Spec>
static bool describeWeights(Spec &spec, equant::LinearOp op, numerics::FragmentOrder order) {
  numerics::Scheme weights = op.getWeightScheme().toNumerics();
  spec.n = columnsOf(op.getOutput());
  spec.k = columnsOf(op.getInput());
  spec.bits = weights.bits;
  spec.groupSize = weights.groupSize;
  spec.zeroPoints = !weights.symmetric;
  spec.scales = weights.scales;
  spec.bias = op.getBias() != nullptr;
  return numerics::fragmentLayout(weights, order, spec.n, spec.k).has_value();
}

std::optional<gpu::LinearSpec> linearSpec(equant::LinearOp op) {
  if (!op.getInputScheme())
    return std::nullopt;
  numerics::Scheme input = op.getInputScheme()->toNumerics();
  gpu::LinearSpec spec;
  spec.inputZeroPoints = !input.symmetric;
  bool known = describeWeights(spec, op, numerics::FragmentOrder::Bytes) && input.isInteger() &&
               input.bits == 8;
  return known ? std::optional(spec) : std::nullopt;
}

std::optional<gpu::WeightOnlySpec> weightOnlySpec(Operation *op) {
  gpu::WeightOnlySpec spec;
  spec.input = kHalves;
  if (auto linear = dyn_cast<lm::LinearOp>(op)) {
    spec.bits = 16;
    spec.bias = linear.getBias() != nullptr;
    spec.n = columnsOf(linear.getOutput());
    spec.k = columnsOf(linear.getInput());
    return spec;
  }
  auto linear = dyn_cast<equant::LinearOp>(op);
  bool known = linear && !linear.getInputScheme() &&
               describeWeights(spec, linear, numerics::FragmentOrder::Halves);
  return known ? std::optional(spec) : std::nullopt;
}

std::optional<gpu::RowSpec> rowSpec(Operation *op) {
  using gpu::RowOp;
  gpu::RowSpec spec;
  bool known = llvm::TypeSwitch<Operation *, bool>(op)
                   .Case([&](lm::RmsNormOp norm) {
                     spec.op = RowOp::RmsNorm;
                     spec.epsilon = norm.getEpsilon().convertToDouble();
                     return true;
                   })
                   .Case([&](lm::LayerNormOp norm) {
                     spec.op = RowOp::LayerNorm;
                     spec.epsilon = norm.getEpsilon().convertToDouble();
                     return true;
                   })
                   .Case([&](lm::SiluMulOp) {
                     spec.op = RowOp::SiluMul;
                     return true;
                   })
                   .Case([&](lm::GeluOp gelu) {
                     bool tanh = gelu.getApproximate() == lm::GeluApproximation::Tanh;
                     spec.op = tanh ? RowOp::GeluTanh : RowOp::GeluErf;
                     return true;
                   })
                   .Default([](Operation *) { return false; });
  if (!known)
    return std::nullopt;
  spec.columns = columnsOf(op->getResult(0));
  return spec;
}

template <typename AttentionLike> static gpu::AttentionSpec specOf(AttentionLike op) {
  gpu::AttentionSpec spec;
  spec.heads = op.getNumHeads();
  spec.kvHeads = op.getNumKvHeads();
  spec.headDim = op.getHeadDim();
  spec.scale = op.getScale().convertToDouble();
  spec.window = op.getWindow();
  return spec;
}

gpu::AttentionSpec gpuAttentionSpec(Operation *attention) {
  auto op = dyn_cast<equant::AttentionOp>(attention);
  if (!op)
    return specOf(cast<lm::AttentionOp>(attention));
  gpu::AttentionSpec spec = specOf(op);
  equant::KVSchemeAttr scheme = op.getKvScheme();
  bool perToken = scheme.getKeys() == equant::Granularity::Token;
  numerics::KVScheme kv;
  kv.bits = static_cast<int>(scheme.getCode().getWidth());
  kv.group = scheme.getGroup();
  kv.residual = scheme.getResidual();
  kv.sinks = scheme.getSinks();
  kv.keys = perToken ? numerics::KeySlices::Token : numerics::KeySlices::Channel;
  spec.kv = kv;
  if (op.getTable())
    spec.keyPositions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
  return spec;
}

gpu::HeadsSpec headsSpec(lm::RopeOp op) {
  gpu::HeadsSpec spec;
  spec.headDim = op.getHeadDim();
  spec.heads = columnsOf(op.getInput()) / spec.headDim;
  spec.positions = cast<RankedTensorType>(op.getTable().getType()).getDimSize(0);
  return spec;
}

gpu::HeadsSpec headsSpec(lm::HeadRmsNormOp op) {
  gpu::HeadsSpec spec;
  spec.headDim = cast<RankedTensorType>(op.getWeight().getType()).getDimSize(0);
  spec.heads = columnsOf(op.getInput()) / spec.headDim;
  spec.norm = true;
  spec.epsilon = op.getEpsilon().convertToDouble();
  return spec;
}

} // namespace easyquant
