// RUN: easyquant-opt %s --equant-absmax="scheme=W8A8 activation-basis=hadamard" --equant-fit-basis=degree=2 2>&1 | FileCheck %s
// RUN: not easyquant-opt %s --equant-absmax="scheme=W8A8 activation-basis=hadamard" --equant-fit-basis=degree=5 2>&1 | FileCheck %s --check-prefix=ODD

// ODD: error: site 'up_proj' has 96 output features, which 5 ranks cannot share; legal degrees of tensor parallelism: 1

// What no rank has a part of keeps its block: up_proj reads all 64 columns.
// CHECK: remark: site 'narrow' stays in the plain basis: the 24 columns that a rank has of it are no whole blocks of 16
// CHECK-LABEL: func.func @layer(
// CHECK: hadamard = 64>, input = <i8, symmetric, token, dynamic, hadamard = 64>>, site = "up_proj"
// CHECK: hadamard = 16>, input = <i8, symmetric, token, dynamic, hadamard = 16>>, site = "down_proj"
// CHECK-LABEL: func.func @narrow(
// CHECK: weight = <i8, symmetric, channel>, input = <i8, symmetric, token, dynamic>>, site = "narrow"

!x = tensor<?x64xf32>

func.func @layer(%x: !x, %up: tensor<96x64xf32>, %down: tensor<64x96xf32>) -> !x {
  %u = lm.linear %x, %up {site = "up_proj"} : (!x, tensor<96x64xf32>) -> tensor<?x96xf32>
  %h = lm.gelu %u approximate tanh : tensor<?x96xf32>
  %y = lm.linear %h, %down {site = "down_proj"} : (tensor<?x96xf32>, tensor<64x96xf32>) -> !x
  %z = lm.add %x, %y : !x
  return %z : !x
}

func.func @narrow(%x: !x, %in: tensor<64x48xf32>, %out: tensor<48x64xf32>) -> !x {
  %u = lm.linear %x, %out {site = "wide"} : (!x, tensor<48x64xf32>) -> tensor<?x48xf32>
  %h = lm.gelu %u approximate tanh : tensor<?x48xf32>
  %y = lm.linear %h, %in {site = "narrow"} : (tensor<?x48xf32>, tensor<64x48xf32>) -> !x
  %z = lm.add %x, %y : !x
  return %z : !x
}
