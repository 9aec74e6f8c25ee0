// What each of two ranks has of the weights of experts, and a bias that the first one has alone.

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|" %s | easyquant-opt --equant-materialize-weights=output=%t | FileCheck %s
// RUN: %python %S/Inputs/check_weights.py %t/model %t/weights.0.safetensors model.norm.weight=copy:model.norm.weight \
// RUN:   model.layers.0.mlp.up_proj.weight=i8:model.layers.0.mlp.up_proj.weight%%0..3,0..16+model.layers.0.mlp.up_proj.weight%%6..9,0..16+model.layers.0.mlp.up_proj.weight%%12..15,0..16+model.layers.0.mlp.up_proj.weight%%18..21,0..16
// RUN: %python %S/Inputs/check_weights.py %t/model %t/weights.1.safetensors \
// RUN:   model.layers.0.mlp.up_proj.weight=i8:model.layers.0.mlp.up_proj.weight%%3..6,0..16+model.layers.0.mlp.up_proj.weight%%9..12,0..16+model.layers.0.mlp.up_proj.weight%%15..18,0..16+model.layers.0.mlp.up_proj.weight%%21..24,0..16
// RUN: not %python %S/Inputs/check_weights.py %t/model %t/weights.1.safetensors model.norm.weight=copy:model.norm.weight

#w8 = #equant.scheme<i8, symmetric, channel>
module attributes {lm.source = "MODEL"} {
  shard.grid @tensor_parallel(shape = 2)
  // CHECK: ml_program.global private @model.norm.weight({{.*}}) : tensor<16xf32>
  ml_program.global private @model.norm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  // CHECK: ml_program.global private @model.layers.0.mlp.up_proj.weight({{.*}}) : !equant.weight<12x16, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  // CHECK: ml_program.global private @model.layers.0.mlp.gate_proj.weight({{.*}}) : tensor<12x16xf32>
  ml_program.global private @model.layers.0.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>

  // CHECK-LABEL: func.func @forward(
  // CHECK-NOT: all_slice
  // CHECK-NOT: first_rank
  func.func @forward(%x: tensor<?x16xf32>) -> (tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x16xf32>) {
    %up = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %q = equant.quantize %up rule absmax : (tensor<24x16xf32>) -> !equant.weight<24x16, #w8>
    %own = equant.all_slice %q on @tensor_parallel axis 0 parts [6, 6, 6, 6] : !equant.weight<24x16, #w8> -> !equant.weight<12x16, #w8>
    %a = equant.linear %x, %own {sites = ["up_proj"]} : (tensor<?x16xf32>, !equant.weight<12x16, #w8>) -> tensor<?x12xf32>
    %gate = ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight : tensor<24x16xf32>
    %part = equant.all_slice %gate on @tensor_parallel axis 0 parts [8, 8, 8] : tensor<24x16xf32> -> tensor<12x16xf32>
    %b = lm.linear %x, %part {site = "gate_proj"} : (tensor<?x16xf32>, tensor<12x16xf32>) -> tensor<?x12xf32>
    %bias = ml_program.global_load_const @model.norm.weight : tensor<16xf32>
    %once = equant.first_rank %bias on @tensor_parallel : tensor<16xf32>
    %c = equant.add_bias %x, %once : tensor<?x16xf32>, tensor<16xf32>
    return %a, %b, %c : tensor<?x12xf32>, tensor<?x12xf32>, tensor<?x16xf32>
  }
}
