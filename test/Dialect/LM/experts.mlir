// A mixture of experts. Which rows an expert has depends on all rows: linears of experts are not hoisted over, but the whole mixture is.

// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --mlir-print-op-generic | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --lm-hoist-rows | FileCheck %s --check-prefix=HOIST

// CHECK-LABEL: func.func @experts(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[LOGITS:[^:]*]]: tensor<?x4xf32>, %[[UP:[^:]*]]: tensor<24x8xf32>, %[[DOWN:[^:]*]]: tensor<32x6xf32>, %[[B:[^:]*]]: tensor<32xf32>,
// CHECK:         %[[ORDER:.*]], %[[OFFSETS:.*]], %[[PLACES:.*]], %[[WEIGHTS:.*]] = lm.route %[[LOGITS]] {renormalize, top_k = 2 : i64} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
// CHECK:         %[[ROWS:.*]] = lm.rows %[[X]] at %[[ORDER]]
// CHECK:         %[[U:.*]] = lm.linear %[[ROWS]], %[[UP]] experts(%[[OFFSETS]]) {site = "experts.up"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<?x6xf32>
// CHECK:         %[[D:.*]] = lm.linear %[[U]], %[[DOWN]] bias(%[[B]]) experts(%[[OFFSETS]]) {site = "experts.down"} : (tensor<?x6xf32>, tensor<32x6xf32>, tensor<32xf32>, tensor<5xi32>) -> tensor<?x8xf32>
// CHECK:         lm.combine %[[D]], %[[PLACES]], %[[WEIGHTS]] : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>

// HOIST-LABEL: func.func @experts(
// HOIST-DAG:     %[[X:.*]] = lm.rows %arg0 at %arg5
// HOIST-DAG:     %[[LOGITS:.*]] = lm.rows %arg1 at %arg5
// HOIST:         %[[ORDER:.*]], %{{.*}}, %{{.*}}, %{{.*}} = lm.route %[[LOGITS]]
// HOIST:         lm.rows %[[X]] at %[[ORDER]]
// HOIST:         %[[Y:.*]] = lm.combine
// HOIST-NEXT:    return %[[Y]]
func.func @experts(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>, %up: tensor<24x8xf32>, %down: tensor<32x6xf32>, %b: tensor<32xf32>,
                   %numbers: tensor<?xi32>) -> tensor<?x8xf32> {
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2, renormalize}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %u = lm.linear %rows, %up experts(%offsets) {site = "experts.up"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<?x6xf32>
  %d = lm.linear %u, %down bias(%b) experts(%offsets) {site = "experts.down"}
    : (tensor<?x6xf32>, tensor<32x6xf32>, tensor<32xf32>, tensor<5xi32>) -> tensor<?x8xf32>
  %y = lm.combine %d, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %some = lm.rows %y at %numbers : tensor<?x8xf32>, tensor<?xi32>
  return %some : tensor<?x8xf32>
}

// HOIST-LABEL: func.func @linear_of_experts(
// HOIST:         lm.linear
// HOIST-NEXT:    lm.rows
func.func @linear_of_experts(%x: tensor<?x8xf32>, %up: tensor<24x8xf32>, %offsets: tensor<5xi32>, %numbers: tensor<?xi32>) -> tensor<?x6xf32> {
  %u = lm.linear %x, %up experts(%offsets) {site = "experts.up"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<?x6xf32>
  %some = lm.rows %u at %numbers : tensor<?x6xf32>, tensor<?xi32>
  return %some : tensor<?x6xf32>
}

// CHECK-LABEL: func.func @sigmoid(
// CHECK-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[LOGITS:[^:]*]]: tensor<?x4xf32>, %[[B:[^:]*]]: tensor<4xf32>, %[[SHARED:[^:]*]]: tensor<?x8xf32>, %[[GATE:[^:]*]]: tensor<?x1xf32>
// CHECK:         lm.route %[[LOGITS]] bias(%[[B]] : tensor<4xf32>) factors(%[[B]] : tensor<4xf32>) {renormalize, scale = 2.500000e+00 : f64, sigmoid, top_k = 2 : i64} : tensor<?x4xf32>
// CHECK:         lm.combine %{{.*}}, %{{.*}}, %{{.*}} shared(%[[SHARED]], %[[GATE]] : tensor<?x8xf32>, tensor<?x1xf32>) : tensor<?x8xf32>
func.func @sigmoid(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>, %b: tensor<4xf32>, %shared: tensor<?x8xf32>, %gate: tensor<?x1xf32>) -> tensor<?x8xf32> {
  %order, %offsets, %places, %weights = lm.route %logits bias(%b : tensor<4xf32>) factors(%b : tensor<4xf32>) {top_k = 2, sigmoid, renormalize, scale = 2.5 : f64}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %y = lm.combine %rows, %places, %weights shared(%shared, %gate : tensor<?x8xf32>, tensor<?x1xf32>)
    : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x8xf32>
}

// Others need all rows of the sum, or what one expert gives.
// HOIST-LABEL: func.func @needed(
// HOIST:         lm.route %arg1 {
// HOIST:         lm.combine
// HOIST-NEXT:    lm.rows
func.func @needed(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>, %numbers: tensor<?xi32>) -> (tensor<?x8xf32>, tensor<?x8xf32>) {
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %y = lm.combine %rows, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %some = lm.rows %y at %numbers : tensor<?x8xf32>, tensor<?xi32>
  return %some, %rows : tensor<?x8xf32>, tensor<?x8xf32>
}

// HOIST-LABEL: func.func @shared(
// HOIST-SAME:    %[[X:[^:]*]]: tensor<?x8xf32>, %[[LOGITS:[^:]*]]: tensor<?x4xf32>, %[[GATE:[^:]*]]: tensor<?x1xf32>, %[[NUMBERS:[^:]*]]: tensor<?xi32>
// HOIST-DAG:     %[[SOME:.*]] = lm.rows %[[X]] at %[[NUMBERS]]
// HOIST-DAG:     %[[GATES:.*]] = lm.rows %[[GATE]] at %[[NUMBERS]]
// HOIST:         lm.combine %{{.*}} shared(%[[SOME]], %[[GATES]] : tensor<?x8xf32>, tensor<?x1xf32>)
// HOIST-NEXT:    return
func.func @shared(%x: tensor<?x8xf32>, %logits: tensor<?x4xf32>, %gate: tensor<?x1xf32>, %numbers: tensor<?xi32>) -> tensor<?x8xf32> {
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %y = lm.combine %rows, %places, %weights shared(%x, %gate : tensor<?x8xf32>, tensor<?x1xf32>) : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %some = lm.rows %y at %numbers : tensor<?x8xf32>, tensor<?xi32>
  return %some : tensor<?x8xf32>
}
