// RUN: easyquant-opt %s "--equant-zeroquant=methods=lkd activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,PLAIN
// RUN: easyquant-opt %s "--equant-zeroquant=mixed=true group-size=64 activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,MIXED

// PLAIN: group_size = 128 : i64, head = "int8", ignore = [], method = "zeroquant+lkd", scheme = "W8A8"
// MIXED: group_size = 64 : i64, head = "int8", ignore = [], method = "zeroquant", mixed = true, scheme = "W8A8"
// CHECK-LABEL: func.func @layer(
// PLAIN: {equant.plan = #equant.plan<methods = ["lkd"], rule = absmax, weight = <i8, symmetric, group = 128, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "qkv"}
// What attention reads through rotations and splits, and what reads attention; the rest is MLP.
// MIXED: weight = <i8, symmetric, group = 64, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "qkv"}
// MIXED: weight = <i8, symmetric, group = 64, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "o"}
// MIXED: weight = <i4, symmetric, group = 64, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "up"}
// MIXED: weight = <i4, symmetric, group = 64, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "down"}
// MIXED: weight = <i8, symmetric, channel>, input = <i8, symmetric, token, dynamic>>, site = "lm_head"}
func.func @layer(%x: tensor<?x64xf32>, %a: tensor<192x64xf32>, %w: tensor<64x64xf32>, %table: tensor<8x8x2xf32>,
                 %batch: !lm.batch, %cache: !lm.kv_cache<layers = 1, kv_heads = 4, head_dim = 16>) {
  %qkv = lm.linear %x, %a {site = "qkv"} : (tensor<?x64xf32>, tensor<192x64xf32>) -> tensor<?x192xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x192xf32> -> tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x64xf32>
  %r = lm.rope %q, %table, %batch {head_dim = 16 : i64} : tensor<?x64xf32>, tensor<8x8x2xf32>
  %y = lm.attention %r, %k, %v, %cache, %batch {layer = 0, num_heads = 4, num_kv_heads = 4, head_dim = 16, scale = 0.25}
         : tensor<?x64xf32>, tensor<?x64xf32>, !lm.kv_cache<layers = 1, kv_heads = 4, head_dim = 16>
  %o = lm.linear %y, %w {site = "o"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  %u = lm.linear %o, %w {site = "up"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  %g = lm.gelu %u approximate tanh : tensor<?x64xf32>
  %d = lm.linear %g, %w {site = "down"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  lm.linear %d, %w {site = "lm_head"} : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  return
}
