// RUN: easyquant-opt %s --equant-insert-observers="statistics=absmax,mean_abs" | FileCheck %s
// RUN: easyquant-opt %s --equant-insert-observers="sites=up,re:^out$" | FileCheck %s --check-prefix=SOME

// One observer an activation, naming every site that reads it; nothing drops it.

// CHECK-LABEL: func.func @mlp(
// CHECK-SAME: %[[X:.*]]: tensor<?x8xf32>,
func.func @mlp(%x: tensor<?x8xf32>, %wg: tensor<16x8xf32>, %wu: tensor<16x8xf32>, %wd: tensor<8x16xf32>) -> tensor<?x8xf32> {
  // CHECK: equant.observe %[[X]] {sites = ["gate", "up"], statistics = ["absmax", "mean_abs"]} : tensor<?x8xf32>
  // CHECK-NEXT: %[[G:.*]] = lm.linear %[[X]]
  // CHECK-NEXT: %[[U:.*]] = lm.linear %[[X]]
  // SOME: equant.observe %{{.*}} {sites = ["up"], statistics = ["absmax", "minmax"]} : tensor<?x8xf32>
  %g = lm.linear %x, %wg {site = "gate"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %u = lm.linear %x, %wu {site = "up"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  // CHECK-NEXT: %[[M:.*]] = lm.glu silu %[[G]], %[[U]]
  // CHECK-NEXT: equant.observe %[[M]] {sites = ["down"], statistics = ["absmax", "mean_abs"]} : tensor<?x16xf32>
  // SOME-NOT: sites = ["down"]
  %m = lm.glu silu %g, %u : tensor<?x16xf32>
  %d = lm.linear %m, %wd {site = "down"} : (tensor<?x16xf32>, tensor<8x16xf32>) -> tensor<?x8xf32>
  return %d : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @head(
// SOME-LABEL: func.func @head(
func.func @head(%x: tensor<?x8xf32>, %w: tensor<32x8xf32>) -> tensor<?x32xf32> {
  // CHECK: equant.observe
  // SOME: equant.observe %{{.*}} {sites = ["out"]
  %y = lm.linear %x, %w {site = "out"} : (tensor<?x8xf32>, tensor<32x8xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// Experts are observed with what says which rows are whose, and without positions of sinks.

// RUN: easyquant-opt %s --equant-insert-observers="statistics=hessian,sinks" | FileCheck %s --check-prefix=EXPERTS
// RUN: easyquant-opt %s --equant-insert-observers="statistics=sinks sites=moe.up" | FileCheck %s --check-prefix=NONE

// EXPERTS-LABEL: func.func @experts(
// NONE-LABEL: func.func @experts(
// NONE-NOT: equant.observe
func.func @experts(%x: tensor<?x8xf32>, %router: tensor<4x8xf32>, %wg: tensor<64x8xf32>, %wu: tensor<64x8xf32>, %wd: tensor<32x16xf32>) -> tensor<?x8xf32> {
  // EXPERTS: equant.observe %{{.*}} {sites = ["router"], statistics = ["hessian", "sinks"]}
  %logits = lm.linear %x, %router {site = "router"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  // EXPERTS: %[[ORDER:.*]], %[[OFFSETS:.*]], %{{.*}}, %{{.*}} = lm.route
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2 : i64}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  // EXPERTS: %[[ROWS:.*]] = lm.rows
  // EXPERTS-NEXT: equant.observe %[[ROWS]] experts(%[[ORDER]], %[[OFFSETS]]) {sites = ["moe.gate", "moe.up"], statistics = ["hessian"]} : tensor<?x8xf32>, tensor<?xi32>, tensor<5xi32>
  %rows = lm.rows %x at %order : tensor<?x8xf32>, tensor<?xi32>
  %g = lm.linear %rows, %wg experts(%offsets) {site = "moe.gate"} : (tensor<?x8xf32>, tensor<64x8xf32>, tensor<5xi32>) -> tensor<?x16xf32>
  %u = lm.linear %rows, %wu experts(%offsets) {site = "moe.up"} : (tensor<?x8xf32>, tensor<64x8xf32>, tensor<5xi32>) -> tensor<?x16xf32>
  %m = lm.glu silu %g, %u : tensor<?x16xf32>
  // EXPERTS: equant.observe %{{.*}} experts(%[[ORDER]], %[[OFFSETS]]) {sites = ["moe.down"], statistics = ["hessian"]} : tensor<?x16xf32>, tensor<?xi32>, tensor<5xi32>
  %d = lm.linear %m, %wd experts(%offsets) {site = "moe.down"} : (tensor<?x16xf32>, tensor<32x16xf32>, tensor<5xi32>) -> tensor<?x8xf32>
  %y = lm.combine %d, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x8xf32>
}
