//===- RowLaunches.h - Row-wise operations of all targets -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels of row-wise operations have the same parameters on all targets, but for where a sequence
// keeps its online scales.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_KERNELLIBRARY_ROWLAUNCHES_H
#define EASYQUANT_LIB_KERNELLIBRARY_ROWLAUNCHES_H

#include "Arguments.h"

#include "easyquant/Codegen/RowOp.h"
#include "easyquant/KernelLibrary/KernelLibrary.h"

namespace easyquant {

/// Launches a row-wise operation; the arguments are what it reads.
using RowLaunch = std::function<mlir::LogicalResult(LaunchBuilder &, const KernelOps &, RowOp,
                                                    double constant, Arguments &)>;
/// Row-wise ops, alone or followed by what makes codes.
void addRowOps(KernelLibrary &library, const RowLaunch &launch);

/// The kernels of a gate.
RowOp rowOpOf(lm::GluActivation activation);

/// The rows that the operation is on.
mlir::Value rowsOf(const KernelOps &kernel);

/// Sets the memory for codes, and what they are made with, but for the state of online scales.
mlir::LogicalResult setQuantization(LaunchBuilder &b, equant::QuantizeRowsOp op,
                                    const KernelOps &kernel, Arguments &arguments);
/// What specs of all targets say of it.
template <typename Spec> void describeQuantization(Spec &spec, equant::QuantizeRowsOp op) {
  spec.quantization = op.getOnline()      ? RowQuantization::Online
                      : op.getScaleAttr() ? RowQuantization::Static
                                          : RowQuantization::Dynamic;
  equant::RowsType type = op.getRows().getType();
  spec.groupSize = type.getSums().value_or(0);
  spec.zeroPoints = bool(type.getPart(equant::RowsType::Part::ZeroPoints));
  spec.fullRange = op.getScaleAttr() && op.getScheme().getFullRange();
  spec.sinks = op.getScheme().getSinks();
}

} // namespace easyquant

#endif // EASYQUANT_LIB_KERNELLIBRARY_ROWLAUNCHES_H
