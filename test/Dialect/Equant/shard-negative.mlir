// RUN: easyquant-opt %s -equant-shard="degree=2" -split-input-file -verify-diagnostics
// RUN: not easyquant-opt %s -equant-shard="degree=0" -split-input-file 2>&1 | FileCheck %s --check-prefix=ZERO
// ZERO: degree of tensor parallelism is 0; expected 1 to 4096

func.func @three_heads(%q: tensor<?x12xf32>, %w: tensor<12x12xf32>, %cache: !lm.kv_cache<layers = 1, kv_heads = 3, head_dim = 4>, %batch: !lm.batch) -> tensor<?x12xf32> {
  %x = lm.linear %q, %w {site = "q_proj"} : (tensor<?x12xf32>, tensor<12x12xf32>) -> tensor<?x12xf32>
  // expected-error @below {{layer 0 has 3 heads, which 2 ranks cannot share; legal degrees of tensor parallelism: 1, 3}}
  %a = lm.attention %x, %x, %x, %cache, %batch {layer = 0 : i64, num_heads = 3 : i64, num_kv_heads = 3 : i64, head_dim = 4 : i64, scale = 0.5 : f64}
    : tensor<?x12xf32>, tensor<?x12xf32>, !lm.kv_cache<layers = 1, kv_heads = 3, head_dim = 4>
  %y = lm.add %q, %q : tensor<?x12xf32>
  return %y : tensor<?x12xf32>
}

// -----

