// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm -split-input-file -verify-diagnostics | FileCheck %s

// Gradients of row-wise ops are kernels. Products of matrices are calls of the program's caller, numbered in the order of the
// module, with operands and results; those that sum over tokens are written to the caller's memory.

ml_program.global private @norm(#ml_program.extern : tensor<32xf32>) : tensor<32xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<32x16xf32>) : tensor<32x16xf32> {equant.offset = 128 : i64}

// CHECK-LABEL: func.func private @forward.kernels(
// CHECK-SAME: %[[DY:[^:]*]]: memref<?x32xf32, strided<[?, 1], offset: ?>>, %[[X:[^:]*]]: memref<?x32xf32
// CHECK-SAME: %[[STATE:[^:]*]]: !llvm.ptr, %[[THREAD:[^:]*]]: index, %[[THREADS:[^:]*]]: index, %[[FUNCTION:[^:]*]]: !llvm.ptr, %[[CONTEXT:[^:]*]]: !llvm.ptr,
// CHECK-SAME: %[[DW:[^:]*]]: memref<32x16xf32, strided<[?, 1], offset: ?>>, %[[DB:[^:]*]]: memref<32xf32>, %{{.*}}: memref<?x16xf32
func.func @forward(%dy: tensor<?x32xf32>, %x: tensor<?x32xf32>) -> (tensor<32x16xf32>, tensor<32xf32>, tensor<?x16xf32>) {
  %norm = ml_program.global_load_const @norm : tensor<32xf32>
  %w = ml_program.global_load_const @w : tensor<32x16xf32>
  // CHECK: %[[DX:.*]] = memref.view
  // CHECK: call @rms_norm_gradient_32_by32_{{.*}}(%[[DY]], %[[X]], %{{.*}}, %{{.*}}, %[[STATE]], %[[THREAD]], %[[THREADS]])
  %dx = lm.rms_norm_gradient %dy, %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>, tensor<32xf32>
  // CHECK: %[[OPERANDS:.*]] = llvm.alloca %{{.*}} x i64
  // CHECK: %[[FIRST:.*]] = llvm.mlir.constant(0 : i64)
  // CHECK: llvm.call %[[FUNCTION]](%[[CONTEXT]], %{{.*}}, %[[OPERANDS]]) : !llvm.ptr, (!llvm.ptr, i64, !llvm.ptr) -> ()
  %in = lm.linear_input_gradient %dx, %w : tensor<?x32xf32>, tensor<32x16xf32> -> tensor<?x16xf32>
  // CHECK: memref.extract_strided_metadata %[[DW]]
  // CHECK: llvm.call %[[FUNCTION]]
  %dw = lm.linear_weight_gradient %dx, %in : tensor<?x32xf32>, tensor<?x16xf32> -> tensor<32x16xf32>
  // CHECK: llvm.call %[[FUNCTION]]
  %db = lm.bias_gradient %dx : tensor<?x32xf32>
  return %dw, %db, %in : tensor<32x16xf32>, tensor<32xf32>, tensor<?x16xf32>
}

// -----

func.func @forward(%dy: tensor<?x32xf32>) -> tensor<?x32xf32> {
  // expected-error @below {{sums over tokens: its result can only be one of @forward}}
  %db = lm.bias_gradient %dy : tensor<?x32xf32>
  %y = lm.rms_norm %dy, %db {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
