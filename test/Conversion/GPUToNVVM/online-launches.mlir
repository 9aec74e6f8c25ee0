// Codes with the scales that sequences keep, in one launch for all rows: the place of each row's sequence is found by a table. So is that
// of what sequences keep, which is brought up to date in one launch.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s
// RUN: sed "s/online>/online, sinks>/" %s | easyquant-opt --easyquant-launches=target=sm_80 | FileCheck %s --check-prefix=SINKS
// SINKS: launch.kernel {{[a-z]+}} @kernels::@quantize_64_f32_online_sinks(
// SINKS: launch.kernel {{[a-z]+}} @kernels::@rms_norm_64_{{.*}}_f32_quantize_online_sinks(

// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[SEQUENCES:[a-z0-9]*]]: memref<?x9xi32> {launch.argument = "sequences"}
// CHECK-SAME:    %[[STATE:[a-z0-9]*]]: memref<?x4xf64> {launch.argument = "state"}
// CHECK-SAME:    %[[ROWS:[a-z0-9]*]]: memref<?xi64> {launch.argument = "row_states"}
// CHECK-SAME:    %[[PLACES:[a-z0-9]*]]: memref<?x2xi32> {launch.argument = "row_places"}
// CHECK:         %[[EXTREMA:.*]] = launch.buffer({{.*}} : memref<?x4xf32>
// CHECK:         %[[PART:.*]] = memref.subview %[[EXTREMA]][0, 0]
// CHECK:         launch.kernel quantize @kernels::@quantize_64_f32_online(%{{.*}}, %{{.*}}, %[[STATE]], %[[ROWS]], {{.*}}, %[[PART]]
// CHECK:         %[[PART2:.*]] = memref.subview %[[EXTREMA]][0, 2]
// CHECK:         launch.kernel quantize @kernels::@rms_norm_64_{{.*}}_f32_quantize_online({{.*}}, %[[STATE]], %[[ROWS]], {{.*}}, %[[PART2]]
// CHECK:         launch.kernel quantize @kernels::@advance_2_window0_decay{{.*}}(%[[EXTREMA]], %{{.*}}, %[[STATE]], %[[SEQUENCES]], %[[PLACES]], %{{.*}}) {site
#online = #equant.scheme<i8, symmetric, tensor, online>
!w = !equant.weight<64x64, #equant.scheme<i8, symmetric, channel>, #equant.layout<m16n8k32>>
!state = !lm.state<sites = 2, fields = 2>
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 0, 4096>}
func.func @forward(%x: tensor<?x64xf32>, %one: tensor<64xf32>, %batch: !lm.batch, %state: !state) -> tensor<?x64xf32> {
  %c = ml_program.global_load_const @w : !w
  equant.track %x in %state {index = 0 : i64} : tensor<?x64xf32>, !state
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !state -> tensor<?xf32>
  %y = equant.packed_linear %x, %c online(%s) {sites = ["a"], input_scheme = #online} : (tensor<?x64xf32>, !w, tensor<?xf32>) -> tensor<?x64xf32>
  %n = lm.rms_norm %y, %one {epsilon = 1.0e-05 : f64} : tensor<?x64xf32>
  equant.track %n in %state {index = 1 : i64} : tensor<?x64xf32>, !state
  %t = equant.online_scale %state, %batch {index = 1 : i64} : !state -> tensor<?xf32>
  %z = equant.packed_linear %n, %c online(%t) {sites = ["b"], input_scheme = #online} : (tensor<?x64xf32>, !w, tensor<?xf32>) -> tensor<?x64xf32>
  equant.advance %state, %batch {decay = 0.5 : f64, window = 0 : i64} : !state
  return %z : tensor<?x64xf32>
}
