// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm | FileCheck %s

// Observers make every function take a function to call and its context, and what they see exists
// as float rows although only a quantized linear reads it. Results of the entry come last, one
// argument each; a caller's rows are not overwritten.

ml_program.global private @norm(#ml_program.extern : tensor<32xf32>) : tensor<32xf32> {equant.offset = 0 : i64}
!w = !equant.weight<32x32, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
ml_program.global private @c(#ml_program.extern : !w) : !w {equant.offset = array<i64: 128, 1152>}

// CHECK-LABEL: func.func private @forward.kernels(
// CHECK-SAME: %[[X:[^:]*]]: memref<?x32xf32, strided<[?, 1], offset: ?>>,
// CHECK-SAME: %[[STATE:[^:]*]]: !llvm.ptr, %[[THREAD:[^:]*]]: index, %[[THREADS:[^:]*]]: index,
// CHECK-SAME: %[[OBSERVER:[^:]*]]: !llvm.ptr, %[[CONTEXT:[^:]*]]: !llvm.ptr,
// CHECK-SAME: %[[Z:[^:]*]]: memref<?x32xf32, strided<[?, 1], offset: ?>>, %[[H:[^:]*]]: memref<?x32xf32, strided<[?, 1], offset: ?>>)
func.func @forward(%x: tensor<?x32xf32>) -> (tensor<?x32xf32>, tensor<?x32xf32>) {
  %norm = ml_program.global_load_const @norm : tensor<32xf32>
  %c = ml_program.global_load_const @c : !w
  // CHECK: call @rms_norm{{.*}}(%[[X]], %{{.*}}, %[[H]], %[[STATE]], %[[THREAD]], %[[THREADS]])
  %h = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x32xf32>
  // CHECK: memref.extract_aligned_pointer_as_index %[[H]]
  // CHECK: %[[OPERANDS:.*]] = llvm.alloca
  // The first thread calls, when all have met, and they meet again before the next kernel.
  // CHECK: call @team_barrier(%[[STATE]], %[[THREADS]])
  // CHECK: %[[FIRST:.*]] = arith.cmpi eq, %[[THREAD]], %c0
  // CHECK-NEXT: scf.if %[[FIRST]] {
  // CHECK: llvm.call %[[OBSERVER]](%[[CONTEXT]], %{{.*}}, %[[OPERANDS]]) : !llvm.ptr, (!llvm.ptr, i64, !llvm.ptr) -> ()
  equant.observe %h {sites = ["up"], statistics = ["absmax"]} : tensor<?x32xf32>
  // CHECK: call @team_barrier(%[[STATE]], %[[THREADS]])
  // CHECK: call @{{.*}}quant{{.*}}(%[[H]]
  %u = equant.packed_linear %h, %c {sites = ["up"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : (tensor<?x32xf32>, !w) -> tensor<?x32xf32>
  // CHECK: call @{{.*}}add{{.*}}(%[[X]], %{{.*}}, %[[Z]], %[[STATE]], %[[THREAD]], %[[THREADS]])
  %z = lm.add %x, %u : tensor<?x32xf32>
  return %z, %h : tensor<?x32xf32>, tensor<?x32xf32>
}
