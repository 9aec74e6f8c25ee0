// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

// 127 * 127 * 133144 < 2^31: the longest sum that always fits.
func.func @longest(%x: tensor<?x133144xf32>, %q: !equant.weight<1x133144, #equant.scheme<i8, symmetric, channel>>) {
  equant.linear %x, %q {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : (tensor<?x133144xf32>, !equant.weight<1x133144, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x1xf32>
  return
}

// -----

func.func @overflow(%x: tensor<?x133145xf32>, %q: !equant.weight<1x133145, #equant.scheme<i8, symmetric, channel>>) {
  // expected-error @below {{an int32 accumulator can sum 133144 products of these codes, but "a" needs 133145; use groups of at most 133144 or leave the site float}}
  equant.linear %x, %q {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : (tensor<?x133145xf32>, !equant.weight<1x133145, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x1xf32>
  return
}

// -----

// Float activations accumulate in float.
func.func @float_input(%x: tensor<?x133145xf32>, %q: !equant.weight<1x133145, #equant.scheme<i8, symmetric, channel>>) {
  equant.linear %x, %q {sites = ["a"]} : (tensor<?x133145xf32>, !equant.weight<1x133145, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x1xf32>
  return
}

// -----

// Groups end their sums early.
func.func @groups(%x: tensor<?x133145xf32>, %q: !equant.weight<1x133145, #equant.scheme<i8, symmetric, group = 70000>>) {
  equant.linear %x, %q {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : (tensor<?x133145xf32>, !equant.weight<1x133145, #equant.scheme<i8, symmetric, group = 70000>>) -> tensor<?x1xf32>
  return
}

// -----

// Packed codes carry an offset of 128: 255 * 127 * 66311 < 2^31.
func.func @packed(%x: tensor<?x66312xf32>, %q: !equant.weight<1x66312, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>) {
  // expected-error @below {{an int32 accumulator can sum 66311 products of these codes, but "a" needs 66312}}
  equant.packed_linear %x, %q {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : (tensor<?x66312xf32>, !equant.weight<1x66312, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>) -> tensor<?x1xf32>
  return
}
