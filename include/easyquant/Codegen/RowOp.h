//===- RowOp.h - Row-wise operations of all targets -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_ROWOP_H
#define EASYQUANT_CODEGEN_ROWOP_H

namespace easyquant {

/// Copy rounds to the type of the output, where that is another one than the input's. Gather reads
/// the columns of a row in an order that is given. AddBias adds a vector to each row.
enum class RowOp {
  Quantize,
  RmsNorm,
  LayerNorm,
  SiluMul,
  GeluMul,    ///< with the tanh approximation
  ClampedMul, ///< the gate and up of gpt-oss
  Mul,
  SigmoidMul,
  GeluTanh,
  GeluErf,
  Add,
  Multiply,
  SoftCap,
  Copy,
  Gather,
  AddBias
};

/// ClampedMul: the most that a gate is, and up and its negative are, and the factor in the sigmoid.
constexpr double kGateClamp = 7.0, kGateSlope = 1.702;

/// Whether it reads gate and up.
constexpr bool isGated(RowOp op) {
  return op == RowOp::SiluMul || op == RowOp::GeluMul || op == RowOp::ClampedMul ||
         op == RowOp::Mul || op == RowOp::SigmoidMul;
}

/// The operation in the names of kernels.
constexpr const char *nameOf(RowOp op) {
  switch (op) {
  case RowOp::Quantize:
    return "quantize";
  case RowOp::RmsNorm:
    return "rms_norm";
  case RowOp::LayerNorm:
    return "layer_norm";
  case RowOp::SiluMul:
    return "silu_mul";
  case RowOp::GeluMul:
    return "gelu_mul";
  case RowOp::ClampedMul:
    return "clamped_mul";
  case RowOp::Mul:
    return "mul";
  case RowOp::SigmoidMul:
    return "sigmoid_mul";
  case RowOp::GeluTanh:
    return "gelu_tanh";
  case RowOp::GeluErf:
    return "gelu_erf";
  case RowOp::Add:
    return "add";
  case RowOp::Multiply:
    return "multiply";
  case RowOp::SoftCap:
    return "soft_cap";
  case RowOp::Copy:
    return "copy";
  case RowOp::Gather:
    return "gather_columns";
  case RowOp::AddBias:
    return "add_bias";
  }
  __builtin_unreachable();
}

/// How a row operation's result is quantized to int8.
enum class RowQuantization {
  None,
  Dynamic, ///< per token, symmetric: definition 2 of Numerics/Quantize.h
  Static,  ///< scale and zero point are given: definition 3
  Online,  ///< the same with the scale that each row's sequence keeps; rows' extrema are noted
};

/// Quantize is dynamic unless it is static or online; the others are as they say.
constexpr RowQuantization effectiveQuantization(RowOp op, RowQuantization quantization) {
  bool unsaid = op == RowOp::Quantize && quantization == RowQuantization::None;
  return unsaid ? RowQuantization::Dynamic : quantization;
}

} // namespace easyquant

#endif // EASYQUANT_CODEGEN_ROWOP_H
