// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

func.func @scale_shape(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{scale must be 'tensor<4x2xf32>' for #equant.scheme<i4, symmetric, group = 16>, found 'tensor<4x1xf32>'}}
  equant.quantize %w scale(%s) {scheme = #equant.scheme<i4, symmetric, group = 16>}
    : (tensor<4x24xf32>, tensor<4x1xf32>) -> tensor<4x24xi4>
  return
}

// -----

func.func @code_type(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{codes must be 'tensor<4x24xi8>' for #equant.scheme<i8, symmetric, channel>, found 'tensor<4x24xi4>'}}
  equant.quantize %w scale(%s) {scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<4x24xf32>, tensor<4x1xf32>) -> tensor<4x24xi4>
  return
}

// -----

func.func @code_width(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{must be codes tensor<NxKxT> of i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN, but got 'tensor<4x24xi7>'}}
  equant.quantize %w scale(%s) {scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<4x24xf32>, tensor<4x1xf32>) -> tensor<4x24xi7>
  return
}

// -----

func.func @missing_zero_point(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>) {
  // expected-error @below {{has no zero point, but #equant.scheme<i8, asymmetric, channel> is asymmetric}}
  equant.quantize %w scale(%s) {scheme = #equant.scheme<i8, asymmetric, channel>}
    : (tensor<4x24xf32>, tensor<4x1xf32>) -> tensor<4x24xi8>
  return
}

// -----

func.func @needless_zero_point(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %z: tensor<4x1xi32>) {
  // expected-error @below {{has a zero point, but #equant.scheme<i8, symmetric, channel> is symmetric}}
  equant.quantize %w scale(%s) zero_point(%z) {scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<4x1xi32>) -> tensor<4x24xi8>
  return
}

// -----

func.func @zero_point_shape(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %z: tensor<1x1xi32>) {
  // expected-error @below {{zero point must be 'tensor<4x1xi32>' for #equant.scheme<i8, asymmetric, channel>, found 'tensor<1x1xi32>'}}
  equant.quantize %w scale(%s) zero_point(%z) {scheme = #equant.scheme<i8, asymmetric, channel>}
    : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<1x1xi32>) -> tensor<4x24xi8>
  return
}

// -----

func.func @absmax_asymmetric(%w: tensor<4x24xf32>) {
  // expected-error @below {{scale rule absmax for int8 asymmetric, per channel: absmax serves symmetric schemes, symmetric those of the full range, zeropoint asymmetric ones; take zeropoint}}
  equant.choose_qparams %w rule absmax {scheme = #equant.scheme<i8, asymmetric, channel>}
    : (tensor<4x24xf32>) -> (tensor<4x1xf32>, tensor<4x1xi32>)
  return
}

// -----

func.func @qparams_shape(%w: tensor<4x24xf32>) {
  // expected-error @below {{scale must be 'tensor<1x1xf32>' for #equant.scheme<i8, symmetric, tensor>, found 'tensor<4x1xf32>'}}
  equant.choose_qparams %w rule absmax {scheme = #equant.scheme<i8, symmetric, tensor>}
    : (tensor<4x24xf32>) -> tensor<4x1xf32>
  return
}

// -----

func.func @concat_columns(%a: tensor<2x8xi4>, %b: tensor<3x9xi4>) {
  // expected-error @below {{operand 'tensor<3x9xi4>' differs from the result 'tensor<5x8xi4>' in more than its rows}}
  equant.concat %a, %b : (tensor<2x8xi4>, tensor<3x9xi4>) -> tensor<5x8xi4>
  return
}

// -----

func.func @concat_rows(%a: tensor<2x8xi4>, %b: tensor<3x8xi4>) {
  // expected-error @below {{operands have 5 rows together, but the result has 6}}
  equant.concat %a, %b : (tensor<2x8xi4>, tensor<3x8xi4>) -> tensor<6x8xi4>
  return
}

// -----

func.func @outer_scale(%w: tensor<4x24xf32>) {
  // expected-error @below {{has no outer scales, but #equant.scheme<i4, symmetric, group = 8, outer = tensor> has them}}
  equant.choose_qparams %w rule absmax {scheme = #equant.scheme<i4, symmetric, group = 8, outer = tensor>}
    : (tensor<4x24xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @outer_of_none(%w: tensor<4x24xf32>) {
  // expected-error @below {{has outer scales, but #equant.scheme<i4, symmetric, group = 8> has none}}
  equant.outer_scale %w {scheme = #equant.scheme<i4, symmetric, group = 8>} : (tensor<4x24xf32>) -> tensor<4x1xf32>
  return
}

// -----

func.func @outer_rows(%w: tensor<4x24xf32>) {
  // expected-error @below {{outer scales must be 'tensor<4x1xf32>' for #equant.scheme<i4, symmetric, group = 8, outer = tensor>, found 'tensor<3x1xf32>'}}
  equant.outer_scale %w {scheme = #equant.scheme<i4, symmetric, group = 8, outer = tensor>} : (tensor<4x24xf32>) -> tensor<3x1xf32>
  return
}
