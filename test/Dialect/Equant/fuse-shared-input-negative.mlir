// RUN: easyquant-opt %s --allow-unregistered-dialect --equant-fuse-shared-input | FileCheck %s --implicit-check-not=equant.concat --implicit-check-not=lm.split

#w8 = #equant.scheme<i8, symmetric, channel>
#g8 = #equant.scheme<i8, symmetric, group = 8>
#t8 = #equant.scheme<i8, symmetric, tensor>
#a8 = #equant.scheme<i8, symmetric, token, dynamic>

// Different weight schemes, different input schemes, one with a bias.
// CHECK-LABEL: func.func @disagree(
// CHECK-COUNT-4: equant.linear
func.func @disagree(%x: tensor<?x8xf32>, %q: !equant.weight<4x8, #w8>, %g: !equant.weight<4x8, #g8>, %b: tensor<4xf32>) {
  equant.linear %x, %q {sites = ["a"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>) -> tensor<?x4xf32>
  equant.linear %x, %g {sites = ["b"]} : (tensor<?x8xf32>, !equant.weight<4x8, #g8>) -> tensor<?x4xf32>
  equant.linear %x, %q {sites = ["c"], input_scheme = #a8} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>) -> tensor<?x4xf32>
  equant.linear %x, %q bias(%b) {sites = ["d"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>, tensor<4xf32>) -> tensor<?x4xf32>
  return
}

// One scale per tensor cannot become one for both.
// CHECK-LABEL: func.func @tensor_scale(
// CHECK-COUNT-2: equant.linear
func.func @tensor_scale(%x: tensor<?x8xf32>, %q: !equant.weight<4x8, #t8>) {
  equant.linear %x, %q {sites = ["a"]} : (tensor<?x8xf32>, !equant.weight<4x8, #t8>) -> tensor<?x4xf32>
  equant.linear %x, %q {sites = ["b"]} : (tensor<?x8xf32>, !equant.weight<4x8, #t8>) -> tensor<?x4xf32>
  return
}

// Different inputs; float linears are left alone.
// CHECK-LABEL: func.func @inputs(
// CHECK-COUNT-2: equant.linear
// CHECK-COUNT-2: lm.linear
func.func @inputs(%x: tensor<?x8xf32>, %z: tensor<?x8xf32>, %q: !equant.weight<4x8, #w8>, %w: tensor<4x8xf32>) {
  equant.linear %x, %q {sites = ["a"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>) -> tensor<?x4xf32>
  equant.linear %z, %q {sites = ["b"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>) -> tensor<?x4xf32>
  lm.linear %x, %w {site = "c"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  lm.linear %x, %w {site = "d"} : (tensor<?x8xf32>, tensor<4x8xf32>) -> tensor<?x4xf32>
  return
}

// The weight of the second comes out of the first: it cannot be made earlier.
// CHECK-LABEL: func.func @depends(
// CHECK-COUNT-2: equant.linear
func.func @depends(%x: tensor<?x8xf32>, %q: !equant.weight<4x8, #w8>) {
  %y = equant.linear %x, %q {sites = ["a"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>) -> tensor<?x4xf32>
  %t = "test.weight_from"(%y) : (tensor<?x4xf32>) -> !equant.weight<4x8, #w8>
  equant.linear %x, %t {sites = ["b"]} : (tensor<?x8xf32>, !equant.weight<4x8, #w8>) -> tensor<?x4xf32>
  return
}
