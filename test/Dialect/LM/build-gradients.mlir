// RUN: easyquant-opt %s --lm-build-gradients | FileCheck %s
// RUN: easyquant-opt %s --lm-build-gradients=weights=norm,down | FileCheck %s --check-prefix=NAMED

// The gradient of %h is the sum over its readers; nothing leads from the layer's input to a weight, so its gradient is not
// built. What the way back reads is stored, but for norms and activation functions.

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>
ml_program.global private @norm(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
ml_program.global private @qkv(#ml_program.extern : tensor<32x16xf32>) : tensor<32x16xf32>
ml_program.global private @o(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
ml_program.global private @down(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>

// The layer itself stays.
// CHECK-LABEL: func.func private @layer(
// CHECK-NOT:     gradient
// CHECK-LABEL: func.func private @layer.gradients(
// CHECK-SAME:    %[[X:.*]]: tensor<?x16xf32>, %{{.*}}: !lm.batch, %{{.*}}: !lm.kv_cache{{.*}}, %[[DZ:.*]]: tensor<?x16xf32>)
// CHECK-SAME:    -> (tensor<?x16xf32>, tensor<32x16xf32>, tensor<16x16xf32>, tensor<16x16xf32>)
// CHECK:         %[[N:.*]] = lm.rms_norm %[[X]], %{{.*}} {epsilon
// CHECK:         %[[QKV:.*]] = lm.linear %[[N]], %{{.*}} {lm.stored, site = "qkv"}
// CHECK:         %[[PARTS:.*]]:3 = lm.split %[[QKV]] :
// CHECK:         %[[A:.*]] = lm.attention {{.*}}lm.stored
// CHECK:         lm.linear %[[A]], %[[O:.*]] {site = "o"}
// CHECK:         %[[H:.*]] = lm.add {{.*}} {lm.stored}
// CHECK:         %[[G:.*]] = lm.gelu %[[H]] approximate tanh :
// CHECK:         lm.linear %[[G]], %[[DOWN:[^ ]*]]
// CHECK:         %[[Z:.*]] = lm.add
// CHECK:         %[[DG:.*]] = lm.linear_input_gradient %[[DZ]], %[[DOWN]]
// CHECK-NEXT:    %[[DDOWN:.*]] = lm.linear_weight_gradient %[[DZ]], %[[G]]
// CHECK-NEXT:    %[[DH:.*]] = lm.gelu_gradient %[[DG]], %[[H]] approximate tanh
// CHECK-NEXT:    %[[SUM:.*]] = lm.add %[[DZ]], %[[DH]]
// CHECK-NEXT:    %[[DA:.*]] = lm.linear_input_gradient %[[SUM]], %[[O]]
// CHECK-NEXT:    %[[DO:.*]] = lm.linear_weight_gradient %[[SUM]], %[[A]]
// CHECK-NEXT:    %[[DQ:.*]], %[[DK:.*]], %[[DV:.*]] = lm.attention_gradient %[[DA]], %[[PARTS]]#0, %[[PARTS]]#1, %[[PARTS]]#2
// CHECK-SAME:      window = 3
// CHECK-NEXT:    %[[DPARTS:.*]] = lm.concat %[[DQ]], %[[DK]], %[[DV]]
// CHECK-NEXT:    %[[DQKV:.*]] = lm.linear_weight_gradient %[[DPARTS]], %[[N]]
// CHECK-NEXT:    return %[[Z]], %[[DQKV]], %[[DO]], %[[DDOWN]]

// NAMED-LABEL: func.func private @layer.gradients(
// NAMED-SAME:    -> (tensor<?x16xf32>, tensor<16xf32>, tensor<16x16xf32>)
// NAMED:         %[[DN:.*]] = lm.linear_input_gradient
// NAMED:         lm.rms_norm_weight_gradient {{.*}} -> tensor<16xf32>
// NAMED-NOT:     lm.rms_norm_gradient
// NAMED-NEXT:    return
func.func private @layer(%x: tensor<?x16xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x16xf32> {
  %norm = ml_program.global_load_const @norm : tensor<16xf32>
  %qkv = ml_program.global_load_const @qkv : tensor<32x16xf32>
  %o = ml_program.global_load_const @o : tensor<16x16xf32>
  %down = ml_program.global_load_const @down : tensor<16x16xf32>
  %n = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>
  %all = lm.linear %n, %qkv {site = "qkv"} : (tensor<?x16xf32>, tensor<32x16xf32>) -> tensor<?x32xf32>
  %q, %k, %v = lm.split %all : tensor<?x32xf32> -> tensor<?x16xf32>, tensor<?x8xf32>, tensor<?x8xf32>
  %a = lm.attention %q, %k, %v, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 2.5e-01, window = 3}
         : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  %attended = lm.linear %a, %o {site = "o"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %h = lm.add %x, %attended : tensor<?x16xf32>
  %g = lm.gelu %h approximate tanh : tensor<?x16xf32>
  %d = lm.linear %g, %down {site = "down"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  %z = lm.add %h, %d : tensor<?x16xf32>
  return %z : tensor<?x16xf32>
}
