// RUN: easyquant-opt %s --equant-absmax=scheme=NVFP4A16 --equant-check-plans
// RUN: easyquant-opt %s --equant-absmax=scheme=NVFP4A16 --equant-check-plans=target=cpu,gpu
// RUN: easyquant-opt %s --equant-absmax=scheme=W3A8 --equant-check-plans=target=sm_90a
// RUN: easyquant-opt %s --equant-absmax=scheme=FP8_DYNAMIC --equant-check-plans=target=gpu
// RUN: not easyquant-opt %s --equant-absmax="scheme=W4A16 group-size=8" --equant-check-plans=target=gpu 2>&1 | FileCheck %s --check-prefix=GROUPS
// RUN: not easyquant-opt %s --equant-check-plans=target=tpu 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// Checkpoints hold plans, or do not.
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A16 group-size=8" --equant-check-plans=format=gptq
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W5A16 group-size=8" --equant-check-plans=format=gptq 2>&1 | FileCheck %s --check-prefix=FORMAT
// RUN: easyquant-opt %s "--equant-absmax=scheme=W2A16 group-size=8" "--equant-check-plans=format=onnx opset=25"
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W2A16 group-size=8" "--equant-check-plans=format=onnx opset=21" 2>&1 | FileCheck %s --check-prefix=OPSET
// RUN: not easyquant-opt %s --equant-absmax=scheme=NVFP4A16 --equant-check-plans=format=onnx 2>&1 | FileCheck %s --check-prefix=FP4
// RUN: not easyquant-opt %s --equant-check-plans=format=tflite 2>&1 | FileCheck %s --check-prefix=NOFORMAT
// A site without a plan stays float, and needs no kernel.
// RUN: easyquant-opt %s --equant-check-plans=target=cpu,gpu

// UNKNOWN: error: unknown target 'tpu'; expected cpu, x86_64, aarch64, avx2, avx512vnni, neon-dot, neon-i8mm, gpu, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_120a
// GROUPS: error: site 'q': weights as int4 symmetric, groups of 8, {{.*}}: the GPU kernels take group sizes that are 16 or multiples of 32 (such as 16); compile it with --target cpu
// FORMAT: error: site 'q': gptq holds integers of 2, 3, 4 or 8 bits, found int5 symmetric, groups of 8, f16 scales; take another scheme, or compressed-tensors
// NOFORMAT: error: there is no format 'tflite' of checkpoints; expected compressed-tensors, gptq, gptq_v2, awq, gguf, onnx
// OPSET: error: site 'q': opset 21 has no operators for weights as int2 symmetric, groups of 8, f16 scales; take --opset 25, or leave it out
// FP4: error: site 'q': onnx holds integers, and FP8 with a scale a row, found f4E2M1FN, groups of 16, f8E4M3FN scales, scaled; take an integer scheme

ml_program.global private @q.weight(#ml_program.extern<tensor<64x32xf32>>) : tensor<64x32xf32>

func.func @forward(%x: tensor<?x32xf32>) -> tensor<?x64xf32> {
  %w = ml_program.global_load_const @q.weight : tensor<64x32xf32>
  %y = lm.linear %x, %w {site = "q"} : (tensor<?x32xf32>, tensor<64x32xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
