// RUN: easyquant-opt %s "--equant-symmetric=scheme=W8A8 activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,W8A8
// RUN: easyquant-opt %s "--equant-symmetric=scheme=W4A8 activations=static activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,STATIC

// CHECK: method = "symmetric"
// CHECK-LABEL: func.func @forward(
// W8A8: {equant.plan = #equant.plan<methods = [], rule = symmetric, weight = <i8, symmetric, full, channel>, input = <i8, symmetric, token, dynamic>>, site = "up"}
// W8A8: rule = symmetric, weight = <i8, symmetric, full, channel>, input = <i8, symmetric, token, dynamic>>, site = "lm_head"}
// STATIC: rule = symmetric, weight = <i4, symmetric, full, group = 128, scale = f16>, input = <i8, symmetric, full, tensor, sinks>>, site = "up"}
func.func @forward(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) {
  %y = lm.linear %x, %w {site = "up"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  lm.linear %y, %w {site = "lm_head"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return
}
