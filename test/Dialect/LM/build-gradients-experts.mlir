// Gradients of a mixture of experts. Who is chosen has none, what choices count has. Rows of choices are computed anew on the way back: what is stored has a
// row for each token.

// RUN: easyquant-opt %s --lm-build-gradients=weights=router,up,down | FileCheck %s
// RUN: easyquant-opt %s --lm-build-gradients=weights=up | FileCheck %s --check-prefix=UP

ml_program.global private @router(#ml_program.extern : tensor<4x8xf32>) : tensor<4x8xf32>
ml_program.global private @up(#ml_program.extern : tensor<24x8xf32>) : tensor<24x8xf32>
ml_program.global private @down(#ml_program.extern : tensor<32x6xf32>) : tensor<32x6xf32>

// CHECK-LABEL: func.func private @layer.gradients(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[DY:.*]]: tensor<?x8xf32>)
// CHECK:         %[[H:.*]] = lm.add %[[X]], %[[X]] {lm.stored}
// CHECK:         %[[LOGITS:.*]] = lm.linear %[[H]], %{{.*}} {lm.stored, site = "router"}
// CHECK:         %[[ORDER:.*]], %[[OFFSETS:.*]], %[[PLACES:.*]], %[[WEIGHTS:.*]] = lm.route %[[LOGITS]] {renormalize, top_k = 2 : i64}
// CHECK-NEXT:    %[[ROWS:.*]] = lm.rows %[[H]] at %[[ORDER]] :
// CHECK-NEXT:    %[[U:.*]] = lm.linear %[[ROWS]], %{{.*}} experts(%[[OFFSETS]]) {site = "up"}
// CHECK-NEXT:    %[[G:.*]] = lm.gelu %[[U]]
// CHECK-NEXT:    %[[D:.*]] = lm.linear %[[G]], %[[DOWN:.*]] experts(%[[OFFSETS]]) {site = "down"}
// CHECK-NEXT:    lm.combine %[[D]], %[[PLACES]], %[[WEIGHTS]] :
// CHECK-NEXT:    %[[GATHERED:.*]] = lm.rows %[[DY]] at %[[ORDER]]
// CHECK-NEXT:    %[[DD:.*]] = lm.weigh_choices %[[GATHERED]], %[[PLACES]], %[[WEIGHTS]]
// CHECK-NEXT:    %[[DWEIGHTS:.*]] = lm.choice_weights_gradient %[[DY]], %[[D]], %[[PLACES]]
// CHECK-NEXT:    %[[DG:.*]] = lm.linear_input_gradient %[[DD]], %[[DOWN]] experts(%[[OFFSETS]] : tensor<5xi32>)
// CHECK-NEXT:    lm.linear_weight_gradient %[[DD]], %[[G]] experts(%[[OFFSETS]] : tensor<5xi32>)
// CHECK-NEXT:    %[[DU:.*]] = lm.gelu_gradient %[[DG]], %[[U]]
// CHECK-NEXT:    lm.linear_weight_gradient %[[DU]], %[[ROWS]] experts(%[[OFFSETS]] : tensor<5xi32>)
// CHECK-NEXT:    %[[DLOGITS:.*]] = lm.route_gradient %[[DWEIGHTS]], %[[LOGITS]], %[[OFFSETS]], %[[PLACES]] {renormalize}
// CHECK-NEXT:    lm.linear_weight_gradient %[[DLOGITS]], %[[H]] :

// UP-LABEL: func.func private @layer.gradients(
// UP-NOT:     choice_weights_gradient
// UP:         %[[DD:.*]] = lm.weigh_choices
// UP-NOT:     route_gradient
// UP:         return
func.func private @layer(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %router = ml_program.global_load_const @router : tensor<4x8xf32>
  %up = ml_program.global_load_const @up : tensor<24x8xf32>
  %down = ml_program.global_load_const @down : tensor<32x6xf32>
  %h = lm.add %x, %x : tensor<?x8xf32>
  %logits = lm.linear %h, %router {site = "router"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2, renormalize}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %h at %order : tensor<?x8xf32>, tensor<?xi32>
  %u = lm.linear %rows, %up experts(%offsets) {site = "up"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<?x6xf32>
  %g = lm.gelu %u approximate tanh : tensor<?x6xf32>
  %d = lm.linear %g, %down experts(%offsets) {site = "down"} : (tensor<?x6xf32>, tensor<32x6xf32>, tensor<5xi32>) -> tensor<?x8xf32>
  %y = lm.combine %d, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x8xf32>
}
