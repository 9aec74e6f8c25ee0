// An embedding reads the rows of the weight that the head multiplies with: codes of 3 bits, or a float weight's fragments of bf16.

// RUN: rm -rf %t && split-file %s %t
// RUN: env EASYQUANT_CUDA_BIN=/nowhere easyquant-opt %t/codes.mlir --easyquant-emit-gpu-program="output=%t/codes target=sm_80 max-rows=4" -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=CODES < %t/codes/program.gpu.json
// RUN: env EASYQUANT_CUDA_BIN=/nowhere easyquant-opt %t/tied.mlir --easyquant-emit-gpu-program="output=%t/tied target=sm_80 max-rows=4" -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=TIED < %t/tied/program.gpu.json

// CODES: "name":"embedding_70x64_i3_m16n8k16"
// CODES: "launches":[{"arguments":{{\[}}["tokens"],["weights",4096],["weights",8192],["logits"],["i32",64],["rows"]]

// TIED: "name":"embedding_40x64_bf16_fragments"
// TIED: "name":"linear_40x64_bf16_bf16_f32_stream_1"
// TIED: "launches":[{"arguments":{{\[}}["tokens"],["weights",4096],["arena"{{[^]]*}}],["i32",64],["rows"]]
// TIED: {"arguments":{{\[}}["arena"{{[^]]*}}],["i32",64],["weights",4096],["logits"]

//--- codes.mlir
!w = !equant.weight<70x64, #equant.scheme<i3, symmetric, channel>, #equant.layout<m16n8k16>>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 4096, 8192>}

func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x64xf32> {
  %w = ml_program.global_load_const @w : !w
  %x = equant.embedding %tokens, %w : (tensor<?xi32>, !w) -> tensor<?x64xf32>
  return %x : tensor<?x64xf32>
}

//--- tied.mlir
ml_program.global private @w(#ml_program.extern : tensor<40x64xf32>) : tensor<40x64xf32> {equant.bf16_offset = 4096 : i64}

func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x40xf32> {
  %table = ml_program.global_load_const @w : tensor<40x64xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<40x64xf32> -> tensor<?x64xf32>
  %w = ml_program.global_load_const @w : tensor<40x64xf32>
  %y = lm.linear %x, %w {site = "lm_head"} : (tensor<?x64xf32>, tensor<40x64xf32>) -> tensor<?x40xf32>
  return %y : tensor<?x40xf32>
}