func.func @cut_group(%x: tensor<?x8xf32>, %up: tensor<16x8xf32>, %down: !equant.weight<8x16, #equant.scheme<i4, symmetric, group = 16>>) -> tensor<?x8xf32> {
  %u = lm.linear %x, %up {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  // expected-error @below {{site 'down_proj' has 16 input features in groups of 16, which 2 ranks cannot share; legal degrees of tensor parallelism: 1}}
  %d = equant.linear %u, %down {sites = ["down_proj"]} : (tensor<?x16xf32>, !equant.weight<8x16, #equant.scheme<i4, symmetric, group = 16>>) -> tensor<?x8xf32>
  %y = lm.add %x, %d : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @fused(%x: tensor<?x8xf32>, %w: tensor<24x8xf32>, %o: tensor<8x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{site 'c_attn' has 24 output features in parts of 9, 7, 8, which 2 ranks cannot share; legal degrees of tensor parallelism: 1}}
  %qkv = lm.linear %x, %w {site = "c_attn"} : (tensor<?x8xf32>, tensor<24x8xf32>) -> tensor<?x24xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x24xf32> -> tensor<?x9xf32>, tensor<?x7xf32>, tensor<?x8xf32>
  %p = lm.linear %v, %o {site = "c_proj"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  %y = lm.add %x, %p : tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Three value heads of each of three key heads, of which two ranks cannot have whole ones.
!state = !lm.recurrent<values = 144>
func.func @key_heads(%x: tensor<?x36xf32>, %d: tensor<?x9xf32>, %batch: !lm.batch, %state: !state, %q: tensor<12x36xf32>, %v: tensor<36x36xf32>, %a: tensor<9x36xf32>, %r: tensor<9xf32>) -> tensor<?x36xf32> {
  %qx = lm.linear %x, %q {site = "q_proj"} : (tensor<?x36xf32>, tensor<12x36xf32>) -> tensor<?x12xf32>
  %vx = lm.linear %x, %v {site = "v_proj"} : (tensor<?x36xf32>, tensor<36x36xf32>) -> tensor<?x36xf32>
  %ax = lm.linear %x, %a {site = "a_proj"} : (tensor<?x36xf32>, tensor<9x36xf32>) -> tensor<?x9xf32>
  // expected-error @below {{lm.gated_delta has 3 key heads, which 2 ranks cannot share; legal degrees of tensor parallelism: 1, 3}}
  %y = lm.gated_delta %qx, %qx, %vx, %ax, %ax, %r, %r, %state, %batch {key_heads = 3, value_heads = 9, first = 0}
    : (tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x36xf32>, tensor<?x9xf32>, tensor<?x9xf32>, tensor<9xf32>, tensor<9xf32>, !state, !lm.batch) -> tensor<?x36xf32>
  %z = lm.add %x, %x : tensor<?x36xf32>
  return %z : tensor<?x36xf32>
}

// -----

// Every rank would keep all of it.
!state = !lm.recurrent<values = 16>
func.func @whole(%x: tensor<?x8xf32>, %w: tensor<8x3xf32>, %batch: !lm.batch, %state: !state) -> tensor<?x8xf32> {
  // expected-error @below {{keeps a state of columns that all ranks have: tensor parallelism knows no way to share it}}
  %y = lm.conv1d %x, %w, %state, %batch {first = 0 : i64} : (tensor<?x8xf32>, tensor<8x3xf32>, !state, !lm.batch) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Kernels read packed weights of experts in whole panels.
!gate = !equant.weight<96x8, #equant.scheme<i8, symmetric, channel>>
func.func @panels(%rows: tensor<?x8xf32>, %gate: !gate, %offsets: tensor<4xi32>) -> tensor<?x8xf32> {
  // expected-error @below {{site 'gate_proj' has 32 output features of experts in panels of 32, which 2 ranks cannot share; legal degrees of tensor parallelism: 1}}
  %g = equant.linear %rows, %gate experts(%offsets) {sites = ["gate_proj"]} : (tensor<?x8xf32>, !gate, tensor<4xi32>) -> tensor<?x32xf32>
  return %rows : tensor<?x8xf32>
}

// -----

// What the columns of ranks are is not what is added.
func.func @columns(%x: tensor<?x8xf32>, %up: tensor<16x8xf32>, %places: tensor<?x2xi32>, %weights: tensor<?x2xf32>) -> tensor<?x16xf32> {
  %u = lm.linear %x, %up {site = "up_proj"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  // expected-error @below {{'lm.combine' op reads columns that ranks would have apart}}
  %y = lm.combine %u, %places, %weights : tensor<?x16xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x16xf32>
}

// -----

// expected-error @below {{is sharded already: it has a shard.grid @tensor_parallel}}
module {
  shard.grid @tensor_parallel(shape = 4)
}

// -----

// The range of a whole row, of which each rank would see its columns alone.
#sinks = #equant.scheme<i8, asymmetric, tensor, sinks>
#w = #equant.scheme<i8, symmetric, channel>
func.func @sinks(%x: tensor<?x8xf32>, %c: !equant.weight<8x8, #w>) {
  // expected-error @below {{site 'down_proj' has sinks apart in a range that is not around 0, which ranks do not find together; take symmetric activations or --sinks none}}
  %d = equant.linear %x, %c {sites = ["down_proj"], input_scheme = #sinks, input_scale = 0.5 : f32, input_zero_point = 3 : i32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
  return
}

// -----

!w = !equant.weight<32x64, #equant.scheme<i8, symmetric, channel, hadamard = 64>>
func.func @blocks(%x: tensor<?x32xf32>, %up: tensor<64x32xf32>, %down: !w) -> tensor<?x32xf32> {
  %h = lm.linear %x, %up {site = "up_proj"} : (tensor<?x32xf32>, tensor<64x32xf32>) -> tensor<?x64xf32>
  // expected-error @below {{site 'down_proj' has 64 input features that are rotated in blocks of 64 (a lower hadamard-block makes these smaller), which 2 ranks cannot share; legal degrees of tensor parallelism: 1}}
  %r = equant.hadamard %h {block = 64 : i64} : tensor<?x64xf32>
  %y = equant.linear %r, %down {sites = ["down_proj"]} : (tensor<?x64xf32>, !w) -> tensor<?x32xf32>
  %z = lm.add %x, %y : tensor<?x32xf32>
  return %z : tensor<?x32xf32>
}
