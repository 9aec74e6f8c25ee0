//===- Passes.td - GPU kernels and their lowering ----------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_GPUKERNELS_PASSES
#define EASYQUANT_CONVERSION_GPUKERNELS_PASSES

include "easyquant/Support/PassOptions.td"

include "mlir/Pass/PassBase.td"

def EmitGPUKernels : Pass<"equant-emit-gpu-kernels", "::mlir::ModuleOp"> {
  let summary = "Generate the GPU kernels that the ops of a model need";
  let description = [{
    Every linear, norm, activation function, rotation and attention gets the kernels that compute it on a GPU: functions of the
    `gpu.module` `@kernels`, one for each different spec, named by the op's attribute `equant.kernels` (a linear has several,
    for ever more rows). An activation that only linears on int8 activations read is quantized by the kernel that makes it;
    weight-only and float linears take bf16. The ops stay as they are; others are left alone. `--easyquant-gpu-pipeline="chip=sm_90a"` does this
    and lowers the kernels to NVVM.

    ```mlir
    %y = equant.linear %x, %codes scale(%s) {sites = ["q"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
                                             input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : …
    ```
    becomes
    ```mlir
    gpu.module @kernels { gpu.func @linear_64x64_i8_q_f32_mma_16x128x128(…) kernel { … } … }
    %y = equant.linear %x, %codes scale(%s) {…, equant.kernels = [@kernels::@linear_64x64_i8_q_f32_dp4a_1, …]} : …
    ```
  }];
  let options = [
    TextOption<"chip", "chip", "sm_80", "GPU: sm_80, sm_86, sm_87, sm_89 or sm_90a">,
  ];
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::gpu::GPUDialect", "::mlir::LLVM::LLVMDialect", "::mlir::math::MathDialect",
    "::mlir::NVVM::NVVMDialect", "::mlir::scf::SCFDialect", "::mlir::vector::VectorDialect",
  ];
}

def LowerToNVVM : Pass<"equant-lower-to-nvvm", "::mlir::ModuleOp"> {
  let summary = "Lower the kernels of every gpu.module to the NVVM dialect";
  let description = [{
    `gpu.func`, `scf`, `arith`, `math` and `vector` become `llvm` and `nvvm`; the `gpu.module` gets the target
    `#nvvm.target<chip = …>`, for which `equant-emit-gpu-binary` makes code.
  }];
  let options = [
    TextOption<"chip", "chip", "sm_80", "GPU: sm_80, sm_86, sm_87, sm_89 or sm_90a">,
  ];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect", "::mlir::NVVM::NVVMDialect"];
}

def EmitGPUBinary : Pass<"equant-emit-gpu-binary", "::mlir::ModuleOp"> {
  let summary = "Write lowered kernels as PTX and as machine code";
  let description = [{
    Takes a module after `equant-lower-to-nvvm` and writes the kernels of its `gpu.module` to the files that are named:
    `ptx` is text, made by LLVM; `cubin` is the machine code of the chip, made by `ptxas`, which has to be there. The IR stays
    as it is.
  }];
  let options = [
    Option<"ptx", "ptx", "std::string", "\"\"", "file for the PTX (- for standard output)">,
    Option<"cubin", "cubin", "std::string", "\"\"", "file for the machine code">,
  ];
}

#endif // EASYQUANT_CONVERSION_GPUKERNELS_PASSES
