// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

func.func @n(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>) {
  // expected-error @below {{codes must be 'tensor<41x24xi8>' for #equant.scheme<i8, symmetric, channel>, found 'tensor<40x24xi8>'}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x41xf32>
  return
}

// -----

func.func @k(%x: tensor<?x23xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>) {
  // expected-error @below {{codes must be 'tensor<40x23xi8>' for #equant.scheme<i8, symmetric, channel>, found 'tensor<40x24xi8>'}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?x23xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @groups(%x: tensor<?x24xf32>, %q: tensor<40x24xi4>, %s: tensor<40x1xf32>) {
  // expected-error @below {{scale must be 'tensor<40x2xf32>' for #equant.scheme<i4, symmetric, group = 16>, found 'tensor<40x1xf32>'}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i4, symmetric, group = 16>}
    : (tensor<?x24xf32>, tensor<40x24xi4>, tensor<40x1xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @dynamic_weight(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>) {
  // expected-error @below {{weights have static scales, found #equant.scheme<i8, symmetric, token, dynamic>}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, token, dynamic>}
    : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @input(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>) {
  // expected-error @below {{input_scale belongs to a static input scheme or to one with an outer scale, input_zero_point to an asymmetric one}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
                                  input_scheme = #equant.scheme<i8, symmetric, tensor>}
    : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @bias(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>, %b: tensor<24xf32>) {
  // expected-error @below {{bias has 24 elements, but the result has 40 columns}}
  equant.linear %x, %q scale(%s) bias(%b) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>, tensor<24xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @sites(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>) {
  // expected-error @below {{sites must name the linears that it computes}}
  equant.linear %x, %q scale(%s) {sites = [], weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @packed_codes(%x: tensor<?x24xf32>, %q: tensor<40x24xi8>, %s: tensor<2x1x32xf32>) {
  // expected-error @below {{codes of 40x24 packed as #equant.layout<panel, rows = 32, depth = 4> must be 'tensor<2x6x32x4xi8>', found 'tensor<40x24xi8>'}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
                                  layout = #equant.layout<panel, rows = 32, depth = 4>}
    : (tensor<?x24xf32>, tensor<40x24xi8>, tensor<2x1x32xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @packed_scales(%x: tensor<?x24xf32>, %q: tensor<2x6x32x4xi8>, %s: tensor<2x2x32xf32>) {
  // expected-error @below {{scales of 40x24 packed as #equant.layout<panel, rows = 32, depth = 4> must be 'tensor<2x1x32xf32>', found 'tensor<2x2x32xf32>'}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
                                  layout = #equant.layout<panel, rows = 32, depth = 4>}
    : (tensor<?x24xf32>, tensor<2x6x32x4xi8>, tensor<2x2x32xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @packed_tensor_scale(%x: tensor<?x24xf32>, %q: tensor<2x6x32x4xi8>, %s: tensor<2x1x32xf32>) {
  // expected-error @below {{packed weights must have scales per channel or per group, found #equant.scheme<i8, symmetric, tensor>}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, tensor>,
                                  layout = #equant.layout<panel, rows = 32, depth = 4>}
    : (tensor<?x24xf32>, tensor<2x6x32x4xi8>, tensor<2x1x32xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @fragment_bits(%x: tensor<?x24xf32>, %q: tensor<1x1x48x16xi8>, %s: tensor<1x1x64xf32>) {
  // expected-error @below {{codes of #equant.scheme<i3, symmetric, channel> cannot be packed as #equant.layout<mma_sync, order = m16n8k32>}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i3, symmetric, channel>,
                                  layout = #equant.layout<mma_sync, order = m16n8k32>}
    : (tensor<?x24xf32>, tensor<1x1x48x16xi8>, tensor<1x1x64xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @panel_rows(%x: tensor<?x24xf32>, %q: tensor<4x3x10x4xi8>, %s: tensor<4x1x10xf32>) {
  // expected-error @below {{codes of #equant.scheme<i3, symmetric, channel> cannot be packed as #equant.layout<panel, rows = 10, depth = 4>}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i3, symmetric, channel>,
                                  layout = #equant.layout<panel, rows = 10, depth = 4>}
    : (tensor<?x24xf32>, tensor<4x3x10x4xi8>, tensor<4x1x10xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @fragment_codes(%x: tensor<?x24xf32>, %q: tensor<2x6x32x4xi8>, %s: tensor<1x1x64xf32>) {
  // expected-error @below {{codes of 40x24 packed as #equant.layout<mma_sync, order = m16n8k32> must be 'tensor<3x1x32x16xi8>', found 'tensor<2x6x32x4xi8>'}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
                                  layout = #equant.layout<mma_sync, order = m16n8k32>}
    : (tensor<?x24xf32>, tensor<2x6x32x4xi8>, tensor<1x1x64xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @embedding(%tokens: tensor<?xi32>, %q: tensor<40x24xi8>, %s: tensor<40x1xf32>) {
  // expected-error @below {{codes must be 'tensor<39x24xi8>' for #equant.scheme<i8, symmetric, channel>, found 'tensor<40x24xi8>'}}
  equant.embedding %tokens, %q scale(%s) {vocab_size = 39, weight_scheme = #equant.scheme<i8, symmetric, channel>}
    : (tensor<?xi32>, tensor<40x24xi8>, tensor<40x1xf32>) -> tensor<?x24xf32>
  return
}

// -----

#nvfp4 = #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>
func.func @packed_outer(%x: tensor<?x32xf32>, %q: tensor<2x4x32x4xi8>, %s: tensor<2x2x32xf8E4M3FN>, %o: tensor<2x2x32xf32>) {
  // expected-error @below {{outer scales of 40x32 packed as #equant.layout<panel, rows = 32, depth = 4> must be 'tensor<2x1x32xf32>', found 'tensor<2x2x32xf32>'}}
  equant.linear %x, %q scale(%s) outer(%o) {sites = ["a"], weight_scheme = #nvfp4, layout = #equant.layout<panel, rows = 32, depth = 4>}
    : (tensor<?x32xf32>, tensor<2x4x32x4xi8>, tensor<2x2x32xf8E4M3FN>, tensor<2x2x32xf32>) -> tensor<?x40xf32>
  return
}

// -----

func.func @input_groups(%x: tensor<?x32xf32>, %q: tensor<40x32xf4E2M1FN>, %s: tensor<40x1xf32>) {
  // expected-error @below {{input must be quantized per token, symmetric and dynamic, per tensor with a constant scale, or, of codes that are no integers, in groups with dynamic and outer scales, found #equant.scheme<f4E2M1FN, group = 16, dynamic>}}
  equant.linear %x, %q scale(%s) {sites = ["a"], weight_scheme = #equant.scheme<f4E2M1FN, channel>,
                                  input_scheme = #equant.scheme<f4E2M1FN, group = 16, dynamic>}
    : (tensor<?x32xf32>, tensor<40x32xf4E2M1FN>, tensor<40x1xf32>) -> tensor<?x40xf32>
  return
}
