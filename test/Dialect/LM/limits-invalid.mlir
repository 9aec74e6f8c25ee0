// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

// What is near overflow is no type of an op, whatever the op.

func.func @columns(%x: tensor<?x9223372036854775807xf32>, %w: tensor<9223372036854775807xf32>) {
  // expected-error @below {{takes dimensions of at most 2147483647, found 'tensor<?x9223372036854775807xf32>'}}
  lm.rms_norm %x, %w {epsilon = 1.0e-05 : f64} : tensor<?x9223372036854775807xf32>
  return
}

// -----

func.func @elements(%x: tensor<?x2147483647xf32>, %w: tensor<2147483647x2147483647xf32>) {
  // expected-error @below {{takes tensors of at most 4398046511104 elements, found 'tensor<2147483647x2147483647xf32>'}}
  lm.linear %x, %w {site = "q"} : (tensor<?x2147483647xf32>, tensor<2147483647x2147483647xf32>) -> tensor<?x2147483647xf32>
  return
}

// -----

func.func @observed(%x: tensor<?x2147483648xf32>) {
  // expected-error @below {{takes dimensions of at most 2147483647, found 'tensor<?x2147483648xf32>'}}
  equant.observe %x {sites = ["q"], statistics = ["absmax"]} : tensor<?x2147483648xf32>
  return
}

// -----

// expected-error @below {{at most 4096 layers, heads of 65536 dimensions and 2147483647 dimensions of all heads are supported, found 4097 layers and 3 heads of 64}}
func.func private @layers(!lm.kv_cache<layers = 4097, kv_heads = 3, head_dim = 64>)

// -----

// expected-error @below {{found 1 layers and 33554432 heads of 64}}
func.func private @heads(!lm.kv_cache<layers = 1, kv_heads = 33554432, head_dim = 64>)

// -----

// expected-error @below {{group size must be at most 2147483647, found 9223372036854775807}}
func.func private @groups() attributes {s = #equant.scheme<i4, symmetric, group = 9223372036854775807>}

// -----

// expected-error @below {{equant.offset belongs to an ml_program.global and is a byte, an i64 that is not negative; found -64 : i64}}
ml_program.global private @w(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32> {equant.offset = -64 : i64}

// -----

// In a module, a value might be made from itself.
// expected-error @below {{expected to be in a function}}
%0 = "equant.concat"(%0) : (tensor<8xf32>) -> tensor<8xf32>
