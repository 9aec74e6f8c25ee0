// RUN: easyquant-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @plans(
func.func @plans(%x: tensor<?x16xf32>, %w: tensor<40x16xf32>) {
  // CHECK: equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>>
  lm.linear %x, %w {site = "a", equant.plan = #equant.plan<methods = [], rule = absmax, weight = #equant.scheme<i8, symmetric, channel>>}
    : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
  // CHECK: equant.plan = #equant.plan<methods = ["smoothquant", "gptq"], rule = absmax, weight = <i4, symmetric, group = 8>, input = <i8, symmetric, token, dynamic>, codes = @b.weight_codes, scale = @b.weight_scale>
  lm.linear %x, %w {site = "b", equant.plan = #equant.plan<methods = ["smoothquant", "gptq"], rule = absmax,
      weight = <i4, symmetric, group = 8>, input = <i8, symmetric, token, dynamic>, codes = @b.weight_codes, scale = @b.weight_scale>}
    : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
  // CHECK: input = <i8, symmetric, tensor>
  lm.linear %x, %w {site = "c", equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, input = <i8, symmetric, tensor>>}
    : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
  return
}

// -----

// expected-error @below {{equant.plan belongs to a quantizable op and is a #equant.plan}}
func.func private @place() attributes {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>>}

// -----

// expected-error @below {{methods must be names, found [1]}}
func.func private @methods() attributes {a = #equant.plan<methods = [1], rule = absmax, weight = <i8, symmetric, channel>>}

// -----

// expected-error @below {{scale rule absmax for int8 asymmetric, per channel: absmax serves symmetric schemes}}
func.func private @asymmetric() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i8, asymmetric, channel>>}

// -----

// expected-error @below {{scale rule absmax for int8 symmetric full range, per channel: absmax serves symmetric schemes}}
func.func private @full() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, full, channel>>}

// -----

// expected-error @below {{a percentile belongs to rule percentile, found rule absmax}}
func.func private @percentile() attributes {a = #equant.plan<methods = [], rule = absmax, percentile = 99.0 : f64, weight = <i8, symmetric, channel>>}

// -----

// expected-error @below {{percentile 40: expected one above 50 and at most 100}}
func.func private @low() attributes {a = #equant.plan<methods = [], rule = percentile, percentile = 40.0 : f64, weight = <i8, symmetric, channel>>}

// -----

// expected-error @below {{weights have static scales, found #equant.scheme<i8, symmetric, token, dynamic>}}
func.func private @dynamic() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, token, dynamic>>}

// -----

// expected-error @below {{input must be quantized per token, per tensor with static or online scales, or in groups with dynamic and outer scales, found #equant.scheme<i8, symmetric, group = 8>}}
func.func private @input() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, input = <i8, symmetric, group = 8>>}

// -----

// expected-error @below {{outer scales belong to the scales of a scheme that has them, and to nothing else; found none for #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>}}
func.func private @outer() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>, scale = @s>}

// -----

// expected-error @below {{option "alpha" = "best": expected a number or "search"}}
func.func private @alpha() attributes {a = #equant.plan<methods = ["smoothquant"], rule = absmax, weight = <i8, symmetric, channel>, options = {alpha = "best"}>}

// -----

// expected-error @below {{option "epochs" = 3 : i64: expected one of scale_type, observer, alpha, clip, act_order, static_groups, damping}}
func.func private @option() attributes {a = #equant.plan<methods = ["lkd"], rule = absmax, weight = <i8, symmetric, channel>, options = {epochs = 3}>}

// -----

// expected-error @below {{codes @c come without scales}}
func.func private @codes() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, codes = @c>}

// -----

// expected-error @below {{zero points belong to the scales of an asymmetric scheme, and to nothing else; found them for #equant.scheme<i8, symmetric, channel>}}
func.func private @zero() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, scale = @s, zero_point = @z>}

// -----

// expected-error @below {{equant.file belongs to an ml_program.global and is a string}}
func.func private @file() attributes {equant.file = "layer_0.safetensors"}

// -----

// expected-error @below {{equant.stamp needs equant.file}}
ml_program.global private @s(#ml_program.extern : tensor<4xf32>) : tensor<4xf32> {equant.stamp = "1"}

// -----

// expected-error @below {{equant.stored belongs to an ml_program.global without equant.file and has no value}}
ml_program.global private @both(#ml_program.extern : tensor<2x2xi8>) : tensor<2x2xi8> {equant.stored, equant.file = "a"}

// -----

// expected-error @below {{equant.stored belongs to an ml_program.global without equant.file and has no value}}
func.func private @no_global() attributes {equant.stored}

// -----

func.func @scale_of_no_number(%x: tensor<?x16xf32>, %w: tensor<40x16xf32>) {
  // expected-error @below {{equant.input_scale belongs to a quantizable op and is a positive f32, found -1.000000e+00 : f32}}
  lm.linear %x, %w {site = "a", equant.input_scale = -1.0 : f32} : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
  return
}

// -----

// expected-error @below {{equant.input_scale belongs to a quantizable op and is a positive f32, found 1.000000e+00 : f32}}
func.func private @no_site() attributes {equant.input_scale = 1.0 : f32}

// -----

func.func @zero_point_alone(%x: tensor<?x16xf32>, %w: tensor<40x16xf32>) {
  // expected-error @below {{equant.input_zero_point belongs to a quantizable op with equant.input_scale and is an i32 code, found 3 : i32}}
  lm.linear %x, %w {site = "a", equant.input_zero_point = 3 : i32} : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
  return
}
