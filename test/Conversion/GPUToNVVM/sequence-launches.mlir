// Every launch is for all rows of a step, for those whose logits are asked for, or for the pieces that its attention is cut into: none is for
// one sequence.

// RUN: easyquant-opt %s "--easyquant-launches=target=sm_80 max-rows=16" | FileCheck %s
// RUN: easyquant-opt %s "--easyquant-launches=target=sm_80 max-rows=16" --launch-print -o /dev/null | FileCheck %s --check-prefix=PRINT
// RUN: env EASYQUANT_CUDA_BIN=/nowhere easyquant-opt %s --easyquant-emit-gpu-program="output=%t target=sm_80 max-rows=16" -o /dev/null 2>/dev/null
// RUN: FileCheck %s --check-prefix=LIST < %t/program.gpu.json

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: memref<?xi32> {launch.argument = "tokens"}, %[[SEQUENCES:[^:]*]]: memref<?x9xi32> {launch.argument = "sequences"}, %[[NUMBERS:[^:]*]]: memref<?xi32> {launch.argument = "logit_rows"},
// CHECK-SAME: %[[PAGES:[a-z0-9]*]]: memref<?xi64> {launch.argument = "pages"}, %[[PLACES:[a-z0-9]*]]: memref<?x2xi32> {launch.argument = "row_places"}
// CHECK-DAG: %[[ALL:.*]] = memref.dim %arg0
// CHECK-DAG: %[[SOME:.*]] = memref.dim %[[NUMBERS]]
// CHECK: launch.kernel {{[a-z]+}} @kernels::@embedding_
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_
// CHECK: launch.kernel {{[a-z]+}} @kernels::@heads_4_2x16_rope64_append({{.*}}, %[[PLACES]], %[[SEQUENCES]], %{{.*}}, %[[PAGES]], %[[ALL]]) {site
// CHECK: %[[FEW:.*]] = launch.pieces {max_rows = 9 : i64, min_rows = 1 : i64, origin = 0 : i64, rows = 8 : i64, tokens = 256 : i64, window = 0 : i64}
// CHECK: %[[PARTIALS:.*]] = launch.partials 288
// CHECK: %[[COUNTERS:.*]] = launch.partial_counters 2
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_{{.*}}_split256_f32({{.*}}, %[[PAGES]], %[[SEQUENCES]], %[[FEW]], %[[PARTIALS]], %[[COUNTERS]], {{.*}}) {site
// CHECK: %[[MANY:.*]] = launch.pieces {max_rows = 0 : i64, min_rows = 10 : i64, origin = 0 : i64, rows = 32 : i64, tokens = 0 : i64, window = 0 : i64}
// CHECK: launch.kernel {{[a-z]+}} @kernels::@attention_{{.*}}_blocked_f32({{.*}}, %[[PAGES]], %[[SEQUENCES]], %[[MANY]], {{.*}}) {site
// CHECK: %[[Y:.*]] = launch.buffer(%[[SOME]])
// CHECK: launch.kernel other @kernels::@gather_64(%{{.*}}, %[[STRIDE:.*]], %[[NUMBERS]], %[[Y]], %{{.*}}, %[[SOME]]) {

// PRINT: @kernels::@heads_4_2x16_rope64_append  reads
// PRINT: @kernels::@attention_{{.*}} for pieces of 1 to 9 rows  reads
// PRINT: @kernels::@attention_{{.*}} for pieces of 10 to all rows  reads
// PRINT: @kernels::@gather_64  reads

// LIST: "launches":[{"arguments":{{\[}}["tokens"],
// LIST-SAME: "over":"rows"
// LIST-SAME: {"arguments":{{\[}}["arena",[[QKV:[0-9]+]]],["i32",128],["weights",{{[0-9]+}}],["row_places"],["sequences"],["cache"],["pages"],["rows"]],{{[^}]*}}"over":"rows"
// LIST-SAME: {"arguments":{{\[}}["arena",{{[0-9]+}}],["i32",128],["cache"],["pages"],["sequences"],["pieces"],["partials"],["partial_counters"],["arena"{{[^]]*}}],["i32",64]],"kernel":{{[0-9]+}},"max_rows":0,"min_rows":1,"over":"pieces"
// LIST-SAME: {"arguments":{{\[}}["arena",{{[0-9]+}}],["i32",128],["cache"],["pages"],["sequences"],["pieces",1],["arena"{{[^]]*}}],["i32",64]],{{[^}]*}}"over":"pieces"
// LIST-SAME: {"arguments":{{\[}}["arena"{{[^]]*}}],["i32",64],["logit_rows"],["arena",{{[0-9]+}}],["i32",64],["rows"]],{{[^}]*}}"over":"logit_rows"
// LIST-SAME: ["logits"]{{.*}}"over":"logit_rows"
// LIST: "partial_bytes":288,"partial_counters":2,"pieces":[{"max_rows":9,"min_rows":1,
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
