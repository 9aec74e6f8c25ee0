// RUN: easyquant-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// Each kind of scheme prints as it is written.
// CHECK-LABEL: func.func private @schemes()
// CHECK-SAME:    a = #equant.scheme<i8, symmetric, channel>
// CHECK-SAME:    b = #equant.scheme<i8, symmetric, full, channel>
// CHECK-SAME:    c = #equant.scheme<i4, symmetric, group = 128>
// CHECK-SAME:    d = #equant.scheme<i8, symmetric, token, dynamic>
// CHECK-SAME:    e = #equant.scheme<i3, asymmetric, tensor>
// CHECK-SAME:    f = #equant.scheme<i2, asymmetric, tensor, dynamic>
// CHECK-SAME:    g = #equant.scheme<i4, symmetric, group = 16, scale = f16>
// CHECK-SAME:    h = #equant.scheme<i8, symmetric, token, dynamic>
// CHECK-SAME:    i = #equant.scheme<f8E4M3FN, channel>
// CHECK-SAME:    j = #equant.scheme<f8E4M3FN, tensor>
// CHECK-SAME:    k = #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>
// CHECK-SAME:    l = #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>
// CHECK-SAME:    m = #equant.scheme<i4, codebook = nf4, group = 64, scale = bf16>
// CHECK-SAME:    n = #equant.scheme<i2, codebook = {{\[}}-1.000000e+00, -2.500000e-01, 2.500000e-01, 1.000000e+00], channel>
// CHECK-SAME:    o = #equant.scheme<i8, symmetric, tensor, online>
// CHECK-SAME:    p = #equant.codebook<iq4_nl>
// CHECK-SAME:    q = #equant.layout<panel>
// CHECK-SAME:    r = #equant.scheme<i5, symmetric, group = 32, scale = f16>
// CHECK-SAME:    s = #equant.scheme<i6, asymmetric, group = 32>
// CHECK-SAME:    t = #equant.scheme<i4, asymmetric, group = 32, scale = ui6>
// CHECK-SAME:    u = #equant.scheme<i8, asymmetric, tensor, sinks>
// CHECK-SAME:    v = #equant.scheme<i8, symmetric, tensor, online, sinks>
// CHECK-SAME:    w = #equant.scheme<i4, codebook = nf4_int8, group = 32, scale = f16>
// CHECK-SAME:    x = #equant.codebook<learned3_int8>
// CHECK-SAME:    y = #equant.scheme<i4, asymmetric, minima, group = 32, scale = f16>
// CHECK-SAME:    z = #equant.scheme<i6, symmetric, full, group = 16, super>
func.func private @schemes() attributes {
  a = #equant.scheme<i8, symmetric, channel>,
  b = #equant.scheme<i8, symmetric, full, channel>,
  c = #equant.scheme<i4, symmetric, group = 128>,
  d = #equant.scheme<i8, symmetric, token, dynamic>,
  e = #equant.scheme<i3, asymmetric, tensor>,
  f = #equant.scheme<i2, asymmetric, tensor, dynamic>,
  g = #equant.scheme<i4, symmetric, group = 16, scale = f16>,
  h = #equant<scheme<i8, symmetric, token, dynamic>>,
  i = #equant.scheme<f8E4M3FN, channel, scale = f32>,
  j = #equant.scheme<f8E4M3FN, tensor>,
  k = #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>,
  l = #equant.scheme<f4E2M1FN, group = 16, scale = f8E4M3FN, outer = tensor>,
  m = #equant.scheme<i4, codebook = nf4, group = 64, scale = bf16>,
  n = #equant.scheme<i2, codebook = [-1.0, -0.25, 0.25, 1.0], channel>,
  o = #equant.scheme<i8, symmetric, tensor, online>,
  p = #equant.codebook<iq4_nl>,
  q = #equant.layout<panel>,
  r = #equant.scheme<i5, symmetric, group = 32, scale = f16>,
  s = #equant.scheme<i6, asymmetric, group = 32>,
  t = #equant.scheme<i4, asymmetric, group = 32, scale = ui6>,
  u = #equant.scheme<i8, asymmetric, tensor, sinks>,
  v = #equant.scheme<i8, symmetric, tensor, online, sinks>,
  w = #equant.scheme<i4, codebook = nf4_int8, group = 32, scale = f16>,
  x = #equant.codebook<learned3_int8>,
  y = #equant.scheme<i4, asymmetric, minima, group = 32, scale = f16>,
  z = #equant.scheme<i6, symmetric, full, group = 16, super>
}

// -----

