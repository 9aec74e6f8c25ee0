// RUN: easyquant-opt %s --convert-lm-to-linalg --split-input-file --verify-diagnostics

func.func @shared(%tokens: tensor<?xi32>, %table: tensor<8x32xf32>) -> tensor<?x32xf32> {
  // expected-error @below {{has a rank's share of the vocabulary, which is none for one program; compile without --tensor-parallel}}
  %y = lm.embedding %tokens, %table {sharded} : tensor<?xi32>, tensor<8x32xf32> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// -----

func.func @bf16(%x: tensor<?x32xbf16>, %w: tensor<8x32xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{reads bf16; convert the model before equant-legalize-activations}}
  %y = lm.linear %x, %w {site = "a"} : (tensor<?x32xbf16>, tensor<8x32xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @gradient(%dy: tensor<?x32xf32>, %x: tensor<?x32xf32>) -> tensor<32x32xf32> {
  // expected-error @below {{has no form in upstream ops: gradients are not converted}}
  %dw = lm.linear_weight_gradient %dy, %x : tensor<?x32xf32>, tensor<?x32xf32> -> tensor<32x32xf32>
  return %dw : tensor<32x32xf32>
}
