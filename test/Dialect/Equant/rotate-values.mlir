// What reads attention in a rotated basis gets it so: the rotation is folded into the linear that makes the values.

// RUN: easyquant-opt %s --equant-absmax="scheme=W8A8 activation-basis=hadamard" | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s --equant-absmax="scheme=W8A8 activation-basis=hadamard hadamard-block=16" --equant-rotate | FileCheck %s --check-prefix=SMALL
// RUN: easyquant-opt %s --equant-absmax="scheme=W8A8 activation-basis=hadamard" --equant-rotate | FileCheck %s

ml_program.global private @q(#ml_program.extern : tensor<256x128xf32>) : tensor<256x128xf32>
ml_program.global private @k(#ml_program.extern : tensor<128x128xf32>) : tensor<128x128xf32>
ml_program.global private @v(#ml_program.extern : tensor<128x128xf32>) : tensor<128x128xf32>
ml_program.global private @v_bias(#ml_program.extern : tensor<128xf32>) : tensor<128xf32>
ml_program.global private @o(#ml_program.extern : tensor<128x256xf32>) : tensor<128x256xf32>

!x = tensor<?x128xf32>
!cache = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 64>

// Two query heads share the values of one head; both sides of v_proj are rotated. A block lies within a head: the 256 columns of o_proj
// would take H256.
// PLAN-LABEL: func.func private @grouped(
// PLAN: hadamard = 128>{{.*}}site = "v_proj"
// PLAN: weight = <i8, symmetric, channel, hadamard = 64>, input = <i8, symmetric, token, dynamic, hadamard = 64>{{.*}}site = "o_proj"
// SMALL-LABEL: func.func private @grouped(
// SMALL: equant.hadamard %{{.*}} {axis = 0 : i64, block = 16 : i64} : tensor<128x128xf32>
// SMALL: equant.hadamard %{{.*}} {block = 16 : i64} : tensor<128x256xf32>
// CHECK-LABEL: func.func private @grouped(
// CHECK-SAME: %[[X:[^:]*]]: tensor<?x128xf32>
// CHECK: %[[V:.*]] = ml_program.global_load_const @v :
// CHECK: %[[B:.*]] = ml_program.global_load_const @v_bias
// CHECK: %[[O:.*]] = ml_program.global_load_const @o :
// CHECK: %[[VC:.*]] = equant.hadamard %[[V]] {block = 128 : i64}
// CHECK: %[[VR:.*]] = equant.hadamard %[[VC]] {axis = 0 : i64, block = 64 : i64} : tensor<128x128xf32>
// CHECK: %[[BR:.*]] = equant.hadamard %[[B]] {axis = 0 : i64, block = 64 : i64} : tensor<128xf32>
// CHECK: %[[VALUES:.*]] = lm.linear %{{.*}}, %[[VR]] bias(%[[BR]]) {{.*}}site = "v_proj"
// CHECK: %[[A:.*]] = lm.attention %{{.*}}, %{{.*}}, %[[VALUES]],
// CHECK: %[[OR:.*]] = equant.hadamard %[[O]] {block = 64 : i64}
// CHECK: lm.linear %[[A]], %[[OR]] {{.*}}site = "o_proj"
func.func private @grouped(%x: !x, %batch: !lm.batch, %cache: !cache) -> !x {
  %wq = ml_program.global_load_const @q : tensor<256x128xf32>
  %wk = ml_program.global_load_const @k : tensor<128x128xf32>
  %wv = ml_program.global_load_const @v : tensor<128x128xf32>
  %bv = ml_program.global_load_const @v_bias : tensor<128xf32>
  %wo = ml_program.global_load_const @o : tensor<128x256xf32>
  %q = lm.linear %x, %wq {site = "q_proj"} : (!x, tensor<256x128xf32>) -> tensor<?x256xf32>
  %k = lm.linear %x, %wk {site = "k_proj"} : (!x, tensor<128x128xf32>) -> !x
  %v = lm.linear %x, %wv bias(%bv) {site = "v_proj"} : (!x, tensor<128x128xf32>, tensor<128xf32>) -> !x
  %a = lm.attention %q, %k, %v, %cache, %batch {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 64, scale = 0.125} : tensor<?x256xf32>, !x, !cache
  %o = lm.linear %a, %wo {site = "o_proj"} : (tensor<?x256xf32>, tensor<128x256xf32>) -> !x
  return %o : !x
}

ml_program.global private @o_square(#ml_program.extern : tensor<128x128xf32>) : tensor<128x128xf32>
!cache8 = !lm.kv_cache<layers = 1, kv_heads = 16, head_dim = 8>

// No block of 16 divides a head of 8 columns: the result of attention is rotated at run time.
// CHECK-LABEL: func.func private @narrow(
// CHECK-NOT: axis = 0
// CHECK: %[[A:.*]] = lm.attention
// CHECK: %[[R:.*]] = equant.hadamard %[[A]] {block = 128 : i64}
// CHECK: lm.linear %[[R]], {{.*}}site = "o_proj"
func.func private @narrow(%x: !x, %batch: !lm.batch, %cache: !cache8) -> !x {
  %wk = ml_program.global_load_const @k : tensor<128x128xf32>
  %wv = ml_program.global_load_const @v : tensor<128x128xf32>
  %wo = ml_program.global_load_const @o_square : tensor<128x128xf32>
  %k = lm.linear %x, %wk {site = "k_proj"} : (!x, tensor<128x128xf32>) -> !x
  %v = lm.linear %x, %wv {site = "v_proj"} : (!x, tensor<128x128xf32>) -> !x
  %a = lm.attention %x, %k, %v, %cache, %batch {layer = 0, num_heads = 16, num_kv_heads = 16, head_dim = 8, scale = 0.125} : !x, !x, !cache8
  %o = lm.linear %a, %wo {site = "o_proj"} : (!x, tensor<128x128xf32>) -> !x
  return %o : !x
}

!cache64 = !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 64>

// Others read the values, or the result: they want them as they are.
// CHECK-LABEL: func.func private @shared(
// CHECK-NOT: axis = 0
// CHECK: %[[A:.*]] = lm.attention
// CHECK: equant.hadamard %[[A]] {block = 128 : i64}
// CHECK-LABEL: func.func private @tapped(
// CHECK-NOT: axis = 0
// CHECK: %[[A:.*]] = lm.attention
// CHECK: equant.hadamard %[[A]] {block = 128 : i64}
func.func private @shared(%x: !x, %batch: !lm.batch, %cache: !cache64) -> !x {
  %wk = ml_program.global_load_const @k : tensor<128x128xf32>
  %wo = ml_program.global_load_const @o_square : tensor<128x128xf32>
  %kv = lm.linear %x, %wk {site = "k_proj"} : (!x, tensor<128x128xf32>) -> !x
  %a = lm.attention %x, %kv, %kv, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 64, scale = 0.125} : !x, !x, !cache64
  %o = lm.linear %a, %wo {site = "o_proj"} : (!x, tensor<128x128xf32>) -> !x
  return %o : !x
}
func.func private @tapped(%x: !x, %batch: !lm.batch, %cache: !cache64) -> !x {
  %wk = ml_program.global_load_const @k : tensor<128x128xf32>
  %wv = ml_program.global_load_const @v : tensor<128x128xf32>
  %wo = ml_program.global_load_const @o_square : tensor<128x128xf32>
  %k = lm.linear %x, %wk {site = "k_proj"} : (!x, tensor<128x128xf32>) -> !x
  %v = lm.linear %x, %wv {site = "v_proj"} : (!x, tensor<128x128xf32>) -> !x
  %a = lm.attention %x, %k, %v, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 64, scale = 0.125} : !x, !x, !cache64
  %o = lm.linear %a, %wo {site = "o_proj"} : (!x, tensor<128x128xf32>) -> !x
  %r = lm.add %o, %a : !x
  return %r : !x
}

ml_program.global private @qkv(#ml_program.extern : tensor<384x128xf32>) : tensor<384x128xf32>
ml_program.global private @qkv_bias(#ml_program.extern : tensor<384xf32>) : tensor<384xf32>

// One linear makes queries, keys and values: the rows of the values alone are rotated.
// CHECK-LABEL: func.func private @fused(
// CHECK: %[[W:.*]] = ml_program.global_load_const @qkv :
// CHECK: %[[B:.*]] = ml_program.global_load_const @qkv_bias
// CHECK: %[[WC:.*]] = equant.hadamard %[[W]] {block = 128 : i64}
// CHECK: %[[WR:.*]] = equant.hadamard %[[WC]] {axis = 0 : i64, block = 64 : i64, first = 256 : i64} : tensor<384x128xf32>
// CHECK: %[[BR:.*]] = equant.hadamard %[[B]] {axis = 0 : i64, block = 64 : i64, first = 256 : i64} : tensor<384xf32>
// CHECK: %[[QKV:.*]] = lm.linear %{{.*}}, %[[WR]] bias(%[[BR]]) {{.*}}site = "c_attn"
// CHECK: %[[PARTS:.*]]:3 = lm.split %[[QKV]]
// CHECK: %[[A:.*]] = lm.attention %[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2,
// CHECK: lm.linear %[[A]], %{{.*}}hadamard = 64>{{.*}}site = "c_proj"
// SMALL-LABEL: func.func private @fused(
// SMALL: equant.hadamard %{{.*}} {axis = 0 : i64, block = 16 : i64, first = 256 : i64} : tensor<384x128xf32>
func.func private @fused(%x: !x, %batch: !lm.batch, %cache: !cache64) -> !x {
  %w = ml_program.global_load_const @qkv : tensor<384x128xf32>
  %b = ml_program.global_load_const @qkv_bias : tensor<384xf32>
  %wo = ml_program.global_load_const @o_square : tensor<128x128xf32>
  %qkv = lm.linear %x, %w bias(%b) {site = "c_attn"} : (!x, tensor<384x128xf32>, tensor<384xf32>) -> tensor<?x384xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x384xf32> -> !x, !x, !x
  %a = lm.attention %q, %k, %v, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 64, scale = 0.125} : !x, !x, !cache64
  %o = lm.linear %a, %wo {site = "c_proj"} : (!x, tensor<128x128xf32>) -> !x
  return %o : !x
}

// Values that are not the last columns, that others read, too, or whose linear others read: the result of attention is rotated at run time.
// CHECK-LABEL: func.func private @values_first(
// CHECK-NOT: axis = 0
// CHECK: %[[A:.*]] = lm.attention
// CHECK: equant.hadamard %[[A]] {block = 128 : i64}
// CHECK-LABEL: func.func private @values_tapped(
// CHECK-NOT: axis = 0
// CHECK: %[[A:.*]] = lm.attention
// CHECK: equant.hadamard %[[A]] {block = 128 : i64}
func.func private @values_first(%x: !x, %batch: !lm.batch, %cache: !cache64) -> !x {
  %w = ml_program.global_load_const @qkv : tensor<384x128xf32>
  %wo = ml_program.global_load_const @o_square : tensor<128x128xf32>
  %qkv = lm.linear %x, %w {site = "c_attn"} : (!x, tensor<384x128xf32>) -> tensor<?x384xf32>
  %v, %q, %k = lm.split %qkv : tensor<?x384xf32> -> !x, !x, !x
  %a = lm.attention %q, %k, %v, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 64, scale = 0.125} : !x, !x, !cache64
  %o = lm.linear %a, %wo {site = "c_proj"} : (!x, tensor<128x128xf32>) -> !x
  return %o : !x
}
func.func private @values_tapped(%x: !x, %batch: !lm.batch, %cache: !cache64) -> !x {
  %w = ml_program.global_load_const @qkv : tensor<384x128xf32>
  %wo = ml_program.global_load_const @o_square : tensor<128x128xf32>
  %qkv = lm.linear %x, %w {site = "c_attn"} : (!x, tensor<384x128xf32>) -> tensor<?x384xf32>
  %q, %k, %v = lm.split %qkv : tensor<?x384xf32> -> !x, !x, !x
  %a = lm.attention %q, %k, %v, %cache, %batch {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 64, scale = 0.125} : !x, !x, !cache64
  %o = lm.linear %a, %wo {site = "c_proj"} : (!x, tensor<128x128xf32>) -> !x
  %r = lm.add %o, %v : !x
  return %r : !x
}
