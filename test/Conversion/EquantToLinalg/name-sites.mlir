// RUN: easyquant-opt %s --equant-name-sites --split-input-file --verify-diagnostics | FileCheck %s

// Whatever the order of dimensions; attention's products have no weight.
// CHECK-LABEL: func @forward
func.func @forward(%x: tensor<?x4xf32>, %i: tensor<?x2xf32>, %p: tensor<3x?x4xf32>, %q: tensor<3x4x?xf32>, %s: tensor<3x?x?xf32>)
    -> (tensor<?x2xf32>, tensor<?x2xf32>, tensor<3x?x?xf32>) {
  %c = arith.constant dense<0.5> : tensor<4x2xf32>
  %r = arith.constant dense_resource<w> : tensor<2x4xf32>
  %e = tensor.empty() : tensor<4x2xf32>
  %t = linalg.transpose ins(%r : tensor<2x4xf32>) outs(%e : tensor<4x2xf32>) permutation = [1, 0]
  // CHECK: linalg.matmul {equant.site = "forward.matmul_0"}
  %0 = linalg.matmul ins(%x, %c : tensor<?x4xf32>, tensor<4x2xf32>) outs(%i : tensor<?x2xf32>) -> tensor<?x2xf32>
  // CHECK: linalg.matmul {equant.site = "up"}
  %1 = linalg.matmul ins(%x, %t : tensor<?x4xf32>, tensor<4x2xf32>) outs(%i : tensor<?x2xf32>) -> tensor<?x2xf32> loc("up")
  // CHECK: linalg.batch_matmul ins
  %2 = linalg.batch_matmul ins(%p, %q : tensor<3x?x4xf32>, tensor<3x4x?xf32>) outs(%s : tensor<3x?x?xf32>) -> tensor<3x?x?xf32>
  return %0, %1, %2 : tensor<?x2xf32>, tensor<?x2xf32>, tensor<3x?x?xf32>
}
{-# dialect_resources: { builtin: { w: "0x040000000000803F0000803F0000803F0000803F0000803F0000803F0000803F0000803F" } } #-}

// -----

// A name that somebody gave stays, and others keep clear of it.
// CHECK-LABEL: func @f
func.func @f(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %c = arith.constant dense<0.5> : tensor<4x2xf32>
  // CHECK: equant.site = "f.matmul_1"
  %0 = linalg.matmul ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  // CHECK: equant.site = "f.matmul_0"
  %1 = linalg.matmul {equant.site = "f.matmul_0"} ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0, %1 : tensor<1x2xf32>, tensor<1x2xf32>
}

// -----

// What has a weight and is no linear says why. Groups of channels are linears side by side, and so are the channels of a depthwise convolution.
// CHECK-LABEL: func @others
// CHECK: linalg.matmul ins
func.func @others(%x: tensor<1x4xf64>, %i: tensor<1x2xf64>, %y: tensor<1x2x4x4xf32>, %j: tensor<1x2x2x2xf32>)
    -> (tensor<1x2xf64>, tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>) {
  %c = arith.constant dense<0.5> : tensor<4x2xf64>
  // expected-remark @below {{linalg.matmul stays float: it computes with tensor<1x4xf64>; expected tensors of f32, f16 or bf16}}
  %0 = linalg.matmul ins(%x, %c : tensor<1x4xf64>, tensor<4x2xf64>) outs(%i : tensor<1x2xf64>) -> tensor<1x2xf64>
  %d = arith.constant dense<0.5> : tensor<2x1x1x3x3xf32>
  %g = tensor.expand_shape %y [[0], [1, 2], [3], [4]] output_shape [1, 2, 1, 4, 4] : tensor<1x2x4x4xf32> into tensor<1x2x1x4x4xf32>
  %k = tensor.expand_shape %j [[0], [1, 2], [3], [4]] output_shape [1, 2, 1, 2, 2] : tensor<1x2x2x2xf32> into tensor<1x2x1x2x2xf32>
  // CHECK: equant.site = "others.conv_2d_ngchw_gfchw_0"
  %1 = linalg.conv_2d_ngchw_gfchw ins(%g, %d : tensor<1x2x1x4x4xf32>, tensor<2x1x1x3x3xf32>) outs(%k : tensor<1x2x1x2x2xf32>) -> tensor<1x2x1x2x2xf32>
  %2 = tensor.collapse_shape %1 [[0], [1, 2], [3], [4]] : tensor<1x2x1x2x2xf32> into tensor<1x2x2x2xf32>
  %e = arith.constant dense<0.5> : tensor<2x3x3xf32>
  // CHECK: equant.site = "others.depthwise_conv_2d_nchw_chw_0"
  %3 = linalg.depthwise_conv_2d_nchw_chw ins(%y, %e : tensor<1x2x4x4xf32>, tensor<2x3x3xf32>) outs(%j : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %0, %2, %3 : tensor<1x2xf64>, tensor<1x2x2x2xf32>, tensor<1x2x2x2xf32>
}

// -----

// Half precision, and a constant that is widened.
// CHECK-LABEL: func @half
func.func @half(%x: tensor<1x4xf16>, %i: tensor<1x2xf16>, %y: tensor<1x4xf32>, %j: tensor<1x2xf32>) -> (tensor<1x2xf16>, tensor<1x2xf32>) {
  %c = arith.constant dense<0.5> : tensor<4x2xf16>
  // CHECK: equant.site = "half.matmul_0"
  %0 = linalg.matmul ins(%x, %c : tensor<1x4xf16>, tensor<4x2xf16>) outs(%i : tensor<1x2xf16>) -> tensor<1x2xf16>
  %d = arith.constant dense<0.5> : tensor<4x2xbf16>
  %w = arith.extf %d : tensor<4x2xbf16> to tensor<4x2xf32>
  // CHECK: equant.site = "half.matmul_1"
  %1 = linalg.matmul ins(%y, %w : tensor<1x4xf32>, tensor<4x2xf32>) outs(%j : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0, %1 : tensor<1x2xf16>, tensor<1x2xf32>
}

// -----

// expected-warning @below {{equant-name-sites: nothing to do: expected linalg.matmul, batch_matmul, contract or a convolution, one of whose factors is a constant of the module}}
module {
  func.func @dynamic(%x: tensor<1x4xf32>, %w: tensor<4x2xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
    %0 = linalg.matmul ins(%x, %w : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
    return %0 : tensor<1x2xf32>
  }
}
