// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --easyquant-emit-gpu-program="output=%t chip=sm_80 max-rows=1"

// Weights that there are no GPU kernels for.
ml_program.global private @t(#ml_program.extern : tensor<4x64xf32>) : tensor<4x64xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<8x64xi3>) : tensor<8x64xi3> {equant.offset = 1024 : i64}
ml_program.global private @s(#ml_program.extern : tensor<8x1xf32>) : tensor<8x1xf32> {equant.offset = 2048 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x64xf32>
  %w = ml_program.global_load_const @w : tensor<8x64xi3>
  %s = ml_program.global_load_const @s : tensor<8x1xf32>
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x64xf32> -> tensor<?x64xf32>
  // expected-error @below {{site 'q': weights as int3 symmetric, per channel: the GPU kernels on int8 activations take 2, 4 or 8 bits; compile it with --target cpu or another scheme}}
  %y = equant.linear %x, %w scale(%s) {sites = ["q"], weight_scheme = #equant.scheme<i3, symmetric, channel>,
         input_scheme = #equant.scheme<i8, symmetric, token, dynamic>} : (tensor<?x64xf32>, tensor<8x64xi3>, tensor<8x1xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @t(#ml_program.extern : tensor<4x64xf32>) : tensor<4x64xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<8x64xi4>) : tensor<8x64xi4> {equant.offset = 1024 : i64}
ml_program.global private @s(#ml_program.extern : tensor<8x2xbf16>) : tensor<8x2xbf16> {equant.offset = 2048 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x64xf32>
  %w = ml_program.global_load_const @w : tensor<8x64xi4>
  %s = ml_program.global_load_const @s : tensor<8x2xbf16>
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x64xf32> -> tensor<?x64xf32>
  // expected-error @below {{site 'q': weights as int4 symmetric, groups of 32, bf16 scales: the GPU kernels take integers with scales of f32 or f16; compile it with --target cpu or another scheme}}
  %y = equant.linear %x, %w scale(%s) {sites = ["q"], weight_scheme = #equant.scheme<i4, symmetric, group = 32, scale = bf16>}
         : (tensor<?x64xf32>, tensor<8x64xi4>, tensor<8x2xbf16>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @t(#ml_program.extern : tensor<4x64xf32>) : tensor<4x64xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<8x64xf4E2M1FN>) : tensor<8x64xf4E2M1FN> {equant.offset = 1024 : i64}
ml_program.global private @s(#ml_program.extern : tensor<8x2xf8E8M0FNU>) : tensor<8x2xf8E8M0FNU> {equant.offset = 2048 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x64xf32>
  %w = ml_program.global_load_const @w : tensor<8x64xf4E2M1FN>
  %s = ml_program.global_load_const @s : tensor<8x2xf8E8M0FNU>
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x64xf32> -> tensor<?x64xf32>
  // expected-error @below {{site 'q': weights as f4E2M1FN, groups of 32, f8E8M0FNU scales: the GPU kernels take integers with scales of f32 or f16}}
  %y = equant.linear %x, %w scale(%s) {sites = ["q"], weight_scheme = #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>}
         : (tensor<?x64xf32>, tensor<8x64xf4E2M1FN>, tensor<8x2xf8E8M0FNU>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @t(#ml_program.extern : tensor<4x64xf32>) : tensor<4x64xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<8x64xi4>) : tensor<8x64xi4> {equant.offset = 1024 : i64}
ml_program.global private @s(#ml_program.extern : tensor<8x8xf32>) : tensor<8x8xf32> {equant.offset = 2048 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x64xf32>
  %w = ml_program.global_load_const @w : tensor<8x64xi4>
  %s = ml_program.global_load_const @s : tensor<8x8xf32>
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x64xf32> -> tensor<?x64xf32>
  // expected-error @below {{site 'q': weights as int4 symmetric, groups of 8: the GPU kernels take group sizes that are multiples of 32 (such as 32)}}
  %y = equant.linear %x, %w scale(%s) {sites = ["q"], weight_scheme = #equant.scheme<i4, symmetric, group = 8>}
         : (tensor<?x64xf32>, tensor<8x64xi4>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

// Weights as another target reads them, and such as nobody has packed.
ml_program.global private @t(#ml_program.extern : tensor<4x64xf32>) : tensor<4x64xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : tensor<1x16x32x4xi8>) : tensor<1x16x32x4xi8> {equant.offset = 1024 : i64}
ml_program.global private @s(#ml_program.extern : tensor<1x1x32xf32>) : tensor<1x1x32xf32> {equant.offset = 4096 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x64xf32>
  %w = ml_program.global_load_const @w : tensor<1x16x32x4xi8>
  %s = ml_program.global_load_const @s : tensor<1x1x32xf32>
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x64xf32> -> tensor<?x64xf32>
  // expected-error @below {{expected weights packed as fragments in the order of its activations: run equant-materialize-weights with target=gpu first}}
  %y = equant.linear %x, %w scale(%s) {sites = ["q"], weight_scheme = #equant.scheme<i8, symmetric, channel>,
                                       layout = #equant.layout<panel, rows = 32, depth = 4>}
         : (tensor<?x64xf32>, tensor<1x16x32x4xi8>, tensor<1x1x32xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

ml_program.global private @w(#ml_program.extern : tensor<4x64xi8>) : tensor<4x64xi8> {equant.offset = 0 : i64}
ml_program.global private @s(#ml_program.extern : tensor<4x1xf32>) : tensor<4x1xf32> {equant.offset = 4096 : i64}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x64xf32> {
  %w = ml_program.global_load_const @w : tensor<4x64xi8>
  %s = ml_program.global_load_const @s : tensor<4x1xf32>
  // expected-error @below {{expected a table packed as fragments: run equant-materialize-weights with target=gpu first}}
  %x = equant.embedding %tokens, %w scale(%s) {vocab_size = 4, weight_scheme = #equant.scheme<i8, symmetric, channel>}
         : (tensor<?xi32>, tensor<4x64xi8>, tensor<4x1xf32>) -> tensor<?x64xf32>
  return %x : tensor<?x64xf32>
}
