// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

// expected-error @below {{groups of 48 columns of a token: expected 32, 64 or 128, or 0 for one scale a token}}
func.func private @size() attributes {a = #equant.scheme<i8, symmetric, token, group = 48, dynamic>}

// -----

// expected-error @below {{one scale a token says nothing of 'group'}}
func.func private @zero() attributes {a = #equant.scheme<i8, symmetric, token, group = 0, dynamic>}

// -----

// expected-error @below {{4-bit integer codes of tokens in groups: groups of a token are those of int8 and FP8; ask for one scale a token}}
func.func private @bits() attributes {a = #equant.scheme<i4, symmetric, token, group = 32, dynamic>}

// -----

// expected-error @below {{4-bit f4E2M1FN codes of tokens in groups: groups of a token are those of int8 and FP8; ask for one scale a token}}
func.func private @floats() attributes {a = #equant.scheme<f4E2M1FN, token, group = 32, dynamic>}

// -----

// expected-error @below {{scales per token must be dynamic: how many tokens there will be is not known before run time}}
func.func private @static() attributes {a = #equant.scheme<i8, symmetric, token, group = 32>}

// -----

// expected-error @below {{scales per token must be dynamic: how many tokens there will be is not known before run time}}
func.func private @online() attributes {a = #equant.scheme<i8, symmetric, token, group = 32, online>}

// -----

// expected-error @below {{expected 'group = SIZE', 'dynamic' or 'online', 'sinks', 'hadamard = SIZE', 'scale = TYPE', 'outer = tensor' and 'super', in this order, found 'group'}}
func.func private @order() attributes {a = #equant.scheme<i8, symmetric, token, dynamic, group = 32>}

// -----

// expected-error @below {{groups of 64 columns of activations do not divide the groups of 32 of the weight; take groups of activations that do, one scale a token, or other groups of the weight}}
func.func private @plan() attributes {a = #equant.plan<methods = [], rule = absmax, weight = <i4, symmetric, group = 32>, input = <i8, symmetric, token, group = 64, dynamic>>}

// -----

func.func @linear(%x: tensor<?x96xf32>, %w: !equant.weight<40x96, #equant.scheme<i4, symmetric, group = 48>>) {
  // expected-error @below {{groups of 32 columns of activations do not divide the groups of 48 of the weight}}
  equant.linear %x, %w {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, token, group = 32, dynamic>} : (tensor<?x96xf32>, !equant.weight<40x96, #equant.scheme<i4, symmetric, group = 48>>) -> tensor<?x40xf32>
  return
}

// -----

// expected-error @below {{rows in groups of 32 columns have sums of these, found sums of 64}}
func.func private @sums(!equant.rows<?x96, #equant.scheme<i8, symmetric, token, group = 32, dynamic>, sums = 64>)

// -----

#own = #equant.scheme<i8, symmetric, token, group = 32, dynamic>
func.func @absmax(%x: tensor<?x96xf32>, %a: tensor<?xf32>) {
  // expected-error @below {{absmax is of whole rows, which groups do not have}}
  equant.quantize_rows %x absmax(%a : tensor<?xf32>) : tensor<?x96xf32> -> !equant.rows<?x96, #own>
  return
}

// -----

#own = #equant.scheme<i8, symmetric, token, group = 32, dynamic>
!rows = !equant.rows<?x96, #own, sums = 32>
!w = !equant.weight<40x96, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
func.func @integers(%x: !rows, %w: !w) {
  // expected-error @below {{gives sums of products, as i32, of codes with a scale a row and a weight of integers with a scale a channel alone}}
  equant.packed_linear %x, %w {sites = ["a"]} : (!rows, !w) -> tensor<?x40xi32>
  return
}

// -----

#own = #equant.scheme<i8, symmetric, token, group = 32, dynamic>
!rows = !equant.rows<?x96, #own, sums = 32>
!w = !equant.weight<40x96, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
func.func @rescale(%s: tensor<?x40xi32>, %x: !rows, %w: !w) {
  // expected-error @below {{expected one scale a row, found}}
  equant.rescale %s of %x, %w {sites = ["a"]} : (tensor<?x40xi32>, !rows, !w) -> tensor<?x40xf32>
  return
}

// -----

func.func @zero_point(%x: tensor<?x96xf32>) {
  // expected-error @below {{scale belongs to a static scheme or an outer one, zero_point to an asymmetric one without groups}}
  equant.quantize_rows %x {zero_point = 3 : i32} : tensor<?x96xf32> -> !equant.rows<?x96, #equant.scheme<i8, asymmetric, token, group = 32, dynamic>>
  return
}

// -----

// expected-error @below {{input must be quantized per token, dynamic and symmetric but for groups}}
func.func private @asymmetric(!equant.rows<?x96, #equant.scheme<i8, asymmetric, token, dynamic>>)
