// RUN: easyquant-opt %s --equant-fuse-kernels | FileCheck %s
// RUN: easyquant-opt %s --equant-fuse-kernels=target=gpu | FileCheck %s --check-prefix=GPU
// RUN: not easyquant-opt %s --equant-fuse-kernels=target=tpu 2>&1 | FileCheck %s --check-prefix=TARGET

// TARGET: error: unknown target 'tpu'; expected cpu, x86_64, aarch64, avx2, avx512vnni, neon-dot, neon-i8mm, gpu, sm_80, sm_86, sm_87, sm_89, sm_90a, sm_120a

!rows = !equant.rows<?x8, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>

// A norm whose result is only quantized makes codes; one that others read does not.
// CHECK-LABEL: func.func @norms(
// CHECK:       equant.fusion {
// CHECK-NEXT:    lm.rms_norm
// CHECK-NEXT:    equant.quantize_rows
// CHECK-NEXT:    equant.yield
// CHECK:       %[[H:.*]] = lm.rms_norm
// CHECK-NEXT:  equant.quantize_rows %[[H]]
func.func @norms(%x: tensor<?x8xf32>, %w: tensor<8xf32>) -> (!rows, !rows, tensor<?x8xf32>) {
  %a = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x8xf32>
  %c = equant.quantize_rows %a : tensor<?x8xf32> -> !rows
  %b = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x8xf32>
  %d = equant.quantize_rows %b : tensor<?x8xf32> -> !rows
  return %c, %d, %b : !rows, !rows, tensor<?x8xf32>
}

