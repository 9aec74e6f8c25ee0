// RUN: easyquant-opt %s --split-input-file --verify-diagnostics

func.func @block(%x: tensor<?x576xf32>) -> tensor<?x576xf32> {
  // expected-error@+1 {{block must be a power of two from 16 to 512, found 24}}
  %r = equant.hadamard %x {block = 24 : i64} : tensor<?x576xf32>
  return %r : tensor<?x576xf32>
}

// -----

func.func @columns(%x: tensor<?x576xf32>) -> tensor<?x576xf32> {
  // expected-error@+1 {{needs whole blocks of 128 columns, found 576}}
  %r = equant.hadamard %x {block = 128 : i64} : tensor<?x576xf32>
  return %r : tensor<?x576xf32>
}

// -----

func.func @rows(%w: tensor<96x576xf32>) -> tensor<96x576xf32> {
  // expected-error@+1 {{needs whole blocks of 64 rows, found 96}}
  %r = equant.hadamard %w {axis = 0 : i64, block = 64 : i64} : tensor<96x576xf32>
  return %r : tensor<96x576xf32>
}

// -----

func.func @tokens(%x: tensor<?x576xf32>) -> tensor<?x576xf32> {
  // expected-error@+1 {{rotates rows of constants alone; rows of 'tensor<?x576xf32>' are tokens, whose columns it rotates}}
  %r = equant.hadamard %x {axis = 0 : i64, block = 64 : i64} : tensor<?x576xf32>
  return %r : tensor<?x576xf32>
}

// -----

func.func @vector(%b: tensor<64xf32>) -> tensor<64xf32> {
  // expected-error@+1 {{axis must be 0 for a vector, found 1}}
  %r = equant.hadamard %b {block = 64 : i64} : tensor<64xf32>
  return %r : tensor<64xf32>
}

// -----

func.func @first_column(%w: tensor<64x576xf32>) -> tensor<64x576xf32> {
  // expected-error@+1 {{rotates all columns: first is of axis 0, found 64}}
  %r = equant.hadamard %w {block = 64 : i64, first = 64 : i64} : tensor<64x576xf32>
  return %r : tensor<64x576xf32>
}

// -----

func.func @first_within_a_block(%w: tensor<192x576xf32>) -> tensor<192x576xf32> {
  // expected-error@+1 {{rotates whole blocks of 64 rows: first must be a multiple of it below 192, found 96}}
  %r = equant.hadamard %w {axis = 0 : i64, block = 64 : i64, first = 96 : i64} : tensor<192x576xf32>
  return %r : tensor<192x576xf32>
}

// -----

func.func @first_behind_all(%b: tensor<192xf32>) -> tensor<192xf32> {
  // expected-error@+1 {{rotates whole blocks of 64 rows: first must be a multiple of it below 192, found 192}}
  %r = equant.hadamard %b {axis = 0 : i64, block = 64 : i64, first = 192 : i64} : tensor<192xf32>
  return %r : tensor<192xf32>
}

// -----

// expected-error@+1 {{basis that is rotated in blocks of 8 columns: blocks are powers of two from 16 to 512}}
func.func private @scheme() attributes {a = #equant.scheme<i8, symmetric, channel, hadamard = 8>}

// -----

// expected-error@+1 {{a basis that is not rotated says nothing of 'hadamard'}}
func.func private @zero() attributes {a = #equant.scheme<i8, symmetric, channel, hadamard = 0>}

// -----

!w = !equant.weight<64x576, #equant.scheme<i8, symmetric, channel, hadamard = 64>>
func.func @bases(%x: tensor<?x576xf32>, %w: !w) -> tensor<?x64xf32> {
  // expected-error@+1 {{input and weight must have one basis; found #equant.scheme<i8, symmetric, token, dynamic> and #equant.scheme<i8, symmetric, channel, hadamard = 64>}}
  %y = equant.linear %x, %w {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up"]} : (tensor<?x576xf32>, !w) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
