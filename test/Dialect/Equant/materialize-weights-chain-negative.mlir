// Weights that are no quantized constants. (The source is opened first; no weight of it is read.)

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|" %s > %t/in.mlir
// RUN: easyquant-opt %t/in.mlir -split-input-file -verify-diagnostics --equant-materialize-weights=output=%t
// RUN: not ls %t/weights.safetensors

#w8 = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL"} {
  func.func @codes(%x: tensor<?x16xf32>, %q: !equant.weight<40x16, #w8>) {
    // expected-error @below {{site 'up': its weight is not a quantized constant: expected equant.quantize or equant.from_codes, found a block argument}}
    equant.linear %x, %q {sites = ["up"]} : (tensor<?x16xf32>, !equant.weight<40x16, #w8>) -> tensor<?x40xf32>
    return
  }
}

// -----

#w8 = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.embed_tokens.weight(#ml_program.extern : tensor<40x16xf32>) : tensor<40x16xf32>
  func.func @scale(%x: tensor<?x16xf32>, %s: tensor<40x1xf32>) {
    %w = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %q = equant.quantize %w scale(%s) : (tensor<40x16xf32>, tensor<40x1xf32>) -> !equant.weight<40x16, #w8>
    // expected-error @below {{site 'up': expected a constant (a global with external contents, equant.scale, equant.hadamard or a part of one), found a block argument}}
    equant.linear %x, %q {sites = ["up"]} : (tensor<?x16xf32>, !equant.weight<40x16, #w8>) -> tensor<?x40xf32>
    return
  }
}

// -----

#w8 = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL"} {
  func.func @global(%x: tensor<?x16xf32>, %w: tensor<40x16xf32>) {
    %q = equant.quantize %w rule absmax : (tensor<40x16xf32>) -> !equant.weight<40x16, #w8>
    // expected-error @below {{site 'up': expected a constant (a global with external contents, equant.scale, equant.hadamard or a part of one), found a block argument}}
    equant.linear %x, %q {sites = ["up"]} : (tensor<?x16xf32>, !equant.weight<40x16, #w8>) -> tensor<?x40xf32>
    return
  }
}

// -----

#w8 = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.embed_tokens.weight(#ml_program.extern : tensor<40x16xf32>) : tensor<40x16xf32>
  func.func @sites(%x: tensor<?x16xf32>) {
    %w = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %q = equant.quantize %w rule absmax : (tensor<40x16xf32>) -> !equant.weight<40x16, #w8>
    // expected-error @below {{site 'gate': 2 sites are named, but the weight is made of 1}}
    equant.linear %x, %q {sites = ["gate", "up"]} : (tensor<?x16xf32>, !equant.weight<40x16, #w8>) -> tensor<?x40xf32>
    return
  }
}

// -----

#wt = #equant.scheme<i8, symmetric, tensor>
module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.embed_tokens.weight(#ml_program.extern : tensor<40x16xf32>) : tensor<40x16xf32>
  func.func @granularity(%x: tensor<?x16xf32>) {
    %w = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %q = equant.quantize %w rule absmax : (tensor<40x16xf32>) -> !equant.weight<40x16, #wt>
    // expected-error @below {{site 'up': weights in #equant.scheme<i8, symmetric, tensor> cannot be packed; expected scales per channel or per group}}
    equant.linear %x, %q {sites = ["up"]} : (tensor<?x16xf32>, !equant.weight<40x16, #wt>) -> tensor<?x40xf32>
    return
  }
}
