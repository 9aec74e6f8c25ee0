// What is asked of a linalg op that only models of lm have.
// RUN: not easyquant-opt %s --pass-pipeline='builtin.module(equant-absmax{scheme=W4A16 methods=gptq})' 2>&1 | FileCheck %s --check-prefix=METHOD
// METHOD: site 'up': its plan has method gptq, which runs text through a model of lm, and this is a linalg.matmul; take absmax, symmetric, zeropoint or zeroquant alone
// RUN: not easyquant-opt %s --pass-pipeline='builtin.module(equant-absmax{scheme=W8A8 activations=static})' 2>&1 | FileCheck %s --check-prefix=STATIC
// STATIC: site 'up': its plan has static activations, and the op has no equant.input_scale, an f32; give it, or take dynamic activations
// RUN: not easyquant-opt %s --pass-pipeline='builtin.module(equant-absmax{scheme=W8A8 activations=online-ema})' 2>&1 | FileCheck %s --check-prefix=ONLINE
// ONLINE: site 'up': its plan has activations online-ema, which belongs to models of lm, and this is a linalg.matmul; take dynamic ones
// RUN: not easyquant-opt %s --pass-pipeline='builtin.module(equant-absmax{scheme=W8A8 activation-basis=hadamard})' 2>&1 | FileCheck %s --check-prefix=BASIS
// BASIS: site 'up': its plan has activations in the basis hadamard, which belongs to models of lm, and this is a linalg.matmul; take basis plain
// RUN: not easyquant-opt %s --pass-pipeline='builtin.module(equant-absmax{scheme=keep head=float})' 2>&1 | FileCheck %s --check-prefix=KEEP
// KEEP: site 'up': its plan has scheme keep, which belongs to models of lm, and this is a linalg.matmul; take a scheme by name
// RUN: not easyquant-opt %s --pass-pipeline='builtin.module(equant-absmax{scheme=W4A16 weight-observer=hessian-diagonal})' 2>&1 | FileCheck %s --check-prefix=HESSIAN
// HESSIAN: site 'up': its plan has weight observer hessian-diagonal, which belongs to models of lm, and this is a linalg.matmul; take another observer

func.func @f(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = arith.constant dense<0.5> : tensor<4x2xf32>
  %0 = linalg.matmul {equant.site = "up"} ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}
