// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm=step | FileCheck %s
// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm | FileCheck %s --check-prefix=PLAIN
// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm=step | FileCheck %s --check-prefix=MARK
// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm=step | FileCheck %s --check-prefix=SITES
// RUN: easyquant-opt %s --easyquant-launches=max-rows=4 --convert-launches-to-llvm=step | FileCheck %s --check-prefix=ENTRY

// A program that is called with an eq_step (easyquant/Formats/Step.h). Before every kernel the function that it was given hears of its phase (quantize 1, gemm 2, other 6) and site. A barrier may tell the threads to stop. What makes codes counts as quantization, for the linear that needs them where no other
// kernel makes them.

ml_program.global private @norm(#ml_program.extern : tensor<32xf32>) : tensor<32xf32> {equant.offset = 0 : i64}
!w = !equant.weight<32x32, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
ml_program.global private @c(#ml_program.extern : !w) : !w {equant.offset = array<i64: 128, 1152>}
ml_program.global private @table(#ml_program.extern : tensor<10x32xf32>) : tensor<10x32xf32> {equant.offset = 1280 : i64}

#x = #equant.scheme<i8, symmetric, token, dynamic>

// CHECK-LABEL: func.func private @forward.kernels(
// CHECK-SAME: %[[STATE:[^:]*]]: !llvm.ptr, %[[THREAD:[^:]*]]: index, %[[THREADS:[^:]*]]: index,
// CHECK-SAME: %[[FN:[^:]*]]: !llvm.ptr, %[[CONTEXT:[^:]*]]: !llvm.ptr, %[[LOGITS:[^:]*]]: memref<?x10xf32, {{.*}}>) -> i1
// CHECK: llvm.mlir.constant(6 : i64) : i64
// CHECK: call @call_profiler(%[[FN]], %[[CONTEXT]],
// CHECK: call @embedding
func.func private @layer_0(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %norm = ml_program.global_load_const @norm : tensor<32xf32>
  %c = ml_program.global_load_const @c : !w
  // CHECK: %[[QUANTIZE:.*]] = llvm.mlir.constant(1 : i64) : i64
  // CHECK-NEXT: %[[SITE:.*]] = llvm.mlir.addressof @[[NORM:site[_0-9]*]] : !llvm.ptr
  // CHECK-NEXT: call @call_profiler(%[[FN]], %[[CONTEXT]], %[[QUANTIZE]], %[[SITE]])
  // CHECK: call @rms_norm
  %h = lm.rms_norm %x, %norm {epsilon = 1.0e-05 : f64} : tensor<?x32xf32> loc("input_layernorm")
  // CHECK: %[[STOPS:.*]] = call @team_barrier(%[[STATE]], %[[THREADS]])
  // CHECK-NEXT: cf.cond_br %[[STOPS]], ^[[STOPPED:bb[0-9]+]], ^[[NEXT:bb[0-9]+]]
  // CHECK-NEXT: ^[[STOPPED]]:
  // CHECK-NEXT: %[[TRUE:.*]] = arith.constant true
  // CHECK-NEXT: return %[[TRUE]]
  // CHECK: ^[[NEXT]]:
  // CHECK: %[[GEMM:.*]] = llvm.mlir.constant(2 : i64) : i64
  // CHECK-NEXT: %[[SITE:.*]] = llvm.mlir.addressof @[[QK:site[_0-9]*]] : !llvm.ptr
  // CHECK-NEXT: call @call_profiler(%[[FN]], %[[CONTEXT]], %[[GEMM]], %[[SITE]])
  // CHECK: call @linear
  %u = equant.packed_linear %h, %c {sites = ["attn.q_proj", "attn.k_proj"], input_scheme = #x} : (tensor<?x32xf32>, !w) -> tensor<?x32xf32>
  // CHECK: llvm.mlir.constant(1 : i64) : i64
  // CHECK-NEXT: %[[SITE:.*]] = llvm.mlir.addressof @[[DOWN:site[_0-9]*]] : !llvm.ptr
  // CHECK-NEXT: call @call_profiler(%[[FN]],
  // CHECK: call @quantize
  // CHECK: llvm.mlir.constant(2 : i64) : i64
  // CHECK-NEXT: %[[SITE:.*]] = llvm.mlir.addressof @[[DOWN]] : !llvm.ptr
  // CHECK-NEXT: call @call_profiler(%[[FN]],
  // CHECK: call @linear
  %d = equant.packed_linear %u, %c {sites = ["down_proj"], input_scheme = #x} : (tensor<?x32xf32>, !w) -> tensor<?x32xf32>
  %z = lm.add %x, %d : tensor<?x32xf32>
  // The sum is the linear's; what follows is the head.
  // CHECK: call @call_profiler(%[[FN]], %[[CONTEXT]],
  // CHECK: call @linear
  // CHECK-NOT: call_profiler
  // CHECK: %[[FALSE:.*]] = arith.constant false
  // CHECK-NEXT: return %[[FALSE]]
  return %z : tensor<?x32xf32>
}

func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x10xf32> {
  %table = ml_program.global_load_const @table : tensor<10x32xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<10x32xf32> -> tensor<?x32xf32>
  %y = call @layer_0(%x) : (tensor<?x32xf32>) -> tensor<?x32xf32>
  %logits = lm.linear %y, %table {site = "lm_head"} : (tensor<?x32xf32>, tensor<10x32xf32>) -> tensor<?x10xf32>
  return %logits : tensor<?x10xf32>
}

// MARK-LABEL: func.func private @call_profiler(
// MARK-SAME: %[[FN:[^:]*]]: !llvm.ptr, %[[CONTEXT:[^:]*]]: !llvm.ptr, %[[PHASE:[^:]*]]: i64, %[[SITE:[^:]*]]: !llvm.ptr)
// MARK: %[[NULL:.*]] = llvm.mlir.zero : !llvm.ptr
// MARK: %[[GIVEN:.*]] = llvm.icmp "ne" %[[FN]], %[[NULL]]
// MARK: scf.if %[[GIVEN]] {
// MARK-NEXT: llvm.call %[[FN]](%[[CONTEXT]], %[[PHASE]], %[[SITE]]) : !llvm.ptr, (!llvm.ptr, i64, !llvm.ptr) -> ()
// MARK-NEXT: }

// One text a site.
// SITES-DAG: llvm.mlir.global private unnamed_addr constant @{{.*}}("input_layernorm\00")
// SITES-DAG: llvm.mlir.global private unnamed_addr constant @{{.*}}("attn.q_proj+k_proj\00")
// SITES-DAG: llvm.mlir.global private unnamed_addr constant @{{.*}}("down_proj\00")
// SITES-DAG: llvm.mlir.global private unnamed_addr constant @{{.*}}("lm.embedding\00")
// SITES-DAG: llvm.mlir.global private unnamed_addr constant @{{.*}}("lm_head\00")
// SITES-NOT: constant @site

// The entry takes its arguments from the structure, and gives the marking function to the first thread only.
// ENTRY-LABEL: func.func @easyquant_step_avx2(
// ENTRY-SAME: %[[STEP:[^:]*]]: !llvm.ptr) -> i32
// ENTRY: scf.if %{{.*}} -> (i32) {
// ENTRY: omp.parallel num_threads(
// ENTRY: %[[THREAD:.*]] = arith.index_castui
// ENTRY: %[[FIRST:.*]] = arith.cmpi eq, %[[THREAD]],
// ENTRY: %[[TOLD:.*]] = llvm.select %[[FIRST]], %{{.*}}, %{{.*}} : i1, !llvm.ptr
// ENTRY: %[[STOPS:.*]] = func.call @forward.kernels({{.*}}, %[[THREAD]], %{{[^,]*}}, %[[TOLD]],
// ENTRY: %[[INTERRUPTED:.*]] = arith.constant 7 : i32
// ENTRY-NEXT: llvm.store %[[INTERRUPTED]],
// ENTRY: } else {
// ENTRY: arith.constant 4 : i32

// PLAIN-NOT: call_profiler
// PLAIN-NOT: site
// PLAIN-NOT: cond_br
