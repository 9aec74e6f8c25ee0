//===- Linear.cpp - Linears on integer activations ------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "LinearKernels.h"
#include "ResultWriter.h"
#include "WeightParams.h"

#include "easyquant/Codegen/GPU/Emit.h"

using namespace mlir;

namespace easyquant::gpu {

mlir::gpu::GPUFuncOp getOrEmitLinear(mlir::gpu::GPUModuleOp module, const LinearSpec &spec,
                                     const LinearKernel &kernel, const Chip &) {
  return getOrEmitKernel(module, kernel.description,
                         [&](KernelBuilder &b, const KernelArguments &arguments) {
                           if (kernel.form == LinearKernel::Matrix)
                             emitMatrixLinear(b, spec, kernel.tile, arguments);
                           else
                             emitDotLinear(b, spec, kernel.rows, arguments);
                         });
}

mlir::gpu::GPUFuncOp getOrEmitRescale(mlir::gpu::GPUModuleOp module, const RescaleSpec &spec,
                                      const Chip &chip) {
  Description description = describe(spec, chip);
  return getOrEmitKernel(
      module, description, [&](KernelBuilder &b, const KernelArguments &arguments) {
        const int64_t width = spec.n % 2 == 0 ? 2 : 1;
        Type type = width == 1 ? b.i32() : Type(b.vec(width, b.i32()));
        WeightParams params(b, spec.bits, spec.scales);
        ResultWriter writer(b, {spec.n, spec.bias, spec.accumulate, Float::F32}, arguments, width);
        writer.columnsAreWhole = true;
        Value m = b.block(0);
        Value row = b.rowOf(arguments["sums"], m, arguments["sums_stride"], b.i32());
        Value rowScale = b.load(b.advance(arguments["scales"], m, b.f32()), b.f32(), true);
        b.forLoop(b.mul(b.thread(), width), spec.n, description.threads * width, [&](Value n) {
          Value sums = b.load(b.advance(row, n, b.i32()), type, /*constant=*/true);
          KernelBuilder::Values values =
              params.loadScales(b.advance(arguments["wscales"], n, params.scaleType()), width);
          for (auto [i, value] : llvm::enumerate(values))
            value = b.mulf(rowScale, b.mulf(value, b.toFloat(b.extract(sums, i))));
          writer.write(m, n, values);
        });
      });
}

} // namespace easyquant::gpu
