// Rows and columns of constants behind Hadamard matrices, rounded once, be they quantized, cut or float.

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|" %s | easyquant-opt --equant-materialize-weights=output=%t
// RUN: %python %S/Inputs/check_weights.py %t/model %t/weights.safetensors \
// RUN:   model.layers.0.self_attn.q_proj.weight=i8:model.layers.0.self_attn.q_proj.weight^16,16 \
// RUN:   model.layers.0.mlp.down_proj.weight=i4:8:model.layers.0.mlp.down_proj.weight^16,1 \
// RUN:   model.embed_tokens.weight=i8:model.embed_tokens.weight^1,16 \
// RUN:   model.layers.0.self_attn.o_proj.weight=copy:model.layers.0.self_attn.o_proj.weight^16,1@0..16,3..11 \
// RUN:   model.norm.weight=copy:model.norm.weight^16,1

#w8 = #equant.scheme<i8, symmetric, channel>
#w4 = #equant.scheme<i4, symmetric, group = 8, scale = f16>
module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.embed_tokens.weight(#ml_program.extern : tensor<40x16xf32>) : tensor<40x16xf32>
  ml_program.global private @model.layers.0.self_attn.q_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.self_attn.o_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @model.norm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  func.func @forward(%x: tensor<?x16xf32>, %y: tensor<?x24xf32>, %z: tensor<?x8xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x40xf32>, tensor<?x16xf32>) {
    %q = ml_program.global_load_const @model.layers.0.self_attn.q_proj.weight : tensor<16x16xf32>
    %qc = equant.hadamard %q {block = 16 : i64} : tensor<16x16xf32>
    %qr = equant.hadamard %qc {axis = 0 : i64, block = 16 : i64} : tensor<16x16xf32>
    %q8 = equant.quantize %qr rule absmax : (tensor<16x16xf32>) -> !equant.weight<16x16, #w8>
    %a = equant.linear %x, %q8 {sites = ["both"]} : (tensor<?x16xf32>, !equant.weight<16x16, #w8>) -> tensor<?x16xf32>

    %d = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %dr = equant.hadamard %d {axis = 0 : i64, block = 16 : i64} : tensor<16x24xf32>
    %d4 = equant.quantize %dr rule absmax : (tensor<16x24xf32>) -> !equant.weight<16x24, #w4>
    %b = equant.linear %y, %d4 {sites = ["rows"]} : (tensor<?x24xf32>, !equant.weight<16x24, #w4>) -> tensor<?x16xf32>

    %e = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %ec = equant.hadamard %e {block = 16 : i64} : tensor<40x16xf32>
    %e8 = equant.quantize %ec rule absmax : (tensor<40x16xf32>) -> !equant.weight<40x16, #w8>
    %c = equant.linear %x, %e8 {sites = ["columns"]} : (tensor<?x16xf32>, !equant.weight<40x16, #w8>) -> tensor<?x40xf32>

    %o = ml_program.global_load_const @model.layers.0.self_attn.o_proj.weight : tensor<16x16xf32>
    %or = equant.hadamard %o {axis = 0 : i64, block = 16 : i64} : tensor<16x16xf32>
    %oc = tensor.extract_slice %or[0, 3] [16, 8] [1, 1] : tensor<16x16xf32> to tensor<16x8xf32>
    %n = ml_program.global_load_const @model.norm.weight : tensor<16xf32>
    %nr = equant.hadamard %n {axis = 0 : i64, block = 16 : i64} : tensor<16xf32>
    %f = lm.linear %z, %oc bias(%nr) {site = "float"} : (tensor<?x8xf32>, tensor<16x8xf32>, tensor<16xf32>) -> tensor<?x16xf32>
    return %a, %b, %c, %f : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x40xf32>, tensor<?x16xf32>
  }
}
