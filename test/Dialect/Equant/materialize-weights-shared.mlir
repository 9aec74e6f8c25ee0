// A global that is read both quantized and as float is written twice, under two names; one that nobody reads is not.

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|" %s | easyquant-opt --equant-materialize-weights=output=%t | FileCheck %s
// RUN: %python %S/Inputs/check_weights.py %t/model %t/weights.safetensors model.norm.weight=copy:model.norm.weight \
// RUN:   model.embed_tokens.weight=copy:model.embed_tokens.weight model.embed_tokens.weight_packed=i8:model.embed_tokens.weight

// CHECK: quantization, sites = [{{.*}}name = "head"{{.*}}name = "float_head"
// CHECK-DAG: ml_program.global private @model.embed_tokens.weight_packed({{.*}}) : !equant.weight<40x16, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
// CHECK-DAG: ml_program.global private @model.embed_tokens.weight({{.*}}) : tensor<40x16xf32> {equant.offset
// CHECK-NOT: @model.layers.0.input_layernorm.weight
module attributes {lm.source = "MODEL"} {
  ml_program.global private @model.embed_tokens.weight(#ml_program.extern : tensor<40x16xf32>) : tensor<40x16xf32>
  ml_program.global private @model.norm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.input_layernorm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>

  // CHECK-LABEL: func.func @forward(
  func.func @forward(%x: tensor<?x16xf32>) -> (tensor<?x40xf32>, tensor<?x40xf32>) {
    %n = ml_program.global_load_const @model.norm.weight : tensor<16xf32>
    %y = lm.rms_norm %x, %n {epsilon = 0.0 : f64} : tensor<?x16xf32>
    // CHECK: %[[W:.*]] = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %w = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %q = equant.quantize %w rule absmax : (tensor<40x16xf32>) -> !equant.weight<40x16, #equant.scheme<i8, symmetric, channel>>
    // CHECK: %[[Q:.*]] = ml_program.global_load_const @model.embed_tokens.weight_packed :
    // CHECK: equant.packed_linear %{{.*}}, %[[Q]] {
    %a = equant.linear %y, %q {sites = ["head"]} : (tensor<?x16xf32>, !equant.weight<40x16, #equant.scheme<i8, symmetric, channel>>) -> tensor<?x40xf32>
    // CHECK: lm.linear %{{.*}}, %[[W]]
    %b = lm.linear %y, %w {site = "float_head"} : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
    return %a, %b : tensor<?x40xf32>, tensor<?x40xf32>
  }
}
