// RUN: easyquant-opt %s | easyquant-opt -equant-legalize-activations | FileCheck %s
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 group-size=64 activation-group-size=32" | FileCheck %s --check-prefix=PLAN
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activation-group-size=64 activation-basis=plain" | FileCheck %s --check-prefix=ROWS
// RUN: easyquant-opt %s "--equant-zeropoint=scheme=W8A8 activation-group-size=128 activation-basis=plain head=W4A16" | FileCheck %s --check-prefix=HEAD
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activation-group-size=32 activation-zero-points=true activation-basis=plain" | FileCheck %s --check-prefix=ZEROS
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W4A8 group-size=32 activation-group-size=64" 2>&1 | FileCheck %s --check-prefix=WEIGHT
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activation-group-size=32" --equant-check-plans=target=gpu
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activation-group-size=32 activation-zero-points=true activation-basis=plain" --equant-check-plans=target=gpu

// PLAN: equant.recipe = {activation_basis = "hadamard", activation_group_size = 32 : i64, activations = "dynamic",
// PLAN: input = <i8, symmetric, token, group = 32, dynamic, hadamard = 32>{{.*}}site = "q"
// PLAN: input = <i8, symmetric, token, group = 32, dynamic, hadamard = 32>{{.*}}site = "lm_head"
// ROWS: weight = <i8, symmetric, channel>, input = <i8, symmetric, token, group = 64, dynamic>
// ZEROS: equant.recipe = {activation_basis = "plain", activation_group_size = 32 : i64, activation_zero_points = true,
// ZEROS: input = <i8, asymmetric, token, group = 32, dynamic>
// HEAD: weight = <i8, asymmetric, channel>, input = <i8, symmetric, token, group = 128, dynamic>
// HEAD: #equant.plan<methods = [], rule = zeropoint, weight = <i4, asymmetric, group = 128, scale = f16>>, site = "lm_head"
// WEIGHT: error: activation-group-size 64 does not divide the groups of 32 of the weights; take one that does, another group-size, or activation-group-size 0

ml_program.global private @q.weight(#ml_program.extern<tensor<96x96xf32>>) : tensor<96x96xf32>
ml_program.global private @lm_head.weight(#ml_program.extern<tensor<64x96xf32>>) : tensor<64x96xf32>

func.func @forward(%x: tensor<?x96xf32>) -> tensor<?x64xf32> {
  %q = ml_program.global_load_const @q.weight : tensor<96x96xf32>
  %h = ml_program.global_load_const @lm_head.weight : tensor<64x96xf32>
  %y = lm.linear %x, %q {site = "q"} : (tensor<?x96xf32>, tensor<96x96xf32>) -> tensor<?x96xf32>
  %z = lm.linear %y, %h {site = "lm_head"} : (tensor<?x96xf32>, tensor<64x96xf32>) -> tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}

// Sums are those of the groups of rows, whatever the groups of the weights.
// CHECK-LABEL: func.func @groups(
// CHECK:         %[[Q:.*]] = equant.quantize_rows %{{.*}} : tensor<?x96xf32> -> !equant.rows<?x96, #equant.scheme<i8, symmetric, token, group = 32, dynamic>, sums = 32>
// CHECK-NOT:     quantize_rows
// CHECK:         equant.packed_linear %[[Q]], %{{.*}} {sites = ["rows"]}
// CHECK:         equant.packed_linear %[[Q]], %{{.*}} {sites = ["wide"]}
// Zero points are found with the scales, and weights need no sums beside them.
// CHECK-LABEL: func.func @zero_points(
// CHECK:         %[[Q:.*]] = equant.quantize_rows %{{.*}} : tensor<?x96xf32> -> !equant.rows<?x96, #equant.scheme<i8, asymmetric, token, group = 32, dynamic>, sums = 32>
// CHECK:         equant.packed_linear %[[Q]], %{{.*}} {sites = ["rows"]}
#panel = #equant.layout<panel>
#own = #equant.scheme<i8, symmetric, token, group = 32, dynamic>
!rows = !equant.weight<16x96, #equant.scheme<i8, symmetric, channel>, #panel>
!wide = !equant.weight<16x96, #equant.scheme<i4, asymmetric, group = 64>, #panel>
func.func @groups(%x: tensor<?x96xf32>, %r: !rows, %w: !wide) {
  %a = equant.packed_linear %x, %r {sites = ["rows"], input_scheme = #own} : (tensor<?x96xf32>, !rows) -> tensor<?x16xf32>
  %b = equant.packed_linear %x, %w {sites = ["wide"], input_scheme = #own} : (tensor<?x96xf32>, !wide) -> tensor<?x16xf32>
  return
}

func.func @zero_points(%x: tensor<?x96xf32>, %r: !rows) {
  %a = equant.packed_linear %x, %r {sites = ["rows"], input_scheme = #equant.scheme<i8, asymmetric, token, group = 32, dynamic>}
    : (tensor<?x96xf32>, !rows) -> tensor<?x16xf32>
  return
}