// expected-error @below {{codes must be i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN, found 'i7'}}
func.func private @bits() attributes {a = #equant.scheme<i7, symmetric, channel>}

// -----

// expected-error @below {{codes must be i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN, found 'ui8'}}
func.func private @signedness() attributes {a = #equant.scheme<ui8, symmetric, channel>}

// -----

// expected-error @below {{expected 'symmetric', 'asymmetric' or 'codebook', found 'lopsided'}}
func.func private @symmetry() attributes {a = #equant.scheme<i8, lopsided, channel>}

// -----

// expected-error @below {{asymmetric codes always have the full range: leave 'full' out}}
func.func private @full() attributes {a = #equant.scheme<i8, asymmetric, full, channel>}

// -----

// expected-error @below {{static minima of asymmetric codes per channel with f32 scales: they are those of asymmetric integers in groups, static, with scales of f32 or f16; leave them out}}
func.func private @minima_of_rows() attributes {a = #equant.scheme<i8, asymmetric, minima, channel>}

// -----

// expected-error @below {{super-blocks of 4-bit integer codes in groups of 16 with f32 scales: no type has them; those of 2 bits with minima}}
func.func private @super_blocks_of_no_type() attributes {a = #equant.scheme<i4, symmetric, group = 16, super>}

// -----

// expected-error @below {{static minima of symmetric codes per group with f32 scales: they are those of asymmetric integers in groups}}
func.func private @minima_of_zero() attributes {a = #equant.scheme<i8, symmetric, minima, group = 32>}

// -----

// expected-error @below {{granularity must be tensor, channel, group = SIZE or token, found 'row'}}
func.func private @granularity() attributes {a = #equant.scheme<i8, symmetric, row>}

// -----

// expected-error @below {{group size must be positive with groups and 0 without, found 0}}
func.func private @group() attributes {a = #equant.scheme<i4, symmetric, group = 0>}

// -----

// expected-error @below {{scales per token must be dynamic: how many tokens there will be is not known before run time}}
func.func private @token() attributes {a = #equant.scheme<i8, symmetric, token>}

// -----

// expected-error @below {{sinks apart of 8-bit codes with a static scale per channel: they are those of int8 activations with one static scale; leave them out}}
func.func private @sinks() attributes {a = #equant.scheme<i8, symmetric, channel, sinks>}

// -----

// expected-error @below {{sinks are kept apart from a static or online scale, found dynamic ones}}
func.func private @moving_sinks() attributes {a = #equant.scheme<i8, symmetric, token, dynamic, sinks>}

// -----

// expected-error @below {{an outer scale per tensor is not coarser than scales per tensor}}
func.func private @coarser() attributes {a = #equant.scheme<i8, symmetric, tensor, outer = tensor>}

// -----

// expected-error @below {{expected 'dynamic' or 'online', 'sinks', 'hadamard = SIZE', 'scale = TYPE', 'outer = tensor' and 'super', in this order, found 'sometimes'}}
func.func private @trailer() attributes {a = #equant.scheme<i8, symmetric, tensor, sometimes>}

// -----

// expected-error @below {{expected 'group = SIZE', 'dynamic' or 'online', 'sinks', 'hadamard = SIZE', 'scale = TYPE', 'outer = tensor' and 'super', in this order, found 'dynamic'}}
func.func private @order() attributes {a = #equant.scheme<i8, symmetric, token, scale = f16, dynamic>}

// -----

// expected-error @below {{codes must be i2, i3, i4, i5, i6, i8, f8E4M3FN or f4E2M1FN, found 'f16'}}
func.func private @codes() attributes {a = #equant.scheme<f16, channel>}

// -----

// expected-error @below {{scales must be f32, f16, bf16, f8E4M3FN, f8E8M0FNU or ui6, found 'f64'}}
func.func private @scales() attributes {a = #equant.scheme<i4, symmetric, channel, scale = f64>}

// -----

// expected-error @below {{granularity must be tensor, channel, group = SIZE or token, found 'symmetric'}}
func.func private @float_symmetry() attributes {a = #equant.scheme<f8E4M3FN, symmetric, channel>}

// -----

// expected-error @below {{there is no table 'nf5'; expected nf4, nf4_int8, iq4_nl, learned2, learned3, learned4, learned2_int8, learned3_int8, learned4_int8 or a list of values}}
func.func private @table() attributes {a = #equant.scheme<i4, codebook = nf5, channel>}

// -----

// expected-error @below {{value 2 of the table is 0}}
func.func private @descending() attributes {a = #equant.codebook<[-1.0, 1.0, 0.0, 2.0]>}

// -----

// expected-error @below {{table codes of 3 bits: they have 4}}
func.func private @table_bits() attributes {a = #equant.scheme<i3, codebook = nf4, channel>}

// -----

// expected-error @below {{layout must be panel or m16n8k32 or m16n8k16 or plain, found 'wgmma'}}
func.func private @layout() attributes {a = #equant.layout<wgmma>}
