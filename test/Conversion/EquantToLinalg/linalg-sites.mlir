// RUN: easyquant-opt %s --pass-pipeline='builtin.module(equant-name-sites,equant-absmax{scheme=W8A8},equant-quantize,canonicalize,cse)' --split-input-file | FileCheck %s --check-prefixes=CHECK,A8
// RUN: easyquant-opt %s --pass-pipeline='builtin.module(equant-name-sites,equant-absmax{scheme=W8A16},equant-quantize,canonicalize,cse)' --split-input-file | FileCheck %s --check-prefixes=CHECK,A16

// A zero to add to is none; the weight becomes rows of output features.
// CHECK-LABEL: func @matmul
// CHECK: %[[ROWS:.*]] = linalg.transpose ins(%{{.*}} : tensor<4x2xf32>) outs(%{{.*}} : tensor<2x4xf32>) permutation = [1, 0]
// CHECK: %[[W:.*]] = equant.quantize %[[ROWS]] rule absmax
// A8: %[[Y:.*]] = equant.linear %arg0, %[[W]] {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["matmul.matmul_0"]}
// A8-NEXT: return %[[Y]]
// A16: %[[F:.*]] = equant.dequantize %[[W]]
// A16: linalg.contract indexing_maps = [#{{.*}}, #{{.*}}, #{{.*}}] ins(%arg0, %[[F]] : tensor<?x4xf32>, tensor<2x4xf32>)
func.func @matmul(%x: tensor<?x4xf32>, %i: tensor<?x2xf32>) -> tensor<?x2xf32> {
  %w = arith.constant dense<0.5> : tensor<4x2xf32>
  %zero = arith.constant 0.0 : f32
  %init = linalg.fill ins(%zero : f32) outs(%i : tensor<?x2xf32>) -> tensor<?x2xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x4xf32>, tensor<4x2xf32>) outs(%init : tensor<?x2xf32>) -> tensor<?x2xf32>
  return %y : tensor<?x2xf32>
}

// -----

