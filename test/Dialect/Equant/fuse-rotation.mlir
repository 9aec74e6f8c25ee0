// RUN: easyquant-opt %s --equant-fuse-kernels | FileCheck %s --check-prefixes=CHECK,CPU
// RUN: easyquant-opt %s --equant-fuse-kernels=target=gpu | FileCheck %s --check-prefixes=CHECK,GPU

!x = tensor<?x64xf32>
!rows = !equant.rows<?x64, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>
!online = !equant.rows<?x64, #equant.scheme<i8, symmetric, tensor, online>>
!state = !lm.state<sites = 2, fields = 2>

// The kernel that makes rows rotates and quantizes them; rows that others read, too, are rotated by the kernel that quantizes.
// CHECK-LABEL: func.func @codes(
// CHECK:       %[[S:.*]] = equant.fusion {
// CHECK-NEXT:    lm.glu
// CHECK-NEXT:    equant.hadamard
// CHECK-NEXT:    equant.quantize_rows
// CHECK-NEXT:    equant.yield
// CHECK:       %[[G:.*]] = lm.gelu
// CHECK-NEXT:  %[[R:.*]] = equant.fusion {
// CHECK-NEXT:    equant.hadamard %[[G]]
// CHECK-NEXT:    equant.quantize_rows
// CHECK-NEXT:    equant.yield
// CHECK:       return %[[S]], %[[R]], %[[G]]
func.func @codes(%x: !x, %u: !x) -> (!rows, !rows, !x) {
  %s = lm.glu silu %x, %u : !x
  %h = equant.hadamard %s {block = 64 : i64} : !x
  %c = equant.quantize_rows %h : !x -> !rows
  %g = lm.gelu %x approximate none : !x
  %i = equant.hadamard %g {block = 64 : i64} : !x
  %d = equant.quantize_rows %i : !x -> !rows
  return %c, %d, %g : !rows, !rows, !x
}

// Rotated rows of several readers are made once, by the kernel that makes rows; what no kernel makes is rotated by one of its own.
// CHECK-LABEL: func.func @floats(
// CHECK:       %[[N:.*]] = equant.fusion {
// CHECK-NEXT:    lm.rms_norm
// CHECK-NEXT:    %[[H:.*]] = equant.hadamard
// CHECK-NEXT:    equant.yield %[[H]]
// CHECK:       equant.quantize_rows %[[N]]
// CHECK-NEXT:  equant.hadamard
// CHECK-NEXT:  return
func.func @floats(%x: !x, %w: tensor<64xf32>) -> (!x, !rows, !x) {
  %n = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : !x
  %h = equant.hadamard %n {block = 64 : i64} : !x
  %c = equant.quantize_rows %h : !x -> !rows
  %i = equant.hadamard %x {block = 16 : i64} : !x
  return %h, %c, %i : !x, !rows, !x
}

// On a GPU the kernel that rotates writes the bf16 that linears read.
// CHECK-LABEL: func.func @cast(
// CHECK:       equant.fusion {
// CHECK-NEXT:    lm.rms_norm
// CHECK-NEXT:    equant.hadamard
// GPU-NEXT:      arith.truncf
// CHECK-NEXT:    equant.yield
// CPU:         arith.truncf
func.func @cast(%x: !x, %w: tensor<64xf32>) -> tensor<?x64xbf16> {
  %n = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : !x
  %h = equant.hadamard %n {block = 64 : i64} : !x
  %b = arith.truncf %h : !x to tensor<?x64xbf16>
  return %b : tensor<?x64xbf16>
}

// Online scales are of rotated rows.
// CHECK-LABEL: func.func @online(
// CHECK-NEXT:  equant.fusion {
// CHECK-NEXT:    lm.rms_norm
// CHECK-NEXT:    equant.hadamard
// CHECK-NEXT:    equant.online_scale
// CHECK-NEXT:    equant.track
// CHECK-NEXT:    equant.quantize_rows
// CHECK-NEXT:    equant.yield
// CHECK:       equant.fusion {
// CHECK-NEXT:    equant.hadamard
// CHECK-NEXT:    equant.online_scale
// CHECK-NEXT:    equant.track
// CHECK-NEXT:    equant.quantize_rows
// CHECK-NEXT:    equant.yield
func.func @online(%x: !x, %w: tensor<64xf32>, %batch: !lm.batch, %state: !state) -> (!online, !online) {
  %n = lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : !x
  %h = equant.hadamard %n {block = 64 : i64} : !x
  equant.track %h in %state {index = 0 : i64} : !x, !state
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !state -> tensor<?xf32>
  %c = equant.quantize_rows %h online(%s : tensor<?xf32>) : !x -> !online
  %i = equant.hadamard %x {block = 64 : i64} : !x
  equant.track %i in %state {index = 1 : i64} : !x, !state
  %t = equant.online_scale %state, %batch {index = 1 : i64} : !state -> tensor<?xf32>
  %d = equant.quantize_rows %i online(%t : tensor<?xf32>) : !x -> !online
  return %c, %d : !online, !online
}
