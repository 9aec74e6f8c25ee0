//===- RowGradients.h - Gradients of row-wise operations --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_CPU_ROWGRADIENTS_H
#define EASYQUANT_CODEGEN_CPU_ROWGRADIENTS_H

#include "easyquant/Codegen/CPU/Kernels.h"

namespace easyquant::cpu {

/// The gradient of a norm, of rows or of heads, of SiluMul or of Gelu; dy is that of the result.
/// It is dx of norms, by x and the weight, memref<Dxf32>, and of Gelu, by x; dgate and dup of
/// SiluMul, by gate and up.
struct RowGradientSpec {
  RowOp op = RowOp::RmsNorm;
  int64_t columns = 0;
  int64_t width = 0;    ///< D: every D columns are normalized by themselves
  double epsilon = 0.0; ///< of the norms
};
std::string symbolName(const RowGradientSpec &spec);
Description describe(const RowGradientSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitRowGradient(mlir::ModuleOp module, const RowGradientSpec &spec,
                                        const Target &target);

} // namespace easyquant::cpu

#endif // EASYQUANT_CODEGEN_CPU_ROWGRADIENTS_H
