// RUN: easyquant-opt %s --convert-equant-to-linalg --canonicalize --cse | FileCheck %s

!channel = !equant.weight<6x64, #equant.scheme<i8, symmetric, channel>>
!group = !equant.weight<6x64, #equant.scheme<i4, asymmetric, group = 32>>
!ragged = !equant.weight<6x40, #equant.scheme<i4, symmetric, group = 16>>

// A scale a token and one a channel: one product of matrices in i32. Scales of the weight come first.

// CHECK-DAG:   #[[MK:.*]] = affine_map<(d0, d1, d2) -> (d0, d2)>
// CHECK-DAG:   #[[NK:.*]] = affine_map<(d0, d1, d2) -> (d1, d2)>
// CHECK-DAG:   #[[MN:.*]] = affine_map<(d0, d1, d2) -> (d0, d1)>
// CHECK-DAG:   #[[MHGK:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d2, d3)>
// CHECK-DAG:   #[[NHGK:.*]] = affine_map<(d0, d1, d2, d3) -> (d1, d2, d3)>
// CHECK-DAG:   #[[MNH:.*]] = affine_map<(d0, d1, d2, d3) -> (d0, d1, d2)>

// CHECK-LABEL: func.func @channel(
// CHECK-SAME:    %[[X:.*]]: tensor<?x64xf32>, %[[CODES:.*]]: tensor<6x64xi8>, %[[SCALES:.*]]: tensor<6x1xf32>, %[[BIAS:.*]]: tensor<6xf32>) -> tensor<?x6xf32>
// CHECK-DAG:     %[[LEAST:.*]] = arith.constant 1.50463277E-36 : f32
// CHECK:         %[[ABSMAX:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "reduction"]} ins(%[[X]]
// CHECK:           math.absf
// CHECK-NEXT:      arith.maximumf
// CHECK:         %[[SCALE:.*]] = linalg.generic
// CHECK:           arith.divf %{{.*}}, %{{.*}} : f32
// CHECK:           arith.cmpf {{.*}}, %[[LEAST]]
// CHECK:         %[[INVERSE:.*]] = linalg.generic
// CHECK:         %[[Q:.*]] = linalg.generic {{.*}} ins(%[[X]], %[[INVERSE]]
// CHECK:           arith.mulf
// CHECK:           math.roundeven
// CHECK-NEXT:      arith.fptosi {{.*}} : f32 to i32
// CHECK-NEXT:      arith.trunci {{.*}} : i32 to i8
// CHECK:         %[[DOTS:.*]] = linalg.contract indexing_maps = [#[[MK]], #[[NK]], #[[MN]]] ins(%[[Q]], %[[CODES]] : tensor<?x64xi8>, tensor<6x64xi8>) outs({{.*}}) -> tensor<?x6xi32>
// CHECK:         %[[OFROW:.*]] = tensor.collapse_shape %[[SCALES]]
// CHECK:         %[[Y:.*]] = linalg.generic {{.*}} ins(%[[DOTS]], %[[OFROW]], %[[SCALE]], %[[BIAS]]
// CHECK:         ^bb0(%[[DOT:.*]]: i32, %[[SW:.*]]: f32, %[[SX:.*]]: f32, %[[B:.*]]: f32, %{{.*}}: f32):
// CHECK-NEXT:      %[[FLOAT:.*]] = arith.sitofp %[[DOT]] : i32 to f32
// CHECK-NEXT:      %[[OFW:.*]] = arith.mulf %[[SW]], %[[FLOAT]]
// CHECK-NEXT:      %[[OFX:.*]] = arith.mulf %[[SX]], %[[OFW]]
// CHECK-NEXT:      arith.addf %[[OFX]], %[[B]]
// CHECK:         return %[[Y]]
func.func @channel(%x: tensor<?x64xf32>, %w: !channel, %bias: tensor<6xf32>) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w bias(%bias) {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["a"]}
         : (tensor<?x64xf32>, !channel, tensor<6xf32>) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Groups are a dimension; codes less zero points of four bits fit into i8. Sums of groups are scaled one behind the other.

