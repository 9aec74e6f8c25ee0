// RUN: easyquant-opt %s --allow-unregistered-dialect --equant-fuse-shared-input | FileCheck %s --implicit-check-not=equant.concat --implicit-check-not=lm.split

#w8 = #equant.scheme<i8, symmetric, channel>
#g8 = #equant.scheme<i8, symmetric, group = 8>
#t8 = #equant.scheme<i8, symmetric, tensor>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>

// Different weight schemes, different input schemes, one with a bias.
// CHECK-LABEL: func.func @disagree(
// CHECK-COUNT-4: equant.linear
func.func @disagree(%x: tensor<?x8xf32>, %q: tensor<4x8xi8>, %s: tensor<4x1xf32>, %b: tensor<4xf32>) {
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #w8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  equant.linear %x, %q scale(%s) {sites = ["b"], weight_scheme = #g8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  equant.linear %x, %q scale(%s) {sites = ["c"], weight_scheme = #w8, input_scheme = #a8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  equant.linear %x, %q scale(%s) bias(%b) {sites = ["d"], weight_scheme = #w8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>, tensor<4xf32>) -> tensor<?x4xf32>
  return
}

// One scale per tensor cannot become one for both.
// CHECK-LABEL: func.func @tensor_scale(
// CHECK-COUNT-2: equant.linear
func.func @tensor_scale(%x: tensor<?x8xf32>, %q: tensor<4x8xi8>, %s: tensor<1x1xf32>) {
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #t8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<1x1xf32>) -> tensor<?x4xf32>
  equant.linear %x, %q scale(%s) {sites = ["b"], weight_scheme = #t8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<1x1xf32>) -> tensor<?x4xf32>
  return
}

// Different inputs; float linears are left alone.
// CHECK-LABEL: func.func @inputs(
// CHECK-COUNT-2: equant.linear
// CHECK-COUNT-2: lm.linear
func.func @inputs(%x: tensor<?x8xf32>, %z: tensor<?x8xf32>, %q: tensor<4x8xi8>, %s: tensor<4x1xf32>, %w: tensor<4x8xf32>) {
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #w8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  equant.linear %z, %q scale(%s) {sites = ["b"], weight_scheme = #w8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  lm.linear %x, %w {site = "c"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  lm.linear %x, %w {site = "d"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  return
}

// The scale of the second comes out of the first: it cannot be made earlier.
// CHECK-LABEL: func.func @depends(
// CHECK-COUNT-2: equant.linear
func.func @depends(%x: tensor<?x8xf32>, %q: tensor<4x8xi8>, %s: tensor<4x1xf32>) {
  %y = equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #w8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  %t = "test.scales_from"(%y) : (tensor<?x4xf32>) -> tensor<4x1xf32>
  equant.linear %x, %q scale(%t) {sites = ["b"], weight_scheme = #w8}
    : (tensor<?x8xf32>, tensor<4x8xi8>, tensor<4x1xf32>) -> tensor<?x4xf32>
  return
}
