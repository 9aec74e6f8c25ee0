// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|" %s | easyquant-opt --split-input-file --verify-diagnostics --equant-materialize-weights=output=%t

#w4 = #equant.scheme<i4, symmetric, group = 8>
module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x16xf32> {
    %w = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %q = equant.quantize %w rule absmax : (tensor<16x24xf32>) -> !equant.weight<16x24, #w4>
    %part = equant.slice %q [0, 8] [16, 16] : !equant.weight<16x24, #w4> -> !equant.weight<16x16, #w4>
    %inner = equant.slice %part [0, 8] [16, 8] : !equant.weight<16x16, #w4> -> !equant.weight<16x8, #w4>
    // expected-error @below {{site 'down': its weight is not a quantized constant: expected equant.quantize or equant.from_codes, found equant.slice}}
    %y = equant.linear %x, %inner {sites = ["down"]} : (tensor<?x8xf32>, !equant.weight<16x8, #w4>) -> tensor<?x16xf32>
    return %y : tensor<?x16xf32>
  }
}

// -----

#w8 = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @down.scale(#ml_program.extern : tensor<16x1xf32>) : tensor<16x1xf32> {equant.file = "gptq_0.safetensors"}
  func.func @forward(%x: tensor<?x24xf32>) -> tensor<?x8xf32> {
    %w = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %s = ml_program.global_load_const @down.scale : tensor<16x1xf32>
    %wc = tensor.extract_slice %w[8, 0] [8, 24] [1, 1] : tensor<16x24xf32> to tensor<8x24xf32>
    %sc = tensor.extract_slice %s[0, 0] [8, 1] [1, 1] : tensor<16x1xf32> to tensor<8x1xf32>
    %q = equant.quantize %wc scale(%sc) : (tensor<8x24xf32>, tensor<8x1xf32>) -> !equant.weight<8x24, #w8>
    // expected-error @below {{site 'down': 'down.scale', computed for all of 'model.layers.0.mlp.down_proj.weight', begins at row 0 and column 0 of it, but its weight at row 8 and column 0; expected the same part of both, cut at multiples of the group size}}
    %y = equant.linear %x, %q {sites = ["down"]} : (tensor<?x24xf32>, !equant.weight<8x24, #w8>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}

// -----

module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  func.func @forward(%x: tensor<?x12xf32>) -> tensor<?x16xf32> {
    %w = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %wc = tensor.extract_slice %w[0, 0] [16, 12] [1, 2] : tensor<16x24xf32> to tensor<16x12xf32>
    // expected-error @below {{site 'down': expected a part of a constant with static offsets and sizes within it, strides of 1 and all its dimensions, found }}
    %y = lm.linear %x, %wc {site = "down"} : (tensor<?x12xf32>, tensor<16x12xf32>) -> tensor<?x16xf32>
    return %y : tensor<?x16xf32>
  }
}

// -----

module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  func.func @forward(%x: tensor<?x24xf32>) -> tensor<?x8xf32> {
    %w = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %r = equant.hadamard %w {axis = 0 : i64, block = 16 : i64} : tensor<16x24xf32>
    %part = tensor.extract_slice %r[8, 0] [8, 24] [1, 1] : tensor<16x24xf32> to tensor<8x24xf32>
    // expected-error @below {{site 'down': 8 rows from 8 on are no whole blocks of 16 rows, in which equant.hadamard rotates them}}
    %y = lm.linear %x, %part {site = "down"} : (tensor<?x24xf32>, tensor<8x24xf32>) -> tensor<?x8xf32>
    return %y : tensor<?x8xf32>
  }
}
