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

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 8>
func.func @sink_logits(%q: tensor<?x16xf32>, %k: tensor<?x8xf32>, %s: tensor<2xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x16xf32> {
  // expected-error @below {{has sink logits, which have no form in upstream ops yet}}
  %y = lm.attention %q, %k, %k, %cache, %batch sink_logits(%s : tensor<2xf32>)
         {layer = 0, num_heads = 2, num_kv_heads = 1, head_dim = 8, scale = 0.5 : f64} : tensor<?x16xf32>, tensor<?x8xf32>, !cache
  return %y : tensor<?x16xf32>
}

// -----

func.func @clamped(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  // expected-error @below {{has a clamped gate, which has no form in upstream ops yet}}
  %y = lm.glu clamped %x, %x : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
