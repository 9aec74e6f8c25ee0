// RUN: easyquant-opt %s --convert-equant-to-linalg --split-input-file --verify-diagnostics

!w = !equant.weight<32x32, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
func.func @packed(%x: tensor<?x32xf32>, %w: !w) -> tensor<?x32xf32> {
  // expected-error @below {{reads a weight packed as #equant.layout<panel> for kernels; run equant-plain-weights instead of equant-materialize-weights}}
  %y = equant.packed_linear %x, %w {sites = ["a"]} : (tensor<?x32xf32>, !w) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// -----

!w = !equant.weight<8x32, #equant.scheme<i4, symmetric, group = 16>>
func.func @rule(%x: tensor<8x32xf32>) -> !w {
  // expected-error @below {{chooses scales of #equant.scheme<i4, symmetric, group = 16> by a rule that has no form in upstream ops; run equant-plain-weights before, which evaluates constants}}
  %w = equant.quantize %x rule mse : (tensor<8x32xf32>) -> !w
  return %w : !w
}

// -----

!w = !equant.weight<8x32, #equant.scheme<i4, codebook = nf4, group = 16>>
func.func @table(%x: tensor<8x32xf32>, %s: tensor<8x2xf32>) -> !w {
  // expected-error @below {{rounds to #equant.scheme<i4, codebook = nf4, group = 16>, codes that are no integers; run equant-plain-weights}}
  %w = equant.quantize %x scale(%s) : (tensor<8x32xf32>, tensor<8x2xf32>) -> !w
  return %w : !w
}

// -----

!w = !equant.weight<8x32, #equant.scheme<i4, symmetric, group = 16, scale = ui6>>
func.func @two_levels(%c: tensor<8x32xi4>, %s: tensor<8x2xui6>) -> !w {
  // expected-error @below {{has scales of two levels, #equant.scheme<i4, symmetric, group = 16, scale = ui6>, as an operand}}
  %w = equant.from_codes %c scale(%s) : (tensor<8x32xi4>, tensor<8x2xui6>) -> !w
  return %w : !w
}

// -----

func.func @narrow_scales(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  // expected-error @below {{rounds activations to #equant.scheme<f8E4M3FN, token, dynamic, scale = bf16>; expected i8, or f8E4M3FN or f4E2M1FN with scales of f32, or of f8E4M3FN in units of one a tensor}}
  %y = equant.fake_quantize %x {scheme = #equant.scheme<f8E4M3FN, token, dynamic, scale = bf16>} : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// -----

func.func @table_rows(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  // expected-error @below {{input must be quantized to integers, FP8 or FP4, found #equant.scheme<i4, codebook = nf4, token, dynamic>}}
  %y = equant.fake_quantize %x {scheme = #equant.scheme<i4, codebook = nf4, token, dynamic>} : tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// -----

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 32>
func.func @cache(%x: tensor<?x32xf32>, %cache: !cache, %batch: !lm.batch) -> tensor<?x32xf32> {
  // expected-error @below {{attends to a cache of codes, #equant.kv_scheme<code = i4, group = 32, residual = 32, sinks = 4, keys = token>, which one forward pass has none of; leave --kv-scheme out}}
  %y = equant.attention %x, %x, %x, %cache, %batch
         {head_dim = 32 : i64, kv_scheme = #equant.kv_scheme<code = i4, group = 32, residual = 32, sinks = 4, keys = token>, layer = 0 : i64,
          num_heads = 1 : i64, num_kv_heads = 1 : i64, scale = 1.0 : f64} : tensor<?x32xf32>, tensor<?x32xf32>, !cache
  return %y : tensor<?x32xf32>
}

// -----

func.func @online(%state: !lm.state<sites = 1, fields = 2>, %batch: !lm.batch) -> tensor<?xf32> {
  // expected-error @below {{keeps scales from step to step, of which one forward pass has none; take dynamic or static activations}}
  %s = equant.online_scale %state, %batch {index = 0 : i64} : !lm.state<sites = 1, fields = 2> -> tensor<?xf32>
  return %s : tensor<?xf32>
}

// -----

func.func @observe(%x: tensor<?x32xf32>) {
  // expected-error @below {{belongs to calibration and is computed by its host; convert the model after it}}
  equant.observe %x {sites = ["a"], statistics = ["absmax"]} : tensor<?x32xf32>
  return
}

// -----

!w = !equant.weight<8x32, #equant.scheme<i8, symmetric, channel>, #equant.layout<plain>>
// expected-error @below {{expected a plain weight with equant.tensors, the names of its 2 parts; equant-plain-weights makes it}}
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.tensors = ["w"]}

// -----

!w = !equant.weight<8x32, #equant.scheme<i8, symmetric, channel>, #equant.layout<plain>>
ml_program.global private @s(#ml_program.extern : tensor<2xf32>) : tensor<2xf32>
// expected-error @below {{global 'w': its part 's' is a symbol already; expected other names in equant.tensors}}
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.tensors = ["w", "s"]}