// CHECK-LABEL: func.func @group(
// CHECK-SAME:    %[[X:.*]]: tensor<?x64xf32>, %[[CODES:.*]]: tensor<6x64xi8>, %[[SCALES:.*]]: tensor<6x2xf32>, %[[ZEROS:.*]]: tensor<6x2xi32>)
// CHECK:         %[[GROUPED:.*]] = tensor.expand_shape %[[CODES]] {{\[\[}}0], [1, 2]] output_shape [6, 2, 32]
// CHECK:         %[[STEPS:.*]] = linalg.generic {{.*}} ins(%[[GROUPED]], %[[ZEROS]] : tensor<6x2x32xi8>, tensor<6x2xi32>) outs({{.*}} : tensor<6x2x32xi8>)
// CHECK:           arith.subi
// CHECK:         %[[DOTS:.*]] = linalg.contract indexing_maps = [#[[MHGK]], #[[NHGK]], #[[MNH]]] ins(%{{.*}}, %[[STEPS]] : tensor<?x2x32xi8>, tensor<6x2x32xi8>) {{.*}} -> tensor<?x6x2xi32>
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[DOTS]], %[[SCALES]]
// CHECK:           math.fma
func.func @group(%x: tensor<?x64xf32>, %w: !group) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["a"]}
         : (tensor<?x64xf32>, !group) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Groups of tokens lie within those of the weight: two dimensions.

// CHECK-LABEL: func.func @groups_of_tokens(
// CHECK:         linalg.contract {{.*}} : tensor<?x2x1x32xi16>, tensor<6x2x1x32xi8>) {{.*}} -> tensor<?x6x2x1xi32>
// CHECK:           math.fma
// CHECK:           math.fma
func.func @groups_of_tokens(%x: tensor<?x64xf32>, %w: !group) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w {input_scheme = #equant.scheme<i8, asymmetric, token, group = 32, dynamic>, sites = ["a"]}
         : (tensor<?x64xf32>, !group) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// The last group is short: zeros follow. Float activations meet a dequantized weight.

// CHECK-LABEL: func.func @ragged(
// CHECK-SAME:    %[[X:.*]]: tensor<?x40xf32>, %[[CODES:.*]]: tensor<6x40xi8>, %[[SCALES:.*]]: tensor<6x3xf32>)
// CHECK:         %[[PADDED:.*]] = tensor.pad %[[CODES]] low[0, 0] high[0, 8]
// CHECK:         tensor.expand_shape %[[PADDED]] {{\[\[}}0], [1, 2]] output_shape [6, 3, 16]
// CHECK:         %[[ALL:.*]] = tensor.collapse_shape {{.*}} into tensor<6x48xf32>
// CHECK:         %[[W:.*]] = tensor.extract_slice %[[ALL]][0, 0] [6, 40] [1, 1]
// CHECK:         linalg.contract {{.*}} ins(%[[X]], %[[W]] : tensor<?x40xf32>, tensor<6x40xf32>) {{.*}} -> tensor<?x6xf32>
func.func @ragged(%x: tensor<?x40xf32>, %w: !ragged) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w {sites = ["a"]} : (tensor<?x40xf32>, !ragged) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Codes of formats that are no integers are looked up.

// CHECK-LABEL: func.func @table(
// CHECK:         %[[VALUES:.*]] = arith.constant dense<[0.000000e+00, 5.000000e-01, 1.000000e+00, 1.500000e+00, 2.000000e+00, 3.000000e+00, 4.000000e+00, 6.000000e+00, -0.000000e+00, -5.000000e-01, -1.000000e+00, -1.500000e+00, -2.000000e+00, -3.000000e+00, -4.000000e+00, -6.000000e+00]> : tensor<16xf32>
// CHECK:         tensor.extract %[[VALUES]]
!fp4 = !equant.weight<6x64, #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>>
func.func @table(%x: tensor<?x64xf32>, %w: !fp4) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w {sites = ["a"]} : (tensor<?x64xf32>, !fp4) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Beside int8 activations a table has int8 values, and its unit is the last factor of the scale of rows.

// CHECK-LABEL: func.func @int8_table(
// CHECK-DAG:     %[[VALUES:.*]] = arith.constant dense<[-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]> : tensor<16xi8>
// CHECK:         tensor.extract %[[VALUES]]
// CHECK:         linalg.contract {{.*}} -> tensor<?x6x2xi32>
!iq4 = !equant.weight<6x64, #equant.scheme<i4, codebook = iq4_nl, group = 32>>
func.func @int8_table(%x: tensor<?x64xf32>, %w: !iq4) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["a"]}
         : (tensor<?x64xf32>, !iq4) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// A minimum is multiplied by the sum of the activations' codes of its group, behind the scale.

