// Rows of constants that are rotated from one of them on, whole or cut: values behind queries and keys.

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch gpt2
// RUN: sed -e "s|MODEL|%t/model|" %s | easyquant-opt --equant-materialize-weights=output=%t
// RUN: %python %S/Inputs/check_weights.py %t/model %t/weights.safetensors \
// RUN:   h.0.attn.c_attn.bias=copy:h.0.attn.c_attn.bias^16,1,32 \
// RUN:   h.0.attn.c_attn.bias_2=copy:h.0.attn.c_attn.bias^16,1,32@16..48,0..1 \
// RUN:   h.0.attn.c_attn.bias_3=copy:h.0.attn.c_attn.bias@0..16,0..1 \
// RUN:   h.0.attn.c_attn.bias_4=copy:h.0.attn.c_attn.bias^16,1@32..48,0..1

module attributes {lm.source = "MODEL"} {
  ml_program.global private @h.0.attn.c_attn.bias(#ml_program.extern : tensor<48xf32>) : tensor<48xf32>
  func.func @forward(%x: tensor<?x48xf32>, %y: tensor<?x32xf32>, %z: tensor<?x16xf32>) -> (tensor<?x48xf32>, tensor<?x32xf32>, tensor<?x16xf32>) {
    %b = ml_program.global_load_const @h.0.attn.c_attn.bias : tensor<48xf32>
    %r = equant.hadamard %b {axis = 0 : i64, block = 16 : i64, first = 32 : i64} : tensor<48xf32>
    %c = tensor.extract_slice %r[16] [32] [1] : tensor<48xf32> to tensor<32xf32>
    %q = tensor.extract_slice %r[0] [16] [1] : tensor<48xf32> to tensor<16xf32>
    %v = tensor.extract_slice %r[32] [16] [1] : tensor<48xf32> to tensor<16xf32>
    %whole = lm.layer_norm %x, %r, %r {epsilon = 1.000000e-05 : f64} : tensor<?x48xf32>
    %cut = lm.layer_norm %y, %c, %c {epsilon = 1.000000e-05 : f64} : tensor<?x32xf32>
    %ends = lm.layer_norm %z, %q, %v {epsilon = 1.000000e-05 : f64} : tensor<?x16xf32>
    return %whole, %cut, %ends : tensor<?x48xf32>, tensor<?x32xf32>, tensor<?x16xf32>
  }
}
