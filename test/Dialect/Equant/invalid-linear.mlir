// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

func.func @n(%x: tensor<?x24xf32>, %q: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{expected a weight of 41x24, found '!equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>'}}
  equant.linear %x, %q {sites = ["a"]} : (tensor<?x24xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x41xf32>
  return
}

// -----

func.func @k(%x: tensor<?x23xf32>, %q: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{expected a weight of 40x23, found '!equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>'}}
  equant.linear %x, %q {sites = ["a"]} : (tensor<?x23xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x40xf32>
  return
}

// -----

func.func @input(%x: tensor<?x24xf32>, %q: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{input_scale belongs to a static input scheme or to one with an outer scale, input_zero_point to an asymmetric one}}
  equant.linear %x, %q {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, tensor>} : (tensor<?x24xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x40xf32>
  return
}

// -----

func.func @bias(%x: tensor<?x24xf32>, %q: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>, %b: tensor<24xf32>) {
  // expected-error @below {{bias has 24 elements, but the result has 40 columns}}
  equant.linear %x, %q bias(%b) {sites = ["a"]} : (tensor<?x24xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>, tensor<24xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @sites(%x: tensor<?x24xf32>, %q: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{sites must name the linears that it computes}}
  equant.linear %x, %q {sites = []} : (tensor<?x24xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x40xf32>
  return
}

// -----

func.func @embedding(%tokens: tensor<?xi32>, %q: !equant.weight<40x25, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{expected a table of 24 columns, found '!equant.weight<40x25, #equant.scheme<i8, symmetric, channel>>'}}
  equant.embedding %tokens, %q : (tensor<?xi32>, !equant.weight<40x25, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x24xf32>
  return
}

// -----

func.func @input_groups(%x: tensor<?x32xf32>, %q: !equant.weight<40x32, #equant.scheme<f4E2M1FN, channel>>) {
  // expected-error @below {{input must be quantized per token, dynamic and symmetric but for groups, per tensor with a constant scale, or, of codes that are no integers, in groups with dynamic and outer scales, found #equant.scheme<f4E2M1FN, group = 16, dynamic>}}
  equant.linear %x, %q {sites = ["a"], input_scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic>} : (tensor<?x32xf32>, !equant.weight<40x32, #equant.scheme<f4E2M1FN, channel>>) -> tensor<?x40xf32>
  return
}

// -----

func.func @unpacked(%x: tensor<?x24xf32>, %w: !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{operand #1 must be packed weight}}
  equant.packed_linear %x, %w {sites = ["a"]} : (tensor<?x24xf32>, !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x40xf32>
  return
}

// -----

#a = #equant.scheme<i8, asymmetric, tensor>
!w = !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
func.func @sums_of_codes(%x: tensor<?x24xf32>, %w: !w) {
  // expected-error @below {{needs the sums of its packed codes for asymmetric input, found '!equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>'}}
  equant.packed_linear %x, %w {sites = ["a"], input_scheme = #a, input_scale = 0.5 : f32, input_zero_point = 3 : i32} : (tensor<?x24xf32>, !w) -> tensor<?x40xf32>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, token, dynamic>
!w = !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
func.func @scheme_of_codes(%x: !equant.rows<?x24, #t, sums = 0>, %w: !w) {
  // expected-error @below {{reads codes, of which their type says everything}}
  equant.packed_linear %x, %w {sites = ["a"], input_scheme = #t} : (!equant.rows<?x24, #t, sums = 0>, !w) -> tensor<?x40xf32>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, token, dynamic>
!w = !equant.weight<40x24, #equant.scheme<i4, asymmetric, group = 8>, #equant.layout<panel>>
func.func @sums_of_rows(%x: !equant.rows<?x24, #t>, %w: !w) {
  // expected-error @below {{expected codes with sums of the groups of #equant.scheme<i4, asymmetric, group = 8>, found '!equant.rows<?x24, #equant.scheme<i8, symmetric, token, dynamic>>'}}
  equant.packed_linear %x, %w {sites = ["a"]} : (!equant.rows<?x24, #t>, !w) -> tensor<?x40xf32>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, token, dynamic>
!w = !equant.weight<40x24, #equant.scheme<i4, symmetric, group = 8>, #equant.layout<panel>>
func.func @other_groups(%x: !equant.rows<?x24, #t, sums = 16>, %w: !w) {
  // expected-error @below {{expected codes with sums of the groups of #equant.scheme<i4, symmetric, group = 8>, found '!equant.rows<?x24, #equant.scheme<i8, symmetric, token, dynamic>, sums = 16>'}}
  equant.packed_linear %x, %w {sites = ["a"]} : (!equant.rows<?x24, #t, sums = 16>, !w) -> tensor<?x40xf32>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, token, dynamic>
!w = !equant.weight<40x24, #equant.scheme<i4, symmetric, group = 8>, #equant.layout<panel>>
func.func @integers_of_groups(%x: !equant.rows<?x24, #t, sums = 8>, %w: !w) {
  // expected-error @below {{gives sums of products, as i32, of codes with a scale a row and a weight of integers with a scale a channel alone, and without a bias}}
  equant.packed_linear %x, %w {sites = ["a"]} : (!equant.rows<?x24, #t, sums = 8>, !w) -> tensor<?x40xi32>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, token, dynamic>
!w = !equant.weight<40x24, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
func.func @halves(%x: tensor<?x24xbf16>, %w: !w) {
  // expected-error @below {{quantizes f32 activations, found 'tensor<?x24xbf16>'}}
  equant.packed_linear %x, %w {sites = ["a"], input_scheme = #t} : (tensor<?x24xbf16>, !w) -> tensor<?x40xf32>
  return
}

// -----

#t = #equant.scheme<i8, symmetric, token, dynamic>
!w = !equant.weight<40x24, #equant.scheme<i4, symmetric, group = 8>, #equant.layout<panel>>
func.func @rescale(%s: tensor<?x40xi32>, %x: !equant.rows<?x24, #t>, %w: !w) {
  // expected-error @below {{expected integers with a scale a channel, found #equant.scheme<i4, symmetric, group = 8>}}
  equant.rescale %s of %x, %w {sites = ["a"]} : (tensor<?x40xi32>, !equant.rows<?x24, #t>, !w) -> tensor<?x40xf32>
  return
}
