// What takes a position is launched once for each sequence, on its rows; all else once for all rows, or for those whose logits are asked for.

// RUN: easyquant-opt %s "--easyquant-launches=target=sm_80 max-rows=16" | FileCheck %s
// RUN: easyquant-opt %s "--easyquant-launches=target=sm_80 max-rows=16" --launch-print -o /dev/null | FileCheck %s --check-prefix=PRINT
// RUN: env EASYQUANT_CUDA_BIN=/nowhere easyquant-opt %s --easyquant-emit-gpu-program="output=%t target=sm_80 max-rows=16" -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=LIST < %t/program.gpu.json

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: memref<?xi32> {launch.argument = "tokens"}, %{{[^:]*}}: memref<?x9xi32> {launch.argument = "sequences"}, %[[NUMBERS:[^:]*]]: memref<?xi32> {launch.argument = "logit_rows"},
// CHECK-DAG: %[[ALL:.*]] = memref.dim %arg0
// CHECK-DAG: %[[SOME:.*]] = memref.dim %[[NUMBERS]]
// CHECK: launch.kernel {{[a-z]+}} @kernels::@embedding_
// CHECK-NOT: each_sequence
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_
// CHECK: launch.kernel {{[a-z]+}} @kernels::@heads_4_2x16_rope64_append({{.*}}) {each_sequence,
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_{{.*}} {each_sequence,{{.*}} rows = array<i64: 1, 8>
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_combine_{{.*}} {each_sequence,{{.*}} rows = array<i64: 1, 8>
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_{{.*}} {each_sequence,{{.*}} rows = array<i64: 9, 0>
// CHECK-NOT: each_sequence
// CHECK: %[[Y:.*]] = launch.buffer(%[[SOME]])
// CHECK: launch.kernel other @kernels::@gather_64(%{{.*}}, %[[STRIDE:.*]], %[[NUMBERS]], %[[Y]], %{{.*}}, %[[SOME]]) {

// PRINT: @kernels::@heads_4_2x16_rope64_append for each sequence  reads
// PRINT: @kernels::@attention_{{.*}} for each sequence for 1 to 8 rows  reads
// PRINT: @kernels::@gather_64  reads

// Queries begin with row 0 of the sequence in a matrix of 128 floats a row, keys and values behind them; positions, pages and the
// sequence's rows are its own.
// LIST: "launches":[{"arguments":{{\[}}["tokens"],
// LIST-SAME: "over":"rows"
// LIST-SAME: {"arguments":{{\[}}["arena",[[QKV:[0-9]+]],512],["i32",128],["weights",{{[0-9]+}}],["position"],["cache"],["pages"],["rows"]],{{[^}]*}}"over":"sequence"
// LIST-SAME: {"arguments":{{\[}}["arena",{{[0-9]+}},512],["i32",128],["cache"],["pages"],["position"],["arena",{{[0-9]+}}],["rows"]],"kernel":{{[0-9]+}},"max_rows":8,"min_rows":1,"over":"sequence"
// LIST-SAME: {"arguments":{{\[}}["arena"{{[^]]*}}],["i32",64],["logit_rows"],["arena",{{[0-9]+}}],["i32",64],["rows"]],{{[^}]*}}"over":"logit_rows"
// LIST-SAME: ["logits"]{{.*}}"over":"logit_rows"
ml_program.global private @e(#ml_program.extern : tensor<40x64xf32>) : tensor<40x64xf32> {equant.offset = 0 : i64, equant.bf16_offset = 16384 : i64}
ml_program.global private @w(#ml_program.extern : tensor<128x64xf32>) : tensor<128x64xf32> {equant.bf16_offset = 32768 : i64}
ml_program.global private @rope(#ml_program.extern : tensor<64x8x2xf32>) : tensor<64x8x2xf32> {equant.offset = 65536 : i64}

!cache = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 16>

func.func @forward(%tokens: tensor<?xi32>, %batch: !lm.batch, %rows: tensor<?xi32>, %cache: !cache) -> tensor<?x40xf32> {
  %e = ml_program.global_load_const @e : tensor<40x64xf32>
  %w = ml_program.global_load_const @w : tensor<128x64xf32>
  %table = ml_program.global_load_const @rope : tensor<64x8x2xf32>
  %x = lm.embedding %tokens, %e : tensor<?xi32>, tensor<40x64xf32> -> tensor<?x64xf32>
  %qkv = lm.linear %x, %w {site = "qkv"} : (tensor<?x64xf32>, tensor<128x64xf32>) -> tensor<?x128xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x128xf32> -> tensor<?x64xf32>, tensor<?x32xf32>, tensor<?x32xf32>
  %qr = lm.rope %q, %table, %batch {head_dim = 16} : tensor<?x64xf32>, tensor<64x8x2xf32>
  %kr = lm.rope %k, %table, %batch {head_dim = 16} : tensor<?x32xf32>, tensor<64x8x2xf32>
  %a = lm.attention %qr, %kr, %v, %cache, %batch
         {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 16, scale = 0.25} : tensor<?x64xf32>, tensor<?x32xf32>, !cache
  %last = lm.rows %a at %rows : tensor<?x64xf32>, tensor<?xi32>
  %y = lm.linear %last, %e {site = "lm_head"} : (tensor<?x64xf32>, tensor<40x64xf32>) -> tensor<?x40xf32>
  return %y : tensor<?x40xf32>
}
