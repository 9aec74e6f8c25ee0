// Kernels with online scales take the state, the sequences and the place of their site, and note extrema in columns of one buffer.

// RUN: easyquant-opt %s --easyquant-launches=target=avx2 --split-input-file --verify-diagnostics | FileCheck %s
// RUN: sed "s/online>/online, sinks>/" %s | easyquant-opt --easyquant-launches=target=avx2 --split-input-file --verify-diagnostics | FileCheck %s --check-prefix=SINKS
// SINKS: launch.kernel {{[a-z]+}} @quantize_8_sinks_online4(
// SINKS: launch.kernel {{[a-z]+}} @rms_norm_8_{{.*}}_quantize_sinks_online4(

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[BATCH:[a-z0-9]*]]: memref<?x9xi32> {launch.argument = "sequences"}, %[[STATE:[a-z0-9]*]]: memref<?x4xf64> {launch.argument = "state"}
// CHECK:         %[[EXTREMA:.*]] = launch.buffer({{.*}} : memref<?x4xf32>
// CHECK:         %[[PART:.*]] = memref.subview %[[EXTREMA]][0, 0]
// CHECK:         launch.kernel quantize @quantize_8_online4(%{{.*}}, %[[STATE]], %[[BATCH]], {{.*}}, %[[PART]]) {
// CHECK:         %[[PART2:.*]] = memref.subview %[[EXTREMA]][0, 2]
// CHECK:         launch.kernel quantize @rms_norm_8_{{.*}}_quantize_online4(%{{.*}}, %{{.*}}, %[[STATE]], %[[BATCH]], {{.*}}, %[[PART2]]) {
// CHECK:         launch.kernel quantize @advance_2_window0_{{.*}}(%[[EXTREMA]], %[[STATE]], %[[BATCH]]) {{{.*}}writes = array<i64: 1>}
#online = #equant.scheme<i8, symmetric, tensor, online>
!w = !equant.weight<8x8, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
!state = !lm.state<sites = 2, fields = 2>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 256>}
func.func @forward(%x: tensor<?x8xf32>, %one: tensor<8xf32>, %batch: !lm.batch, %state: !state) -> tensor<?x8xf32> {
  %c = ml_program.global_load_const @w : !w
  equant.track %x in %state {index = 0 : i64} : tensor<?x8xf32>, !state
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !state -> tensor<?xf32>
  %y = equant.packed_linear %x, %c online(%s) {sites = ["a"], input_scheme = #online} : (tensor<?x8xf32>, !w, tensor<?xf32>) -> tensor<?x8xf32>
  %n = lm.rms_norm %y, %one {epsilon = 1.0e-05 : f64} : tensor<?x8xf32>
  equant.track %n in %state {index = 1 : i64} : tensor<?x8xf32>, !state
  %t = equant.online_scale %state, %batch {index = 1 : i64} : !state -> tensor<?xf32>
  %z = equant.packed_linear %n, %c online(%t) {sites = ["b"], input_scheme = #online} : (tensor<?x8xf32>, !w, tensor<?xf32>) -> tensor<?x8xf32>
  equant.advance %state, %batch {decay = 0.5 : f64, window = 0 : i64} : !state
  return %z : tensor<?x8xf32>
}

// -----

#online = #equant.scheme<i8, symmetric, tensor, online>
!w = !equant.weight<8x8, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
!state = !lm.state<sites = 2, fields = 2>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 256>}
func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %state: !state) -> tensor<?x8xf32> {
  %c = ml_program.global_load_const @w : !w
  // expected-error @below {{belongs to the kernel that makes codes with the scale: run equant-fuse-kernels first}}
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !state -> tensor<?xf32>
  %y = equant.packed_linear %x, %c online(%s) {sites = ["a"], input_scheme = #online} : (tensor<?x8xf32>, !w, tensor<?xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %state: !lm.state<sites = 2, fields = 2>) -> tensor<?x8xf32> {
  // expected-error @below {{has a state of which no site is tracked}}
  equant.advance %state, %batch {decay = 0.5 : f64, window = 0 : i64} : !lm.state<sites = 2, fields = 2>
  return %x : tensor<?x8xf32>
}
