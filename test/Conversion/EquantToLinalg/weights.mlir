// RUN: easyquant-opt %s --convert-equant-to-linalg --canonicalize --cse --split-input-file | FileCheck %s

// What a weight is made of, on operands that are no constants of a model.

!w = !equant.weight<4x32, #equant.scheme<i4, symmetric, group = 16, scale = f16>>

// CHECK-LABEL: func.func @from_codes(
// CHECK-SAME:    %[[CODES:.*]]: tensor<4x32xi4>, %[[SCALES:.*]]: tensor<4x2xf16>) -> (tensor<4x32xi8>, tensor<4x2xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[CODES]] : tensor<4x32xi4>) outs({{.*}} : tensor<4x32xi8>)
// CHECK:           arith.extsi %{{.*}} : i4 to i8
// CHECK:         linalg.generic {{.*}} ins(%[[SCALES]]
// CHECK:           arith.extf %{{.*}} : f16 to f32
func.func @from_codes(%codes: tensor<4x32xi4>, %scale: tensor<4x2xf16>) -> !w {
  %w = equant.from_codes %codes scale(%scale) : (tensor<4x32xi4>, tensor<4x2xf16>) -> !w
  return %w : !w
}

// CHECK-LABEL: func.func @absmax(
// CHECK:           arith.truncf %{{.*}} : f32 to f16
// CHECK-NEXT:      arith.extf
// CHECK:           arith.divf
// CHECK:           arith.maximumf
// CHECK-NEXT:      arith.minimumf
// CHECK-NEXT:      math.roundeven
func.func @absmax(%x: tensor<4x32xf32>) -> !w {
  %w = equant.quantize %x rule absmax : (tensor<4x32xf32>) -> !w
  return %w : !w
}

// One scale for a whole weight: the largest of all rows, for each of them.

// CHECK-LABEL: func.func @whole(
// CHECK-SAME:    %[[X:.*]]: tensor<4x32xf32>) -> (tensor<4x32xi8>, tensor<4x1xf32>)
// CHECK:         linalg.generic {{.*}} iterator_types = ["reduction", "parallel"]} ins(%{{.*}} : tensor<4x1xf32>) outs(%{{.*}} : tensor<1xf32>)
// CHECK:           arith.maximumf
// CHECK:         arith.divf
!whole = !equant.weight<4x32, #equant.scheme<i8, symmetric, tensor>>
func.func @whole(%x: tensor<4x32xf32>) -> !whole {
  %w = equant.quantize %x rule absmax : (tensor<4x32xf32>) -> !whole
  return %w : !whole
}

// Two rows and the last group.

// CHECK-LABEL: func.func @slice(
// CHECK-SAME:    %[[CODES:.*]]: tensor<4x32xi8>, %[[SCALES:.*]]: tensor<4x2xf32>) -> (tensor<2x16xi8>, tensor<2x1xf32>)
// CHECK:         tensor.extract_slice %[[CODES]][1, 16] [2, 16] [1, 1]
// CHECK:         tensor.extract_slice %[[SCALES]][1, 1] [2, 1] [1, 1]
!part = !equant.weight<2x16, #equant.scheme<i4, symmetric, group = 16, scale = f16>>
func.func @slice(%w: !w) -> !part {
  %v = equant.slice %w [1, 16] [2, 16] : !w -> !part
  return %v : !part
}

// CHECK-LABEL: func.func @concat(
// CHECK:         tensor.insert_slice {{.*}}[0, 0] [4, 32] [1, 1] : tensor<4x32xi8> into tensor<8x32xi8>
// CHECK:         tensor.insert_slice {{.*}}[4, 0] [4, 32] [1, 1] : tensor<4x32xi8> into tensor<8x32xi8>
// CHECK:         tensor.insert_slice {{.*}}[4, 0] [4, 2] [1, 1] : tensor<4x2xf32> into tensor<8x2xf32>
!both = !equant.weight<8x32, #equant.scheme<i4, symmetric, group = 16, scale = f16>>
func.func @concat(%a: !w, %b: !w) -> !both {
  %v = equant.concat %a, %b : (!w, !w) -> !both
  return %v : !both
}

// CHECK-LABEL: func.func @scale(
// CHECK:         linalg.generic
// CHECK:           arith.divf
func.func @scale(%x: tensor<4x32xf32>, %s: tensor<32xf32>) -> tensor<4x32xf32> {
  %y = equant.scale %x by %s {axis = 1, divide} : tensor<4x32xf32>, tensor<32xf32>
  return %y : tensor<4x32xf32>
}

// Columns in the order of the groups of a weight.

