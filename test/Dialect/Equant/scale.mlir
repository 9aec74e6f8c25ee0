// RUN: easyquant-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @scale(
// CHECK-SAME:    %[[N:[^:]*]]: tensor<16xf32>, %[[W:[^:]*]]: tensor<40x16xf32>, %[[S:[^:]*]]: tensor<16xf32>, %[[R:[^:]*]]: tensor<40xf32>)
func.func @scale(%n: tensor<16xf32>, %w: tensor<40x16xf32>, %s: tensor<16xf32>, %r: tensor<40xf32>) {
  // CHECK: equant.scale %[[N]] by %[[S]] {axis = 0 : i64, divide} : tensor<16xf32>, tensor<16xf32>
  %a = equant.scale %n by %s {axis = 0, divide} : tensor<16xf32>, tensor<16xf32>
  // CHECK: %[[C:.*]] = equant.scale %[[W]] by %[[S]] {axis = 1 : i64} : tensor<40x16xf32>, tensor<16xf32>
  %b = equant.scale %w by %s {axis = 1} : tensor<40x16xf32>, tensor<16xf32>
  // CHECK: equant.scale %[[C]] by %[[R]] {axis = 0 : i64} : tensor<40x16xf32>, tensor<40xf32>
  %c = equant.scale %b by %r {axis = 0} : tensor<40x16xf32>, tensor<40xf32>
  return
}

// -----

func.func @vector(%n: tensor<16xf32>, %s: tensor<16xf32>) {
  // expected-error @below {{axis must be 0 for a vector, found 1}}
  equant.scale %n by %s {axis = 1} : tensor<16xf32>, tensor<16xf32>
  return
}

// -----

func.func @axis(%w: tensor<40x16xf32>, %s: tensor<16xf32>) {
  // expected-error @below {{axis must be 0 or 1, found -1}}
  equant.scale %w by %s {axis = -1} : tensor<40x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @extent(%w: tensor<40x16xf32>, %s: tensor<16xf32>) {
  // expected-error @below {{needs 40 factors for axis 0 of 'tensor<40x16xf32>', found 16}}
  equant.scale %w by %s {axis = 0} : tensor<40x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @activations(%x: tensor<?x16xf32>, %s: tensor<16xf32>) {
  // expected-error @below {{operand #0 must be vector or matrix of f32 of static shape, but got 'tensor<?x16xf32>'}}
  equant.scale %x by %s {axis = 1} : tensor<?x16xf32>, tensor<16xf32>
  return
}

// -----

func.func @rounded(%w: tensor<4x24xf32>, %s: tensor<4x1xf32>, %q: tensor<4x23xi8>) {
  // expected-error @below {{rounded codes must be 'tensor<4x24xi8>' for '!equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>', found 'tensor<4x23xi8>'}}
  equant.quantize %w scale(%s) rounded(%q) : (tensor<4x24xf32>, tensor<4x1xf32>, tensor<4x23xi8>) -> !equant.weight<4x24, #equant.scheme<i8, symmetric, channel>>
  return
}
