// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --easyquant-emit-gpu-program="output=%t target=sm_80 max-rows=1"

// Weights that there are no GPU kernels for cannot be packed as fragments.
// expected-error @below {{weights as int4 symmetric, groups of 8: the GPU kernels take group sizes that are multiples of 16 (such as 16)}}
func.func private @groups(!equant.weight<8x64, #equant.scheme<i4, symmetric, group = 8>, #equant.layout<m16n8k16>>)

// -----

// expected-error @below {{weights as int4 symmetric, groups of 16: the GPU kernels on int8 activations take group sizes that are multiples of 32 (such as 32)}}
func.func private @short(!equant.weight<8x64, #equant.scheme<i4, symmetric, group = 16>, #equant.layout<m16n8k32>>)

// -----

// expected-error @below {{weights as f4E2M1FN, groups of 32, f8E8M0FNU scales: the GPU kernels on codes take integers, tables of int8 values or f8E4M3FN}}
func.func private @mxfp4(!equant.weight<8x64, #equant.scheme<f4E2M1FN, group = 32, scale = f8E8M0FNU>, #equant.layout<m16n8k32>>)

// -----

// Weights as another target reads them, and such as nobody has packed.
!w = !equant.weight<8x64, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
ml_program.global private @t(#ml_program.extern : tensor<4x64xf32>) : tensor<4x64xf32> {equant.offset = 0 : i64}
ml_program.global private @w(#ml_program.extern : !w) : !w {equant.offset = array<i64: 1024, 4096>}
func.func @forward(%tokens: tensor<?xi32>) -> tensor<?x8xf32> {
  %t = ml_program.global_load_const @t : tensor<4x64xf32>
  %w = ml_program.global_load_const @w : !w
  %x = lm.embedding %tokens, %t : tensor<?xi32>, tensor<4x64xf32> -> tensor<?x64xf32>
  // expected-error @below {{expected weights packed as fragments in the order of its activations: run equant-materialize-weights with target=gpu first}}
  %y = equant.packed_linear %x, %w {sites = ["q"]} : (tensor<?x64xf32>, !w) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @forward(%x: tensor<?x64xf32>, %w: !equant.weight<8x64, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x8xf32> {
  // expected-error @below {{expected weights packed as fragments: run equant-materialize-weights with target=gpu first}}
  %y = equant.linear %x, %w {sites = ["q"]} : (tensor<?x64xf32>, !equant.weight<8x64, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @forward(%tokens: tensor<?xi32>, %w: !equant.weight<4x64, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x64xf32> {
  // expected-error @below {{expected a table packed as fragments: run equant-materialize-weights with target=gpu first}}
  %x = equant.embedding %tokens, %w : (tensor<?xi32>, !equant.weight<4x64, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x64xf32>
  return %x : tensor<?x64xf32>
}