// CHECK-LABEL: func.func @gather_columns(
// CHECK-SAME:    %[[X:.*]]: tensor<?x32xf32>, %[[ORDER:.*]]: tensor<32xi32>)
// CHECK:         linalg.generic {{.*}} ins(%[[ORDER]] : tensor<32xi32>) outs({{.*}} : tensor<?x32xf32>)
// CHECK:           %[[ROW:.*]] = linalg.index 0
// CHECK:           %[[COLUMN:.*]] = arith.index_cast %{{.*}} : i32 to index
// CHECK:           tensor.extract %[[X]][%[[ROW]], %[[COLUMN]]]
func.func @gather_columns(%x: tensor<?x32xf32>, %order: tensor<32xi32>) -> tensor<?x32xf32> {
  %y = equant.gather_columns %x by %order : tensor<?x32xf32>, tensor<32xi32>
  return %y : tensor<?x32xf32>
}

// Constants are rotated in f64 and rounded once; rows before `first` stay.

// CHECK-LABEL: func.func @rotated_rows(
// CHECK-DAG:     %[[ROOT:.*]] = arith.constant 4.000000e+00 : f64
// CHECK:           arith.extf %{{.*}} : f32 to f64
// CHECK-COUNT-4:   arith.subf %{{.*}} : f64
// CHECK:           arith.divf %{{.*}}, %[[ROOT]] : f64
// CHECK-NEXT:      arith.truncf
// CHECK:         tensor.insert_slice {{.*}}[16, 0] [16, 8]
func.func @rotated_rows(%x: tensor<32x8xf32>) -> tensor<32x8xf32> {
  %y = equant.hadamard %x {axis = 0 : i64, block = 16 : i64, first = 16 : i64} : tensor<32x8xf32>
  return %y : tensor<32x8xf32>
}

// -----

// Globals of plain weights become those of their parts; sums are not read.

