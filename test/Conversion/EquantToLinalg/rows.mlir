// RUN: easyquant-opt %s --convert-equant-to-linalg --canonicalize --cse | FileCheck %s

// Activations in codes are codes, scales, sums and zero points.

// CHECK-LABEL: func.func @groups(
// CHECK-SAME:    -> (tensor<?x40xi8>, tensor<?x2xf32>, tensor<?x2xi32>, tensor<?x2xi32>)
// CHECK:         tensor.pad %{{.*}} low[0, 0] high[0, 24]
// CHECK:         tensor.expand_shape {{.*}} output_shape [%{{.*}}, 2, 32]
// CHECK:         tensor.extract_slice {{.*}} : tensor<?x64xi8> to tensor<?x40xi8>
!groups = !equant.rows<?x40, #equant.scheme<i8, asymmetric, token, group = 32, dynamic>, sums = 32>
func.func @groups(%x: tensor<?x40xf32>) -> !groups {
  %q = equant.quantize_rows %x : tensor<?x40xf32> -> !groups
  return %q : !groups
}

// Rows that leave a static range have scales of their own.

// CHECK-LABEL: func.func @sinks(
// CHECK-SAME:    -> (tensor<?x40xi8>, tensor<?xf32>, tensor<?xi32>)
// CHECK-DAG:     %[[REACH:.*]] = arith.constant 1.280000e+02 : f32
// CHECK-DAG:     %[[CENTRE:.*]] = arith.constant -3.750000e+01 : f32
// CHECK:           arith.subf %{{.*}}, %[[CENTRE]]
// CHECK:           arith.cmpf ogt, %{{.*}}, %[[REACH]]
// CHECK-NEXT:      arith.select
!sinks = !equant.rows<?x40, #equant.scheme<i8, asymmetric, tensor, sinks>>
func.func @sinks(%x: tensor<?x40xf32>) -> !sinks {
  %q = equant.quantize_rows %x {scale = 0.04 : f32, zero_point = 37 : i32} : tensor<?x40xf32> -> !sinks
  return %q : !sinks
}

// Scales that run time gives.

// CHECK-LABEL: func.func @online(
// CHECK-SAME:    %[[X:.*]]: tensor<?x40xf32>, %[[SCALES:.*]]: tensor<?xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[SCALES]]
// CHECK:           arith.divf
!online = !equant.rows<?x40, #equant.scheme<i8, symmetric, tensor, online>>
func.func @online(%x: tensor<?x40xf32>, %scales: tensor<?xf32>) -> !online {
  %q = equant.quantize_rows %x online(%scales : tensor<?xf32>) : tensor<?x40xf32> -> !online
  return %q : !online
}

// Rounded to FP8 by arithmetic on bits.

// CHECK-LABEL: func.func @fp8(
// CHECK:           arith.bitcast %{{.*}} : f32 to i32
// CHECK:           math.copysign
func.func @fp8(%x: tensor<?x40xf32>) -> tensor<?x40xf32> {
  %y = equant.fake_quantize %x {scheme = #equant.scheme<f8E4M3FN, token, dynamic>} : tensor<?x40xf32>
  return %y : tensor<?x40xf32>
}

// FP4 in groups of 16: scales in steps of FP8 of the one that calibration has found.

// CHECK-LABEL: func.func @fp4(
// CHECK-DAG:     %[[OUTER:.*]] = arith.constant 2.500000e-03 : f32
// CHECK:         tensor.pad
// CHECK:         tensor.expand_shape {{.*}} : tensor<?x48xf32> into tensor<?x3x16xf32>
// CHECK:           %[[SCALE:.*]] = arith.mulf %{{.*}}, %[[OUTER]]
// CHECK:           arith.select %{{.*}}, %[[OUTER]], %[[SCALE]]
// CHECK:           math.copysign
// CHECK:         tensor.extract_slice {{.*}} : tensor<?x48xf32> to tensor<?x40xf32>
func.func @fp4(%x: tensor<?x40xf32>) -> tensor<?x40xf32> {
  %y = equant.fake_quantize %x {scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>, scale = 2.5e-03 : f32} : tensor<?x40xf32>
  return %y : tensor<?x40xf32>
}

// Four stages, each of additions and subtractions of halves.

// CHECK-LABEL: func.func @hadamard(
// CHECK-DAG:     %[[FACTOR:.*]] = arith.constant 2.500000e-01 : f32
// CHECK-COUNT-4: arith.subf
// CHECK-NOT:     arith.subf
// CHECK:         arith.mulf %{{.*}}, %[[FACTOR]]
func.func @hadamard(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %y = equant.hadamard %x {block = 16 : i64} : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
