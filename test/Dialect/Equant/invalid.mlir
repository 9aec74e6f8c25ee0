// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

func.func @scale_shape(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{scales must be 'tensor<4x2xf32>' for '!equant.weight<4x24, #equant.scheme<i4, symmetric, group = 16>>', found 'tensor<4x1xf32>'}}
  equant.quantize %w scale(%s) : (tensor<4x24xf32>, tensor<4x1xf32>) -> !equant.weight<4x24, #equant.scheme<i4, symmetric, group = 16>>
  return
}

// -----

func.func @code_type(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %q: tensor<4x24xi4>) {
  // expected-error @below {{rounded codes must be 'tensor<4x24xi8>' for '!equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>', found 'tensor<4x24xi4>'}}
  equant.quantize %w scale(%s) rounded(%q) : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<4x24xi4>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @code_width(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %q: tensor<4x24xi7>) {
  // expected-error @below {{must be codes tensor<NxKxT> of i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN, but got 'tensor<4x24xi7>'}}
  equant.quantize %w scale(%s) rounded(%q) : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<4x24xi7>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @missing_zero_point(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{has no zero points, but #equant.scheme<i8, asymmetric, channel> has them}}
  equant.quantize %w scale(%s) : (tensor<4x24xf32>, tensor<4x1xf32>) -> !equant.weight<4x24, #equant.scheme<i8, asymmetric, channel>>
  return
}

// -----

func.func @needless_zero_point(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %z: tensor<4x1xi32>) {
  // expected-error @below {{has zero points, but #equant.scheme<i8, symmetric, channel> has none}}
  equant.quantize %w scale(%s) zero_point(%z) : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<4x1xi32>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @zero_point_shape(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %z: tensor<1x1xi32>) {
  // expected-error @below {{zero points must be 'tensor<4x1xi32>' for '!equant.weight<4x24, #equant.scheme<i8, asymmetric, channel>>', found 'tensor<1x1xi32>'}}
  equant.quantize %w scale(%s) zero_point(%z) : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<1x1xi32>) -> !equant.weight<4x24, #equant.scheme<i8, asymmetric, channel>>
  return
}

// -----

func.func @absmax_asymmetric(%w: tensor<4x24xf32>) {
  // expected-error @below {{scale rule absmax for int8 asymmetric, per channel: absmax serves symmetric schemes, symmetric those of the full range, zeropoint asymmetric ones; take zeropoint}}
  equant.quantize %w rule absmax : (tensor<4x24xf32>) -> !equant.weight<4x24, #equant.scheme<i8, asymmetric, channel>>
  return
}

// -----

func.func @rule_and_scale(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{scales follow from a rule or are an operand: expected one of them, found both}}
  equant.quantize %w rule absmax scale(%s) : (tensor<4x24xf32>, tensor<4x1xf32>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @neither(%w: tensor<4x24xf32>) {
  // expected-error @below {{scales follow from a rule or are an operand: expected one of them, found neither}}
  equant.quantize %w : (tensor<4x24xf32>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @codes_without_scale(%w: tensor<4x24xf32>, %q: tensor<4x24xi8>) {
  // expected-error @below {{zero points, minima, outer scales and codes are those of scales, which it needs beside them}}
  equant.quantize %w rule absmax rounded(%q) : (tensor<4x24xf32>, tensor<4x24xi8>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @percentile_of_scales(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{a percentile belongs to rule percentile, found scales}}
  equant.quantize %w scale(%s) {percentile = 99.0 : f64} : (tensor<4x24xf32>, tensor<4x1xf32>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @no_outer(%w: tensor<4x24xf32>, %s: tensor<4x3xf32>) {
  // expected-error @below {{has no outer scales, but #equant.scheme<i4, symmetric, group = 8, outer = tensor> has them}}
  equant.quantize %w scale(%s) : (tensor<4x24xf32>, tensor<4x3xf32>) -> !equant.weight<4x24, #equant.scheme<i4, symmetric, group = 8, outer = tensor>>
  return
}

// -----

func.func @outer_rows(%w: tensor<4x24xf32>, %s: tensor<4x3xf32>, %o: tensor<3x1xf32>) {
  // expected-error @below {{outer scales must be 'tensor<4x1xf32>' for '!equant.weight<4x24, #equant.scheme<i4, symmetric, group = 8, outer = tensor>>', found 'tensor<3x1xf32>'}}
  equant.quantize %w scale(%s) outer(%o) : (tensor<4x24xf32>, tensor<4x3xf32>, tensor<3x1xf32>) -> !equant.weight<4x24, #equant.scheme<i4, symmetric, group = 8, outer = tensor>>
  return
}

// -----

func.func @shape(%w: tensor<4x24xf32>) {
  // expected-error @below {{gives a weight of the shape of its input, found '!equant.weight<4x25, #equant.scheme<i8, symmetric, channel>>' of 'tensor<4x24xf32>'}}
  equant.quantize %w rule absmax : (tensor<4x24xf32>) -> !equant.weight<4x25, #equant.scheme<i8, symmetric, channel>>
  return
}

// -----

func.func @parts(%w: tensor<24x8xf32>) {
  // expected-error @below {{expected parts that make up the 24 rows of 'tensor<24x8xf32>', of which each of 2 ranks has whole groups, columns of one width; found [9, 7, 8]}}
  %p = equant.all_slice %w on @tensor_parallel axis 0 parts [9, 7, 8] : tensor<24x8xf32> -> tensor<12x8xf32>
  return
}

// -----

func.func @pieces_of_two_widths(%w: tensor<8x24xf32>) {
  // expected-error @below {{columns of one width; found [16, 8]}}
  %p = equant.all_slice %w on @tensor_parallel axis 1 parts [16, 8] : tensor<8x24xf32> -> tensor<8x12xf32>
  return
}

// -----

func.func @part_of_a_norm(%x: tensor<?x8xf32>, %w: tensor<8xf32>, %s: tensor<?xf32>) {
  // expected-error @below {{columns must be a multiple of the 8 that a rank has, found 12}}
  %y = equant.part_rms_norm %x, %w of %s {epsilon = 1.0e-06 : f64, columns = 12 : i64} : tensor<?x8xf32>, tensor<8xf32>, tensor<?xf32>
  return
}
