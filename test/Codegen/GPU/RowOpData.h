//===- RowOpData.h - Inputs and results of simulated row operations -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_GPU_ROWOPDATA_H
#define EASYQUANT_TEST_CODEGEN_GPU_ROWOPDATA_H

#include "SimtRunner.h"

#include "easyquant/Numerics/Reference.h"

#include <random>

namespace easyquant::gpu {

inline constexpr double kEpsilon = 1e-5, kConstant = 2.5;

inline RowSpec specOf(RowOp op, int64_t columns) {
  RowSpec spec;
  spec.op = op;
  spec.columns = columns;
  spec.constant = op == RowOp::Multiply || op == RowOp::SoftCap ? kConstant : kEpsilon;
  return spec;
}

/// Random rows, with a row of zeros, one with a huge outlier, one of denormals and one of large
/// values among them when there are enough; rows a bit apart.
struct RowInputs {
  RowInputs(int64_t rows, int64_t columns)
      : rows(rows), columns(columns), stride(columns + 16), a((rows - 1) * stride + columns),
        b(a.size()), weight(columns), bias(columns), order(columns) {
    std::mt19937 random(static_cast<unsigned>(rows * 1000 + columns));
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < std::ssize(a); ++i) {
      int64_t row = i / stride;
      float size = row == 4 ? 1e-41f : row == 5 ? 300.0f : 1.0f;
      a[i] = row == 2 ? 0.0f : size * normal(random);
      b[i] = (row == 6 ? 10.0f : 1.0f) * normal(random);
    }
    if (rows > 3)
      a[3 * stride + columns / 2] = -1e6f;
    for (int64_t i = 0; i < columns; ++i) {
      weight[i] = normal(random);
      bias[i] = normal(random);
      order[i] = static_cast<int32_t>(i);
    }
    std::ranges::shuffle(order, random);
  }
  numerics::ConstMatrix matrix(const std::vector<float> &x) const {
    return {x.data(), rows, columns, stride};
  }

  int64_t rows, columns, stride;
  std::vector<float> a, b, weight, bias;
  std::vector<int32_t> order;
};

/// The values of the operation in double precision.
inline std::vector<double> expectedOf(RowOp op, const RowInputs &in) {
  std::vector<double> y(in.rows * in.columns);
  numerics::reference::Output out{y.data(), in.rows, in.columns, in.columns};
  numerics::ConstMatrix a = in.matrix(in.a), b = in.matrix(in.b);
  switch (op) {
  case RowOp::Quantize:
  case RowOp::Copy:
    for (int64_t m = 0; m < in.rows; ++m)
      std::copy_n(a.row(m), in.columns, y.begin() + m * in.columns);
    break;
  case RowOp::RmsNorm:
    numerics::reference::rmsNorm(a, in.weight.data(), kEpsilon, out);
    break;
  case RowOp::LayerNorm:
    numerics::reference::layerNorm(a, in.weight.data(), in.bias.data(), kEpsilon, out);
    break;
  case RowOp::SiluMul:
    numerics::reference::siluMul(a, b, out);
    break;
  case RowOp::GeluMul:
    numerics::reference::geluMul(a, b, out);
    break;
  case RowOp::ClampedMul:
    for (int64_t m = 0; m < a.rows; ++m)
      for (int64_t c = 0; c < a.columns; ++c) {
        const double gate = std::min<double>(a(m, c), 7.0);
        out(m, c) =
            (std::clamp<double>(b(m, c), -7, 7) + 1) * gate / (1.0 + std::exp(-1.702 * gate));
      }
    break;
  case RowOp::Mul:
    for (int64_t m = 0; m < a.rows; ++m)
      for (int64_t c = 0; c < a.columns; ++c)
        out(m, c) = static_cast<double>(a(m, c)) * b(m, c);
    break;
  case RowOp::SigmoidMul:
    for (int64_t m = 0; m < a.rows; ++m)
      for (int64_t c = 0; c < a.columns; ++c)
        out(m, c) = b(m, c) / (1.0 + std::exp(-static_cast<double>(a(m, c))));
    break;
  case RowOp::GeluTanh:
    numerics::reference::geluTanh(a, out);
    break;
  case RowOp::GeluErf:
    numerics::reference::geluErf(a, out);
    break;
  case RowOp::Add:
    numerics::reference::add(a, b, out);
    break;
  case RowOp::AddBias:
    for (int64_t m = 0; m < in.rows; ++m)
      for (int64_t c = 0; c < in.columns; ++c)
        y[m * in.columns + c] = static_cast<double>(a(m, c)) + in.bias[c];
    break;
  case RowOp::Multiply:
    numerics::reference::multiply(a, kConstant, out);
    break;
  case RowOp::SoftCap:
    numerics::reference::softCap(a, kConstant, out);
    break;
  case RowOp::Gather:
    for (int64_t m = 0; m < in.rows; ++m)
      for (int64_t c = 0; c < in.columns; ++c)
        y[m * in.columns + c] = a(m, in.order[c]);
    break;
  }
  return y;
}

/// The inputs in device memory, under the names of the parameters.
struct DeviceRows {
  DeviceRows(simt::Device &device, const RowInputs &in, RowOp op)
      : a(device, in.a), b(device, in.b), weight(device, in.weight), bias(device, in.bias),
        order(device, in.order) {
    bool two = isGated(op) || op == RowOp::Add;
    std::string first = isGated(op) ? "gate" : op == RowOp::Add ? "a" : "x";
    arguments.emplace(first, a);
    arguments.emplace(first + "_stride", in.stride);
    if (two) {
      arguments.emplace(isGated(op) ? "up" : "b", b);
      arguments.emplace(isGated(op) ? "up_stride" : "b_stride", in.stride);
    }
    if (op == RowOp::RmsNorm || op == RowOp::LayerNorm)
      arguments.emplace("weight", weight);
    if (op == RowOp::LayerNorm || op == RowOp::AddBias)
      arguments.emplace("bias", bias);
    if (op == RowOp::Gather)
      arguments.emplace("order", order);
  }
  DeviceBuffer<float> a, b, weight, bias;
  DeviceBuffer<int32_t> order;
  std::map<std::string, Argument> arguments;
};

} // namespace easyquant::gpu

#endif // EASYQUANT_TEST_CODEGEN_GPU_ROWOPDATA_H
