// Kernels with online scales take the state, the sequences and the place of their site, and note extrema in columns of one buffer.

// RUN: easyquant-opt %s --easyquant-launches=target=avx2 --split-input-file --verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[BATCH:[a-z0-9]*]]: memref<?x9xi32> {launch.argument = "sequences"}, %[[STATE:[a-z0-9]*]]: memref<?x4xf64> {launch.argument = "state"}
// CHECK:         %[[FIRST:.*]] = arith.constant 0 : index
// CHECK:         %[[EXTREMA:.*]] = launch.buffer({{.*}} : memref<?x4xf32>
// CHECK:         %[[PART:.*]] = memref.subview %[[EXTREMA]][0, 0]
// CHECK:         launch.kernel @quantize_8_online4(%{{.*}}, %[[STATE]], %[[BATCH]], %[[FIRST]], %{{.*}}, %{{.*}}, %{{.*}}, %[[PART]]) {phase = "quantize"
// CHECK:         %[[SECOND:.*]] = arith.constant 2 : index
// CHECK:         %[[PART2:.*]] = memref.subview %[[EXTREMA]][0, 2]
// CHECK:         launch.kernel @rms_norm_8_{{.*}}_quantize_online4(%{{.*}}, %{{.*}}, %[[STATE]], %[[BATCH]], %[[SECOND]], {{.*}}, %[[PART2]]) {phase = "quantize"
// CHECK:         launch.kernel @advance_2_window0_{{.*}}(%[[EXTREMA]], %[[STATE]], %[[BATCH]]) {phase = "quantize", {{.*}}, writes = array<i64: 0, 1>}
#online = #equant.scheme<i8, symmetric, tensor, online>
!state = !lm.state<sites = 2, fields = 2>
func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %state: !state) -> tensor<?x8xf32> {
  %one = arith.constant dense<1.0> : tensor<8xf32>
  equant.track %x in %state {index = 0 : i64} : tensor<?x8xf32>, !state
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !state -> tensor<?xf32>
  %q:3 = equant.quantize_rows %x online(%s : tensor<?xf32>) {scheme = #online, group = 0 : i64} : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?xf32>, tensor<?x1xi32>
  %n = lm.rms_norm %x, %one {epsilon = 1.0e-05 : f64} : tensor<?x8xf32>
  equant.track %n in %state {index = 1 : i64} : tensor<?x8xf32>, !state
  %t = equant.online_scale %state, %batch {index = 1 : i64} : !state -> tensor<?xf32>
  %r:3 = equant.quantize_rows %n online(%t : tensor<?xf32>) {scheme = #online, group = 0 : i64} : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?xf32>, tensor<?x1xi32>
  equant.advance %state, %batch {decay = 0.5 : f64, window = 0 : i64} : !state
  return %x : tensor<?x8xf32>
}

// -----

#online = #equant.scheme<i8, symmetric, tensor, online>
!state = !lm.state<sites = 2, fields = 2>
func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %state: !state) -> tensor<?x8xf32> {
  // expected-error @below {{belongs to the kernel that makes codes with the scale: run equant-fuse-kernels first}}
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !state -> tensor<?xf32>
  %q:3 = equant.quantize_rows %x online(%s : tensor<?xf32>) {scheme = #online, group = 0 : i64} : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?xf32>, tensor<?x1xi32>
  return %x : tensor<?x8xf32>
}

// -----

func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %state: !lm.state<sites = 2, fields = 2>) -> tensor<?x8xf32> {
  // expected-error @below {{has a state of which no site is tracked}}
  equant.advance %state, %batch {decay = 0.5 : f64, window = 0 : i64} : !lm.state<sites = 2, fields = 2>
  return %x : tensor<?x8xf32>
}
