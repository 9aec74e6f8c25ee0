// RUN: not easyquant-opt %s --easyquant-launches=target=sm_99 2>&1 | FileCheck %s --check-prefix=CHIP
// RUN: not easyquant-opt %s --equant-lower-to-nvvm="target=sm_70" 2>&1 | FileCheck %s --check-prefix=LOWER
// RUN: not easyquant-opt %s --equant-emit-gpu-binary 2>&1 | FileCheck %s --check-prefix=TARGET
// RUN: easyquant-opt %s --equant-lower-to-nvvm -o %t.nvvm
// RUN: not env EASYQUANT_CUDA_BIN=/nowhere easyquant-opt %t.nvvm --equant-emit-gpu-binary="ptx=%t.ptx cubin=%t.cubin" 2>&1 | FileCheck %s --check-prefix=PTXAS
// RUN: FileCheck %s --check-prefix=PTX < %t.ptx
// RUN: not easyquant-opt %S/Inputs/two-modules.mlir --equant-emit-gpu-binary 2>&1 | FileCheck %s --check-prefix=TWO
// RUN: not easyquant-opt %S/Inputs/wide-heads.mlir --easyquant-launches=target=sm_80 2>&1 | FileCheck %s --check-prefix=HEADS
// RUN: not easyquant-opt %S/Inputs/wide-heads.mlir --easyquant-emit-gpu-program="output=%t.program target=sm_80" 2>&1 | FileCheck %s --check-prefix=PROGRAM

// CHIP: error: unknown target 'sm_99'; expected cpu, x86_64, aarch64, avx2, avx512vnni, neon-dot, neon-i8mm, gpu, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_120a
// LOWER: error: equant-lower-to-nvvm: no kernels for chip "sm_70"
// TARGET: error: has no #nvvm.target: run equant-lower-to-nvvm first
// PTXAS: error: no ptxas found in EASYQUANT_CUDA_BIN=/nowhere: install the Python package nvidia-cuda-nvcc
// PTXAS-SAME: without them there is PTX only
// PTX: .visible .entry nothing()
// TWO: error: equant-emit-gpu-binary: expected one gpu.module of kernels, found 2
// HEADS: error: {{.*}}no GPU kernel for attention with heads of 513 dimensions; expected at most 512
// PROGRAM: error: {{.*}}site 'model.layers.0.self_attn': no GPU kernel for attention with heads of 513 dimensions; expected at most 512; compile it with --target cpu

gpu.module @kernels {
  gpu.func @nothing() kernel {
    gpu.return
  }
}