!w = !equant.weight<4x32, #equant.scheme<i8, asymmetric, channel>, #equant.layout<plain>>
// CHECK-DAG:   ml_program.global private @a.weight({{.*}}) : tensor<4x32xi8>
// CHECK-DAG:   ml_program.global private @a.weight_scale({{.*}}) : tensor<4x1xf32>
// CHECK-DAG:   ml_program.global private @a.weight_zero_point({{.*}}) : tensor<4x1xi8>
// CHECK-NOT:   _sums
ml_program.global private @w(#ml_program.extern : !w) : !w
  {equant.tensors = ["a.weight", "a.weight_scale", "a.weight_zero_point"]}
// CHECK-LABEL: func.func @load(
// CHECK:         %[[CODES:.*]] = ml_program.global_load_const @a.weight : tensor<4x32xi8>
// CHECK:         %[[SCALES:.*]] = ml_program.global_load_const @a.weight_scale : tensor<4x1xf32>
// CHECK:         %[[ZEROS:.*]] = ml_program.global_load_const @a.weight_zero_point : tensor<4x1xi8>
// CHECK:           arith.extsi %{{.*}} : i8 to i32
func.func @load(%x: tensor<?x32xf32>) -> tensor<?x4xf32> {
  %w = ml_program.global_load_const @w : !w
  %y = equant.packed_linear %x, %w {sites = ["a"]} : (tensor<?x32xf32>, !w) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}

// -----

// One scale for all: every row has it.

!w = !equant.weight<4x32, #equant.scheme<i8, symmetric, tensor>>
// CHECK-LABEL: func.func @tensor(
// CHECK-SAME:    %[[CODES:.*]]: tensor<4x32xi8>, %[[SCALE:.*]]: tensor<1x1xf32>) -> (tensor<4x32xi8>, tensor<4x1xf32>)
// CHECK:         %[[ALL:.*]] = linalg.generic
// CHECK:         return %[[CODES]], %[[ALL]]
func.func @tensor(%codes: tensor<4x32xi8>, %scale: tensor<1x1xf32>) -> !w {
  %w = equant.from_codes %codes scale(%scale) : (tensor<4x32xi8>, tensor<1x1xf32>) -> !w
  return %w : !w
}

// Codes of FP4 are their bits less 8; scales are products with the one above them.

!fp4 = !equant.weight<4x32, #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>>
// CHECK-LABEL: func.func @fp4(
// CHECK:           %[[BITS:.*]] = arith.bitcast %{{.*}} : f4E2M1FN to i4
// CHECK-NEXT:      %[[BYTE:.*]] = arith.extui %[[BITS]] : i4 to i8
// CHECK-NEXT:      arith.addi %[[BYTE]], %{{.*}} : i8
// CHECK:           arith.extf %{{.*}} : f8E4M3FN to f32
// CHECK-NEXT:      arith.mulf
func.func @fp4(%codes: tensor<4x32xf4E2M1FN>, %scale: tensor<4x2xf8E4M3FN>, %outer: tensor<4x1xf32>) -> !fp4 {
  %w = equant.from_codes %codes scale(%scale) outer(%outer) : (tensor<4x32xf4E2M1FN>, tensor<4x2xf8E4M3FN>, tensor<4x1xf32>) -> !fp4
  return %w : !fp4
}

// Codes that a method has chosen stay as they are.

!rounded = !equant.weight<4x32, #equant.scheme<i3, asymmetric, group = 16>>
// CHECK-LABEL: func.func @rounded(
// CHECK-SAME:    -> (tensor<4x32xi8>, tensor<4x2xf32>, tensor<4x2xi32>)
// CHECK-NOT:     math.roundeven
func.func @rounded(%x: tensor<4x32xf32>, %scale: tensor<4x2xf32>, %zero: tensor<4x2xi32>, %codes: tensor<4x32xi3>) -> !rounded {
  %w = equant.quantize %x scale(%scale) zero_point(%zero) rounded(%codes)
         : (tensor<4x32xf32>, tensor<4x2xf32>, tensor<4x2xi32>, tensor<4x32xi3>) -> !rounded
  return %w : !rounded
}

// Minima are floats, beside scales of either level.

!minima = !equant.weight<4x32, #equant.scheme<i4, asymmetric, minima, group = 16, scale = f16>>
// CHECK-LABEL: func.func @minima(
// CHECK-SAME:    -> (tensor<4x32xi8>, tensor<4x2xf32>, tensor<4x2xf32>)
// CHECK-COUNT-2:   arith.extf %{{.*}} : f16 to f32
func.func @minima(%codes: tensor<4x32xi8>, %scale: tensor<4x2xf16>, %minimum: tensor<4x2xf16>) -> !minima {
  %w = equant.from_codes %codes scale(%scale) minimum(%minimum) : (tensor<4x32xi8>, tensor<4x2xf16>, tensor<4x2xf16>) -> !minima
  return %w : !minima
}

// Codes count from the minimum on: (x - m) / s between 0 and 15, less 8.

// CHECK-LABEL: func.func @rounded_above(
// CHECK-DAG:     %[[LEAST:.*]] = arith.constant 0.000000e+00 : f32
// CHECK-DAG:     %[[GREATEST:.*]] = arith.constant 1.500000e+01 : f32
// CHECK-DAG:     %[[FIRST:.*]] = arith.constant -8 : i32
// CHECK:           arith.subf
// CHECK-NEXT:      arith.divf
// CHECK-NEXT:      arith.maximumf %{{.*}}, %[[LEAST]]
// CHECK-NEXT:      arith.minimumf %{{.*}}, %[[GREATEST]]
// CHECK-NEXT:      math.roundeven
// CHECK-NEXT:      arith.fptosi
// CHECK-NEXT:      arith.addi %{{.*}}, %[[FIRST]]
func.func @rounded_above(%x: tensor<4x32xf32>, %scale: tensor<4x2xf16>, %minimum: tensor<4x2xf16>) -> !minima {
  %w = equant.quantize %x scale(%scale) minimum(%minimum) : (tensor<4x32xf32>, tensor<4x2xf16>, tensor<4x2xf16>) -> !minima
  return %w : !minima
}

// CHECK-LABEL: func.func @above_minima(
// CHECK:           arith.subi %{{.*}}, %{{.*}} : i32
// CHECK-NEXT:      arith.sitofp
// CHECK-NEXT:      arith.mulf
// CHECK-NEXT:      arith.addf
func.func @above_minima(%w: !minima) -> tensor<4x32xf32> {
  %f = equant.dequantize %w : !minima -> tensor<4x32xf32>
  return %f : tensor<4x32xf32>
}

// -----

// Globals of plain weights have minima in f32.

!super = !equant.weight<4x256, #equant.scheme<i4, asymmetric, minima, group = 32, super>, #equant.layout<plain>>
// CHECK-DAG:   ml_program.global private @a.weight_minimum({{.*}}) : tensor<4x8xf32>
ml_program.global private @w(#ml_program.extern : !super) : !super {equant.tensors = ["a.weight", "a.weight_scale", "a.weight_minimum"]}
// CHECK-LABEL: func.func @load_minima(
// CHECK:         ml_program.global_load_const @a.weight_minimum : tensor<4x8xf32>
func.func @load_minima(%x: tensor<?x256xf32>) -> tensor<?x4xf32> {
  %w = ml_program.global_load_const @w : !super
  %y = equant.packed_linear %x, %w {sites = ["a"]} : (tensor<?x256xf32>, !super) -> tensor<?x4xf32>
  return %y : tensor<?x4xf32>
}
