// RUN: easyquant-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// Each kind of scheme prints as it is written.
// CHECK-LABEL: func.func private @schemes()
// CHECK-SAME:    a = #equant.scheme<i8, symmetric, channel>
// CHECK-SAME:    b = #equant.scheme<i8, symmetric, channel = 1>
// CHECK-SAME:    c = #equant.scheme<i4, symmetric, group = 128>
// CHECK-SAME:    d = #equant.scheme<i8, symmetric, token, dynamic>
// CHECK-SAME:    e = #equant.scheme<i3, asymmetric, tensor>
// CHECK-SAME:    f = #equant.scheme<i2, asymmetric, tensor, dynamic>
// CHECK-SAME:    g = #equant.scheme<i4, symmetric, group = 16, outer = tensor>
// CHECK-SAME:    h = #equant.scheme<i8, symmetric, token, dynamic>
// CHECK-SAME:    i = #equant.scheme<i8, symmetric, channel>
// CHECK-SAME:    j = #equant.layout<panel, rows = 32, depth = 4>
// CHECK-SAME:    k = #equant.scheme<i8, symmetric, full, channel>
func.func private @schemes() attributes {
  a = #equant.scheme<i8, symmetric, channel>,
  b = #equant.scheme<i8, symmetric, channel = 1>,
  c = #equant.scheme<i4, symmetric, group = 128>,
  d = #equant.scheme<i8, symmetric, token, dynamic>,
  e = #equant.scheme<i3, asymmetric, tensor>,
  f = #equant.scheme<i2, asymmetric, tensor, dynamic>,
  g = #equant.scheme<i4, symmetric, group = 16, outer = tensor>,
  h = #equant<scheme<i8, symmetric, token, dynamic>>,
  i = #equant.scheme<i8, symmetric, channel = 0>,
  j = #equant.layout<panel, rows = 32, depth = 4>,
  k = #equant.scheme<i8, symmetric, full, channel>
}

// -----

// expected-error @below {{codes must be i2, i3, i4 or i8, found i5}}
func.func private @bits() attributes {a = #equant.scheme<i5, symmetric, channel>}

// -----

// expected-error @below {{codes must be i2, i3, i4 or i8, found 'ui8'}}
func.func private @signedness() attributes {a = #equant.scheme<ui8, symmetric, channel>}

// -----

// expected-error @below {{expected 'symmetric' or 'asymmetric', found 'lopsided'}}
func.func private @symmetry() attributes {a = #equant.scheme<i8, lopsided, channel>}

// -----

// expected-error @below {{asymmetric codes always have the full range: leave 'full' out}}
func.func private @full() attributes {a = #equant.scheme<i8, asymmetric, full, channel>}

// -----

// expected-error @below {{granularity must be tensor, channel, group = SIZE or token, found 'row'}}
func.func private @granularity() attributes {a = #equant.scheme<i8, symmetric, row>}

// -----

// expected-error @below {{group size must be positive with groups and 0 without, found 0}}
func.func private @group() attributes {a = #equant.scheme<i4, symmetric, group = 0>}

// -----

// expected-error @below {{channel axis must be 0 or 1, found 2}}
func.func private @axis() attributes {a = #equant.scheme<i8, symmetric, channel = 2>}

// -----

// expected-error @below {{scales per token must be dynamic: how many tokens there will be is not known before run time}}
func.func private @token() attributes {a = #equant.scheme<i8, symmetric, token>}

// -----

// expected-error @below {{outer scale must be per tensor or per channel, found group}}
func.func private @outer() attributes {a = #equant.scheme<i4, symmetric, group = 16, outer = group>}

// -----

// expected-error @below {{outer scale per channel is not coarser than scales per channel}}
func.func private @coarser() attributes {a = #equant.scheme<i8, symmetric, channel, outer = channel>}

// -----

// expected-error @below {{expected 'dynamic' or 'outer = tensor|channel', found 'sometimes'}}
func.func private @trailer() attributes {a = #equant.scheme<i8, symmetric, tensor, sometimes>}

// -----

// expected-error @below {{rows and depth of a panel must be 1 to 1024, found 0 and 4}}
func.func private @layout() attributes {a = #equant.layout<panel, rows = 0, depth = 4>}