// A linear adds into a stream that nothing reads any more, but not into the caller's rows, nor into what is read behind it.
// CHECK-LABEL: func.func @residual(
// CHECK:       lm.gelu
// CHECK-NEXT:  %[[Y:.*]] = equant.fusion {
// CHECK-NEXT:    lm.linear
// CHECK-NEXT:    lm.add
// CHECK:       %[[L:.*]] = lm.linear
// CHECK-NEXT:  lm.add %{{.*}}, %[[L]]
// CHECK:       %[[M:.*]] = lm.linear
// CHECK-NEXT:  lm.add %[[Y]], %[[M]]
func.func @residual(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) -> (tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>) {
  %g = lm.gelu %x approximate none : tensor<?x8xf32>
  %l = lm.linear %x, %w {site = "a"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %y = lm.add %g, %l : tensor<?x8xf32>
  %m = lm.linear %y, %w {site = "b"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %z = lm.add %x, %m : tensor<?x8xf32>
  %n = lm.linear %z, %w {site = "c"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %u = lm.add %y, %n : tensor<?x8xf32>
  return %y, %z, %u : tensor<?x8xf32>, tensor<?x8xf32>, tensor<?x8xf32>
}

// Queries and keys side by side are rotated at once on a GPU, whatever is between; values stay as they are.
// GPU-LABEL: func.func @rotations(
// GPU:       lm.split
// GPU:       %{{.*}}:2 = equant.fusion {
// GPU-NEXT:    lm.rope
// GPU-NEXT:    lm.rope
// GPU-NEXT:    equant.yield
// CHECK-LABEL: func.func @rotations(
// CHECK-NOT: equant.fusion
ml_program.global private @rope(#ml_program.extern : tensor<16x2x2xf32>) : tensor<16x2x2xf32>
func.func @rotations(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %batch: !lm.batch) -> (tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>) {
  %a = ml_program.global_load_const @rope : tensor<16x2x2xf32>
  %b = ml_program.global_load_const @rope : tensor<16x2x2xf32>
  %qkv = lm.linear %x, %w {site = "qkv"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x16xf32> -> tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  %qr = lm.rope %q, %a, %batch {head_dim = 4 : i64} : tensor<?x8xf32>, tensor<16x2x2xf32>
  %kr = lm.rope %k, %b, %batch {head_dim = 4 : i64} : tensor<?x4xf32>, tensor<16x2x2xf32>
  return %qr, %kr, %v : tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
}

// Attention over a float cache rotates what nobody else reads, and appends it; on a GPU what lies side by side, with the cast behind it.
// CHECK-LABEL: func.func @append(
// CHECK:       lm.split
// CHECK-NEXT:  equant.fusion {
// CHECK-NEXT:    lm.rope
// CHECK-NEXT:    lm.rope
// CHECK-NEXT:    lm.attention
// CHECK-NEXT:    equant.yield
// CHECK:       site = "v"
// CHECK-NEXT:  equant.fusion {
// CHECK-NEXT:    lm.rope
// CHECK-NEXT:    lm.rope
// CHECK-NEXT:    lm.attention
// GPU-LABEL: func.func @append(
// GPU:       lm.split
// GPU-NEXT:  equant.fusion {
// GPU-NEXT:    lm.rope
// GPU-NEXT:    lm.rope
// GPU-NEXT:    lm.attention
// GPU-NEXT:    arith.truncf
// GPU-NEXT:    equant.yield
// GPU:       lm.rope
// GPU-NEXT:  lm.rope
// GPU-NEXT:  lm.attention
func.func @append(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>, %u: tensor<8x8xf32>, %z: tensor<4x8xf32>, %batch: !lm.batch, %cache: !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 4>) -> (tensor<?x8xbf16>, tensor<?x8xf32>) {
  %t = ml_program.global_load_const @rope : tensor<16x2x2xf32>
  %qkv = lm.linear %x, %w {site = "qkv"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x16xf32> -> tensor<?x8xf32>, tensor<?x4xf32>, tensor<?x4xf32>
  %qr = lm.rope %q, %t, %batch {head_dim = 4 : i64} : tensor<?x8xf32>, tensor<16x2x2xf32>
  %kr = lm.rope %k, %t, %batch {head_dim = 4 : i64} : tensor<?x4xf32>, tensor<16x2x2xf32>
  %y = lm.attention %qr, %kr, %v, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 4, scale = 0.5 : f64}
         : tensor<?x8xf32>, tensor<?x4xf32>, !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 4>
  %c = arith.truncf %y : tensor<?x8xf32> to tensor<?x8xbf16>
  %q1 = lm.linear %x, %u {site = "q"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %k1 = lm.linear %x, %z {site = "k"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %v1 = lm.linear %x, %z {site = "v"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %q1r = lm.rope %q1, %t, %batch {head_dim = 4 : i64} : tensor<?x8xf32>, tensor<16x2x2xf32>
  %k1r = lm.rope %k1, %t, %batch {head_dim = 4 : i64} : tensor<?x4xf32>, tensor<16x2x2xf32>
  %y1 = lm.attention %q1r, %k1r, %v1, %cache, %batch
          {layer = 1, num_heads = 2, num_kv_heads = 1, head_dim = 4, scale = 0.5 : f64}
          : tensor<?x8xf32>, tensor<?x4xf32>, !lm.kv_cache<layers = 2, kv_heads = 1, head_dim = 4>
  return %c, %y1 : tensor<?x8xbf16>, tensor<?x8xf32>
}

// Where keys are kept as codes in a basis of their heads, a GPU takes queries and keys there as it rotates them, side by side or not; a CPU
// does so in attention. What is not rotated by its position, or read by others, is left to attention's launches.
// CHECK-LABEL: func.func @basis(
// CHECK-NOT: equant.fusion
// CHECK-LABEL: func.func @plain_keys(
// GPU-LABEL: func.func @basis(
// GPU:       lm.split
// GPU-NEXT:  equant.fusion {
// GPU-NEXT:    lm.rope
// GPU-NEXT:    lm.rope
// GPU-NEXT:    equant.attention
// GPU-NEXT:    arith.truncf
// GPU-NEXT:    equant.yield
// GPU:       site = "v"
// GPU-NEXT:  equant.fusion {
// GPU-NEXT:    lm.rope
// GPU-NEXT:    lm.rope
// GPU-NEXT:    equant.attention
// GPU-NEXT:    equant.yield
// GPU-NEXT:    }
// GPU-NEXT:  lm.rope
// GPU-NEXT:  lm.rope
// GPU-NEXT:  equant.attention
!cache = !lm.kv_cache<layers = 3, kv_heads = 1, head_dim = 16>
#kv = #equant.kv_scheme<code = i8, group = 16, residual = 16, sinks = 4, keys = token, hadamard = 16>
ml_program.global private @turns(#ml_program.extern : tensor<16x8x2xf32>) : tensor<16x8x2xf32>
func.func @basis(%x: tensor<?x8xf32>, %w: tensor<64x8xf32>, %u: tensor<32x8xf32>, %z: tensor<16x8xf32>, %batch: !lm.batch, %cache: !cache)
    -> (tensor<?x32xbf16>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x16xf32>) {
  %t = ml_program.global_load_const @turns : tensor<16x8x2xf32>
  %qkv = lm.linear %x, %w {site = "qkv"} : (tensor<?x8xf32>, tensor<64x8xf32>) -> tensor<?x64xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x64xf32> -> tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>
  %qr = lm.rope %q, %t, %batch {head_dim = 16 : i64} : tensor<?x32xf32>, tensor<16x8x2xf32>
  %kr = lm.rope %k, %t, %batch {head_dim = 16 : i64} : tensor<?x16xf32>, tensor<16x8x2xf32>
  %y = equant.attention %qr, %kr, %v, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 16, scale = 0.25 : f64, kv_scheme = #kv}
         : tensor<?x32xf32>, tensor<?x16xf32>, !cache
  %c = arith.truncf %y : tensor<?x32xf32> to tensor<?x32xbf16>
  %q1 = lm.linear %x, %u {site = "q"} : (tensor<?x8xf32>, tensor<32x8xf32>) -> tensor<?x32xf32>
  %k1 = lm.linear %x, %z {site = "k"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %v1 = lm.linear %x, %z {site = "v"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %q1r = lm.rope %q1, %t, %batch {head_dim = 16 : i64} : tensor<?x32xf32>, tensor<16x8x2xf32>
  %k1r = lm.rope %k1, %t, %batch {head_dim = 16 : i64} : tensor<?x16xf32>, tensor<16x8x2xf32>
  %y1 = equant.attention %q1r, %k1r, %v1, %cache, %batch
          {layer = 1, num_heads = 2, num_kv_heads = 1, head_dim = 16, scale = 0.25 : f64, kv_scheme = #kv}
          : tensor<?x32xf32>, tensor<?x16xf32>, !cache
  %q2r = lm.rope %y1, %t, %batch {head_dim = 16 : i64} : tensor<?x32xf32>, tensor<16x8x2xf32>
  %k2r = lm.rope %v1, %t, %batch {head_dim = 16 : i64} : tensor<?x16xf32>, tensor<16x8x2xf32>
  %y2 = equant.attention %q2r, %k2r, %v1, %cache, %batch
          {layer = 2, num_heads = 2, num_kv_heads = 1, head_dim = 16, scale = 0.25 : f64, kv_scheme = #kv}
          : tensor<?x32xf32>, tensor<?x16xf32>, !cache
  return %c, %y1, %y2, %k2r : tensor<?x32xbf16>, tensor<?x32xf32>, tensor<?x32xf32>, tensor<?x16xf32>
}

// GPU-LABEL: func.func @plain_keys(
// GPU:       %{{.*}}:2 = equant.fusion {
// GPU-NEXT:    lm.rope
// GPU-NEXT:    lm.rope
// GPU-NEXT:    equant.yield
// GPU:       equant.attention
func.func @plain_keys(%x: tensor<?x8xf32>, %w: tensor<64x8xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x32xf32> {
  %t = ml_program.global_load_const @turns : tensor<16x8x2xf32>
  %qkv = lm.linear %x, %w {site = "qkv"} : (tensor<?x8xf32>, tensor<64x8xf32>) -> tensor<?x64xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x64xf32> -> tensor<?x32xf32>, tensor<?x16xf32>, tensor<?x16xf32>
  %qr = lm.rope %q, %t, %batch {head_dim = 16 : i64} : tensor<?x32xf32>, tensor<16x8x2xf32>
  %kr = lm.rope %k, %t, %batch {head_dim = 16 : i64} : tensor<?x16xf32>, tensor<16x8x2xf32>
  %y = equant.attention %qr, %kr, %v, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 16, scale = 0.25 : f64,
          kv_scheme = #equant.kv_scheme<code = i8, group = 16, residual = 16, sinks = 4, keys = token>}
         : tensor<?x32xf32>, tensor<?x16xf32>, !cache
  return %y : tensor<?x32xf32>
}
