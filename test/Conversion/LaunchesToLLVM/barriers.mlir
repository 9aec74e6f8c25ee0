// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm -split-input-file | FileCheck %s

// A barrier stands where a kernel reads or overwrites what another thread's share of an earlier one has to do with, and nowhere else.

ml_program.global private @norm(#ml_program.extern : tensor<32xf32>) : tensor<32xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<32x32xf32>) : tensor<32x32xf32> {equant.offset = 128 : i64}
ml_program.global private @v(#ml_program.extern : tensor<64x32xf32>) : tensor<64x32xf32> {equant.offset = 4224 : i64}
ml_program.global private @rope(#ml_program.extern : tensor<16x4x2xf32>) : tensor<16x4x2xf32> {equant.offset = 12416 : i64}
ml_program.global private @heads(#ml_program.extern : tensor<8xf32>) : tensor<8xf32> {equant.offset = 12928 : i64}

// CHECK-LABEL: func.func private @forward.kernels(
func.func @forward(%x: tensor<?x32xf32>, %batch: !lm.batch, %rows: tensor<?xi32>,
                   %cache: !lm.kv_cache<layers = 1, kv_heads = 4, head_dim = 8>) -> tensor<?x32xf32> {
  %norm = ml_program.global_load_const @norm : tensor<32xf32>
  %w = ml_program.global_load_const @w : tensor<32x32xf32>
  %v = ml_program.global_load_const @v : tensor<64x32xf32>
  %rope = ml_program.global_load_const @rope : tensor<16x4x2xf32>
  %heads = ml_program.global_load_const @heads : tensor<8xf32>
  // Nobody has touched the caller's rows.
  // CHECK-NOT: call @team_barrier
  // CHECK: call @rms_norm
  // A row of the next kernel is of the same thread.
  // CHECK-NOT: call @team_barrier
  // CHECK: call @rms_norm
  // A linear reads all rows.
  // CHECK: call @team_barrier
  // CHECK: call @linear_32x32
  // One that reads the same into other memory, with its share of the scratch in the same place, does not wait.
  // CHECK-NOT: call @team_barrier
  // CHECK: call @linear_32x32
  // Rows are of other threads than panels.
  // CHECK: call @team_barrier
  // CHECK: call @head_norm
  // Attention rotates and appends rows as a kernel over rows does, and attends behind a barrier of its own; v was there before.
  // CHECK-NOT: call @team_barrier
  // CHECK: call @attention
  // CHECK: call @team_barrier
  // CHECK: call @linear_32x32_f32_acc
  // The last rows of a matrix are shared out in another way than all of them.
  // CHECK: call @team_barrier
  // CHECK: call @gelu
  // CHECK: call @team_barrier
  // CHECK: call @gelu
  // CHECK-NOT: call @team_barrier
  // CHECK: call @gelu
  // CHECK-NOT: call @team_barrier
  // CHECK: return
  %g = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  %h = lm.rms_norm %g, %norm {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  %q = lm.linear %h, %w {site = "q"} : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %k = lm.linear %h, %w {site = "k"} : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %qr = lm.rope %q, %rope, %batch {head_dim = 8 : i64} : tensor<?x32xf32>, tensor<16x4x2xf32>
  %kn = lm.head_rms_norm %k, %heads {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>, tensor<8xf32>
  %kr = lm.rope %kn, %rope, %batch {head_dim = 8 : i64} : tensor<?x32xf32>, tensor<16x4x2xf32>
  %y = lm.attention %qr, %kr, %h, %cache, %batch
         {layer = 0 : i64, num_heads = 4 : i64, num_kv_heads = 4 : i64, head_dim = 8 : i64, scale = 5.0e-01 : f64}
         : tensor<?x32xf32>, tensor<?x32xf32>, !lm.kv_cache<layers = 1, kv_heads = 4, head_dim = 8>
  %o = lm.linear %y, %w {site = "o"} : (tensor<?x32xf32>, tensor<32x32xf32>) -> tensor<?x32xf32>
  %z = lm.add %h, %o : tensor<?x32xf32>
  %a = lm.gelu %z approximate none : tensor<?x32xf32>
  %last = lm.rows %a at %rows : tensor<?x32xf32>, tensor<?xi32>
  %b = lm.gelu %last approximate none : tensor<?x32xf32>
  %c = lm.gelu %b approximate none : tensor<?x32xf32>
  return %c : tensor<?x32xf32>
}
