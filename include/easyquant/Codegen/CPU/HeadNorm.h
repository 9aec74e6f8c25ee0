//===- HeadNorm.h - The kernel of lm.head_rms_norm ----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CODEGEN_CPU_HEADNORM_H
#define EASYQUANT_CODEGEN_CPU_HEADNORM_H

#include "easyquant/Codegen/CPU/Kernels.h"

namespace easyquant::cpu {

/// Divides every head of x, rows<heads*D>, by its root mean square, in place, and multiplies it
/// with the weight, memref<Dxf32>.
struct HeadNormSpec {
  int64_t heads = 0, headDim = 0;
  double epsilon = 0.0;
};
std::string symbolName(const HeadNormSpec &spec);
Description describe(const HeadNormSpec &spec, mlir::MLIRContext *context);
mlir::func::FuncOp getOrEmitHeadNorm(mlir::ModuleOp module, const HeadNormSpec &spec,
                                     const Target &target);

} // namespace easyquant::cpu

#endif // EASYQUANT_CODEGEN_CPU_HEADNORM_H