// CHECK-LABEL: func.func @minima(
// CHECK-SAME:    %[[MINIMA:[a-z0-9]+]]: tensor<6x2xf32>)
// CHECK:         %[[DOTS:.*]] = linalg.contract {{.*}} -> tensor<?x6x2xi32>
// CHECK:         %[[SUMS:.*]] = linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} {{.*}} outs(%{{.*}} : tensor<?x2xi32>)
// CHECK:         linalg.generic {{.*}} iterator_types = ["parallel", "parallel", "reduction"]} ins(%[[DOTS]], %{{.*}}, %[[SUMS]], %[[MINIMA]]
// CHECK-COUNT-2:   math.fma
!minima = !equant.weight<6x64, #equant.scheme<i4, asymmetric, minima, group = 32>>
func.func @minima(%x: tensor<?x64xf32>, %w: !minima) -> tensor<?x6xf32> {
  %y = equant.linear %x, %w {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["a"]}
         : (tensor<?x64xf32>, !minima) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// Sums in i32 and what becomes of them, as ranks have it; a fusion is its ops.

// CHECK-LABEL: func.func @sums_and_scales(
// CHECK:         %[[DOTS:.*]] = linalg.contract {{.*}} -> tensor<?x6xi32>
// CHECK:         linalg.generic {{.*}} ins(%[[DOTS]],
// CHECK-NOT:     equant
!rows = !equant.rows<?x64, #equant.scheme<i8, symmetric, token, dynamic>>
!plain = !equant.weight<6x64, #equant.scheme<i8, symmetric, channel>, #equant.layout<plain>>
func.func @sums_and_scales(%x: tensor<?x64xf32>, %w: !plain) -> tensor<?x6xf32> {
  %absmax = equant.token_absmax %x : tensor<?x64xf32> -> tensor<?xf32>
  %rows = equant.fusion {
    %q = equant.quantize_rows %x absmax(%absmax : tensor<?xf32>) : tensor<?x64xf32> -> !rows
    equant.yield %q : !rows
  } : !rows
  %sums = equant.packed_linear %rows, %w {sites = ["a"]} : (!rows, !plain) -> tensor<?x6xi32>
  %y = equant.rescale %sums of %rows, %w {sites = ["a"]} : (tensor<?x6xi32>, !rows, !plain) -> tensor<?x6xf32>
  return %y : tensor<?x6xf32>
}

// CHECK-LABEL: func.func @embedding(
// CHECK-SAME:    %[[TOKENS:.*]]: tensor<?xi32>, %[[CODES:.*]]: tensor<6x64xi8>, %[[SCALES:.*]]: tensor<6x1xf32>)
// CHECK:         linalg.generic {{.*}} ins(%[[TOKENS]]
// CHECK:           tensor.extract %[[CODES]]
// CHECK:         linalg.generic {{.*}} ins(%[[TOKENS]]
// CHECK:           tensor.extract %[[SCALES]]
func.func @embedding(%tokens: tensor<?xi32>, %table: !channel) -> tensor<?x64xf32> {
  %y = equant.embedding %tokens, %table : (tensor<?xi32>, !channel) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
