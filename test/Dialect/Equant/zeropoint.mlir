// RUN: easyquant-opt %s "--equant-zeropoint=scheme=W8A8 activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,W8A8
// RUN: easyquant-opt %s "--equant-zeropoint=scheme=W4A16_ASYM methods=awq" | FileCheck %s --check-prefixes=CHECK,W4A16
// RUN: easyquant-opt %s "--equant-zeropoint=scheme=W8A8 activations=static activation-basis=plain head=float" | FileCheck %s --check-prefixes=CHECK,STATIC
// RUN: easyquant-opt %s "--equant-zeropoint=scheme=W3A16 weight-observer=entropy" | FileCheck %s --check-prefixes=CHECK,ENTROPY

// Where the method and the scheme imply zero points they are not named.
// W8A8: method = "zeropoint", scheme = "W8A8"
// W4A16: method = "awq", scheme = "W4A16_ASYM"
// CHECK-LABEL: func.func @forward(
// W8A8: {equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i8, asymmetric, channel>, input = <i8, symmetric, token, dynamic>>, site = "up"}
// W8A8: {equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i8, asymmetric, channel>, input = <i8, symmetric, token, dynamic>>, site = "lm_head"}
// W4A16: {equant.plan = #equant.plan<methods = ["awq"], rule = zeropoint, weight = <i4, asymmetric, group = 128, scale = f16>>, site = "up"}
// W4A16: {equant.plan = #equant.plan<methods = [], rule = zeropoint, weight = <i8, asymmetric, channel>>, site = "lm_head"}
// STATIC: input = <i8, asymmetric, tensor, sinks>>, site = "up"}
// STATIC: {site = "lm_head"}
// ENTROPY: rule = entropy, weight = <i3, asymmetric, group = 128, scale = f16>>, site = "up"}
func.func @forward(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) {
  %y = lm.linear %x, %w {site = "up"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  lm.linear %y, %w {site = "lm_head"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return
}