// A row is the window of a place; with float activations the op stays what it was.
// CHECK-LABEL: func @convolution
// CHECK: %[[W:.*]] = equant.quantize %{{.*}} rule absmax : (tensor<2x12xf32>)
// A8: linalg.generic
// A8-SAME: ins(%arg0 : tensor<1x3x5x5xf32>) outs(%{{.*}} : tensor<1x2x2x3x2x2xf32>)
// A8: equant.linear %{{.*}}, %[[W]]
// A8: arith.addf
// A16: %[[F:.*]] = equant.dequantize %[[W]]
// A16: %[[K:.*]] = tensor.expand_shape %[[F]] {{\[}}[0], [1, 2, 3]] output_shape [2, 3, 2, 2]
// A16: linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>} ins(%arg0, %[[K]] : tensor<1x3x5x5xf32>, tensor<2x3x2x2xf32>) outs(%arg1 :
func.func @convolution(%x: tensor<1x3x5x5xf32>, %i: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %w = arith.constant dense<0.5> : tensor<2x3x2x2xf32>
  %y = linalg.conv_2d_nchw_fchw {dilations = dense<1> : tensor<2xi64>, strides = dense<2> : tensor<2xi64>}
         ins(%x, %w : tensor<1x3x5x5xf32>, tensor<2x3x2x2xf32>) outs(%i : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %y : tensor<1x2x2x2xf32>
}

// -----

// Each of a batch of weights is a linear of its own, and a part of one weight.
// CHECK-LABEL: func @batch
// CHECK: equant.quantize %{{.*}} : (tensor<6x4xf32>) -> !equant.weight<6x4,
// A8: equant.slice %{{.*}} [0, 0] [2, 4]
// A8: equant.linear
// A8: equant.slice %{{.*}} [2, 0] [2, 4]
// A8: equant.linear
// A8: equant.slice %{{.*}} [4, 0] [2, 4]
// A8: equant.linear
// A16: tensor.expand_shape %{{.*}} {{\[}}[0, 1], [2]] output_shape [3, 2, 4]
// A16: linalg.contract
func.func @batch(%x: tensor<3x?x4xf32>, %i: tensor<3x?x2xf32>) -> tensor<3x?x2xf32> {
  %w = arith.constant dense<0.5> : tensor<3x4x2xf32>
  %y = linalg.batch_matmul ins(%x, %w : tensor<3x?x4xf32>, tensor<3x4x2xf32>) outs(%i : tensor<3x?x2xf32>) -> tensor<3x?x2xf32>
  return %y : tensor<3x?x2xf32>
}

// -----

// Shapes that the program does not know are those of the weight.
// CHECK-LABEL: func @dynamic
// A8: tensor.cast %arg0 : tensor<?x?xf32> to tensor<?x4xf32>
// A8: tensor.cast %{{.*}} : tensor<?x2xf32> to tensor<?x?xf32>
// A16: linalg.contract {{.*}} : tensor<?x4xf32>, tensor<2x4xf32>)
func.func @dynamic(%x: tensor<?x?xf32>, %i: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %w = arith.constant dense<0.5> : tensor<4x2xf32>
  %zero = arith.constant 0.0 : f32
  %init = linalg.fill ins(%zero : f32) outs(%i : tensor<?x?xf32>) -> tensor<?x?xf32>
  %y = linalg.matmul ins(%x, %w : tensor<?x?xf32>, tensor<4x2xf32>) outs(%init : tensor<?x?xf32>) -> tensor<?x?xf32>
  return %y : tensor<?x?xf32>
}

// -----

// The weight of a depthwise convolution has a row for each channel; each is a linear beside codes, and one op beside floats.
// CHECK-LABEL: func @depthwise
// CHECK: equant.quantize %{{.*}} rule absmax : (tensor<2x9xf32>) -> !equant.weight<2x9, #equant.scheme<i8, symmetric, channel>>
// A8: equant.slice %{{.*}} [0, 0] [1, 9]
// A8: equant.linear
// A8: equant.slice %{{.*}} [1, 0] [1, 9]
// A8: equant.linear
// A16: linalg.depthwise_conv_2d_nhwc_hwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>} ins(%arg0, %{{.*}} : tensor<1x4x4x2xf32>, tensor<3x3x2xf32>) outs(%arg1 :
func.func @depthwise(%x: tensor<1x4x4x2xf32>, %i: tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32> {
  %w = arith.constant dense<0.5> : tensor<3x3x2xf32>
  %y = linalg.depthwise_conv_2d_nhwc_hwc {dilations = dense<1> : tensor<2xi64>, strides = dense<1> : tensor<2xi64>}
         ins(%x, %w : tensor<1x4x4x2xf32>, tensor<3x3x2xf32>) outs(%i : tensor<1x2x2x2xf32>) -> tensor<1x2x2x2xf32>
  return %y : tensor<1x2x2x2xf32>
}

// -----

// In half precision codes are those of f32, and what they stand for is rounded to the type of the factors.
// CHECK-LABEL: func @half
// CHECK: arith.extf %{{.*}} : tensor<2x4xf16> to tensor<2x4xf32>
// CHECK: equant.quantize
// A8: arith.extf %arg0 : tensor<?x4xf16> to tensor<?x4xf32>
// A8: %[[Y:.*]] = equant.linear
// A8: arith.truncf %[[Y]] : tensor<?x2xf32> to tensor<?x2xf16>
// A16: arith.truncf %{{.*}} : tensor<2x4xf32> to tensor<2x4xf16>
// A16: linalg.contract {{.*}} : tensor<?x4xf16>, tensor<2x4xf16>) outs(%{{.*}} : tensor<?x2xf16>)
func.func @half(%x: tensor<?x4xf16>, %i: tensor<?x2xf16>) -> tensor<?x2xf16> {
  %w = arith.constant dense<0.5> : tensor<4x2xf16>
  %zero = arith.constant 0.0 : f16
  %init = linalg.fill ins(%zero : f16) outs(%i : tensor<?x2xf16>) -> tensor<?x2xf16>
  %y = linalg.matmul ins(%x, %w : tensor<?x4xf16>, tensor<4x2xf16>) outs(%init : tensor<?x2xf16>) -> tensor<?x2xf16>
  return %y : tensor<?x2xf16>
}

// -----

// A product of two activations stays as it is.
// CHECK-LABEL: func @plain
// CHECK: linalg.matmul ins
func.func @plain(%x: tensor<1x4xf32>, %w: tensor<4x2xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %y = linalg.matmul ins(%x, %w : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %y : tensor<1x2xf32>
}
