// RUN: easyquant-opt %s --equant-evaluate-constants --split-input-file | FileCheck %s

// Codes and scales in the place of the floats; what equant says of the module goes.
// CHECK: module {
// CHECK-LABEL: func @channels
// CHECK-DAG: %[[CODES:.*]] = arith.constant dense<{{\[}}[50, -127], [127, 54]]> : tensor<2x2xi8>
// CHECK-DAG: %[[SCALES:.*]] = arith.constant dense<{{\[}}[0.00999999977], [0.00236220472]]> : tensor<2x1xf32>
// CHECK-NOT: dense
// CHECK: equant.from_codes %[[CODES]] scale(%[[SCALES]])
!w = !equant.weight<2x2, #equant.scheme<i8, symmetric, channel>>
module attributes {equant.recipe = {}} {
  func.func @channels() -> !w {
    %c = arith.constant dense<[[0.5, -1.27], [0.3, 0.127]]> : tensor<2x2xf32>
    %q = equant.quantize %c rule absmax : (tensor<2x2xf32>) -> !w
    return %q : !w
  }
}

// -----

// The order that the ops between give: all scales are 1.
// CHECK-LABEL: func @views
!w = !equant.weight<2x4, #equant.scheme<i8, symmetric, channel>>
func.func @views() -> (!w, !w, !w) {
  // CHECK-DAG: dense<{{\[}}[1, 127, 5, 127], [127, 4, 127, 8]]> : tensor<2x4xi8>
  %c = arith.constant dense<[[[1.0, 127.0], [127.0, 4.0]], [[5.0, 127.0], [127.0, 8.0]]]> : tensor<2x2x2xf32>
  %e = tensor.empty() : tensor<2x2x2xf32>
  %t = linalg.transpose ins(%c : tensor<2x2x2xf32>) outs(%e : tensor<2x2x2xf32>) permutation = [1, 0, 2]
  %m = tensor.collapse_shape %t [[0], [1, 2]] : tensor<2x2x2xf32> into tensor<2x4xf32>
  %q = equant.quantize %m rule absmax : (tensor<2x4xf32>) -> !w
  // CHECK-DAG: dense<{{\[}}[127, 2, 127, 2], [127, 2, 127, 2]]> : tensor<2x4xi8>
  %v = arith.constant dense<[127.0, 2.0]> : tensor<2xf32>
  %b = linalg.broadcast ins(%v : tensor<2xf32>) outs(%e : tensor<2x2x2xf32>) dimensions = [0, 1]
  %n = tensor.collapse_shape %b [[0], [1, 2]] : tensor<2x2x2xf32> into tensor<2x4xf32>
  %r = equant.quantize %n rule absmax : (tensor<2x4xf32>) -> !w
  // CHECK-DAG: dense<{{\[}}[127, 3, 5, 7], [2, 4, 127, 8]]> : tensor<2x4xi8>
  %f = arith.constant dense<[127.0, 2.0, 3.0, 4.0, 5.0, 127.0, 7.0, 8.0]> : tensor<8xf32>
  %x = tensor.expand_shape %f [[0, 1]] output_shape [4, 2] : tensor<8xf32> into tensor<4x2xf32>
  %d = tensor.empty() : tensor<2x4xf32>
  %u = linalg.transpose ins(%x : tensor<4x2xf32>) outs(%d : tensor<2x4xf32>) permutation = [1, 0]
  %s = equant.quantize %u rule absmax : (tensor<2x4xf32>) -> !w
  return %q, %r, %s : !w, !w, !w
}

// -----

// Codes of 4 bits, one a byte, with zero points and scales of f16.
// CHECK-LABEL: func @groups
// CHECK: equant.from_codes {{.*}} zero_point({{.*}}) : (tensor<1x4xi8>, tensor<1x2xf16>, tensor<1x2xi32>)
!w = !equant.weight<1x4, #equant.scheme<i4, asymmetric, group = 2, scale = f16>>
func.func @groups() -> !w {
  %c = arith.constant dense<[[0.5, -1.27, 0.3, 0.127]]> : tensor<1x4xf32>
  %q = equant.quantize %c rule zeropoint : (tensor<1x4xf32>) -> !w
  return %q : !w
}

// -----

// Scales with another above them become their products, in f32; parts have them, too.
// CHECK-LABEL: func @outer
// CHECK: equant.from_codes {{.*}} : (tensor<2x32xi8>, tensor<2x2xf32>) -> [[W:!equant.weight<2x32, #equant.scheme<f4E2M1FN, group = 16>>]]
// CHECK: equant.slice {{.*}} : [[W]] -> !equant.weight<1x32, #equant.scheme<f4E2M1FN, group = 16>>
!w = !equant.weight<2x32, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>>
!p = !equant.weight<1x32, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>>
func.func @outer() -> tensor<1x32xf32> {
  %c = arith.constant dense<0.75> : tensor<2x32xf32>
  %q = equant.quantize %c rule absmax : (tensor<2x32xf32>) -> !w
  %s = equant.slice %q [1, 0] [1, 32] : !w -> !p
  %f = equant.dequantize %s : !p -> tensor<1x32xf32>
  return %f : tensor<1x32xf32>
}

// -----

// What is no constant stays, and so do scales that somebody has chosen.
// CHECK-LABEL: func @arguments
// CHECK-COUNT-2: equant.quantize
!w = !equant.weight<2x2, #equant.scheme<i8, symmetric, channel>>
func.func @arguments(%a: tensor<2x2xf32>, %s: tensor<2x1xf32>) -> (!w, !w) {
  %c = arith.constant dense<0.5> : tensor<2x2xf32>
  %q = equant.quantize %a rule absmax : (tensor<2x2xf32>) -> !w
  %r = equant.quantize %c scale(%s) : (tensor<2x2xf32>, tensor<2x1xf32>) -> !w
  return %q, %r : !w, !w
}
