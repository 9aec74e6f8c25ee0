// Parts of constants: rows and columns of a weight, and of what it is quantized to.

// RUN: rm -rf %t && mkdir %t && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: sed -e "s|MODEL|%t/model|" %s | easyquant-opt --equant-materialize-weights=output=%t | FileCheck %s
// RUN: %python %S/Inputs/check_weights.py %t/model %t/weights.safetensors \
// RUN:   model.layers.0.mlp.up_proj.weight=i8:model.layers.0.mlp.up_proj.weight@6..22,0..16 \
// RUN:   model.layers.0.mlp.down_proj.weight=i4:8:model.layers.0.mlp.down_proj.weight%%0..16,8..24 \
// RUN:   model.layers.1.mlp.down_proj.weight=i8:model.layers.1.mlp.down_proj.weight%%3..16,0..24 \
// RUN:   model.layers.1.mlp.gate_proj+up_proj.weight=i4:8:model.layers.1.mlp.gate_proj.weight%%8..16,0..8+model.layers.1.mlp.up_proj.weight%%0..24,0..8 \
// RUN:   model.layers.0.mlp.gate_proj.weight=copy:model.layers.0.mlp.gate_proj.weight@0..24,5..13

#w8 = #equant.scheme<i8, symmetric, channel>
#w4 = #equant.scheme<i4, symmetric, group = 8, scale = f16>
// CHECK: sites = [{bytes = 320 {{.*}}name = "rows"
module attributes {lm.source = "MODEL"} {
  // CHECK: ml_program.global private @model.layers.0.mlp.up_proj.weight({{.*}}) : !equant.weight<16x16, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  // CHECK: ml_program.global private @model.layers.0.mlp.gate_proj.weight({{.*}}) : tensor<24x8xf32>
  ml_program.global private @model.layers.0.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @model.layers.1.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @model.layers.1.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.1.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>

  // CHECK-LABEL: func.func @forward(
  // CHECK-NOT: slice
  func.func @forward(%x: tensor<?x16xf32>, %y: tensor<?x24xf32>, %z: tensor<?x8xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x13xf32>, tensor<?x32xf32>, tensor<?x24xf32>) {
    // Rows of a weight.
    %up = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %rows = tensor.extract_slice %up[6, 0] [16, 16] [1, 1] : tensor<24x16xf32> to tensor<16x16xf32>
    %q0 = equant.quantize %rows rule absmax : (tensor<16x16xf32>) -> !equant.weight<16x16, #w8>
    %a = equant.linear %x, %q0 {sites = ["rows"]} : (tensor<?x16xf32>, !equant.weight<16x16, #w8>) -> tensor<?x16xf32>

    // Columns of codes, which are whole groups.
    %down = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %q1 = equant.quantize %down rule absmax : (tensor<16x24xf32>) -> !equant.weight<16x24, #w4>
    %q1c = equant.slice %q1 [0, 8] [16, 16] : !equant.weight<16x24, #w4> -> !equant.weight<16x16, #w4>
    %b = equant.linear %x, %q1c {sites = ["columns"]} : (tensor<?x16xf32>, !equant.weight<16x16, #w4>) -> tensor<?x16xf32>

    // Rows of codes with scales per channel.
    %down1 = ml_program.global_load_const @model.layers.1.mlp.down_proj.weight : tensor<16x24xf32>
    %q2 = equant.quantize %down1 rule absmax : (tensor<16x24xf32>) -> !equant.weight<16x24, #w8>
    %q2c = equant.slice %q2 [3, 0] [13, 24] : !equant.weight<16x24, #w8> -> !equant.weight<13x24, #w8>
    %c = equant.linear %y, %q2c {sites = ["code_rows"]} : (tensor<?x24xf32>, !equant.weight<13x24, #w8>) -> tensor<?x13xf32>

    // A part of two fused linears.
    %g = ml_program.global_load_const @model.layers.1.mlp.gate_proj.weight : tensor<24x16xf32>
    %q3 = equant.quantize %g rule absmax : (tensor<24x16xf32>) -> !equant.weight<24x16, #w4>
    %q3c = equant.slice %q3 [8, 0] [8, 8] : !equant.weight<24x16, #w4> -> !equant.weight<8x8, #w4>
    %u = ml_program.global_load_const @model.layers.1.mlp.up_proj.weight : tensor<24x16xf32>
    %q4 = equant.quantize %u rule absmax : (tensor<24x16xf32>) -> !equant.weight<24x16, #w4>
    %q4c = equant.slice %q4 [0, 0] [24, 8] : !equant.weight<24x16, #w4> -> !equant.weight<24x8, #w4>
    %q = equant.concat %q3c, %q4c : (!equant.weight<8x8, #w4>, !equant.weight<24x8, #w4>) -> !equant.weight<32x8, #w4>
    %d = equant.linear %z, %q {sites = ["gate", "up"]} : (tensor<?x8xf32>, !equant.weight<32x8, #w4>) -> tensor<?x32xf32>

    // A part of a weight that stays float.
    %f = ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight : tensor<24x16xf32>
    %fc = tensor.extract_slice %f[0, 5] [24, 8] [1, 1] : tensor<24x16xf32> to tensor<24x8xf32>
    %e = lm.linear %z, %fc {site = "float"} : (tensor<?x8xf32>, tensor<24x8xf32>) -> tensor<?x24xf32>
    return %a, %b, %c, %d, %e : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x13xf32>, tensor<?x32xf32>, tensor<?x24xf32>
  }
}
