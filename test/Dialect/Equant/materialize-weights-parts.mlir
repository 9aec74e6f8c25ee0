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
  // CHECK: ml_program.global private @model.layers.0.mlp.up_proj.weight({{.*}}) : tensor<1x4x32x4xi8>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  // CHECK: ml_program.global private @model.layers.0.mlp.gate_proj.weight({{.*}}) : tensor<24x8xf32>
  ml_program.global private @model.layers.0.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @model.layers.1.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @model.layers.1.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.1.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>

  // CHECK-LABEL: func.func @forward(
  // CHECK-NOT: tensor.extract_slice
  func.func @forward(%x: tensor<?x16xf32>, %y: tensor<?x24xf32>, %z: tensor<?x8xf32>)
      -> (tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x13xf32>, tensor<?x32xf32>, tensor<?x24xf32>) {
    // Rows of a weight.
    %up = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %rows = tensor.extract_slice %up[6, 0] [16, 16] [1, 1] : tensor<24x16xf32> to tensor<16x16xf32>
    %s0 = equant.choose_qparams %rows rule absmax {scheme = #w8} : (tensor<16x16xf32>) -> tensor<16x1xf32>
    %q0 = equant.quantize %rows scale(%s0) {scheme = #w8} : (tensor<16x16xf32>, tensor<16x1xf32>) -> tensor<16x16xi8>
    %a = equant.linear %x, %q0 scale(%s0) {sites = ["rows"], weight_scheme = #w8}
           : (tensor<?x16xf32>, tensor<16x16xi8>, tensor<16x1xf32>) -> tensor<?x16xf32>

    // Columns of codes, which are whole groups.
    %down = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %s1 = equant.choose_qparams %down rule absmax {scheme = #w4} : (tensor<16x24xf32>) -> tensor<16x3xf16>
    %q1 = equant.quantize %down scale(%s1) {scheme = #w4} : (tensor<16x24xf32>, tensor<16x3xf16>) -> tensor<16x24xi4>
    %q1c = tensor.extract_slice %q1[0, 8] [16, 16] [1, 1] : tensor<16x24xi4> to tensor<16x16xi4>
    %s1c = tensor.extract_slice %s1[0, 1] [16, 2] [1, 1] : tensor<16x3xf16> to tensor<16x2xf16>
    %b = equant.linear %x, %q1c scale(%s1c) {sites = ["columns"], weight_scheme = #w4}
           : (tensor<?x16xf32>, tensor<16x16xi4>, tensor<16x2xf16>) -> tensor<?x16xf32>

    // Rows of codes with scales per channel.
    %down1 = ml_program.global_load_const @model.layers.1.mlp.down_proj.weight : tensor<16x24xf32>
    %s2 = equant.choose_qparams %down1 rule absmax {scheme = #w8} : (tensor<16x24xf32>) -> tensor<16x1xf32>
    %q2 = equant.quantize %down1 scale(%s2) {scheme = #w8} : (tensor<16x24xf32>, tensor<16x1xf32>) -> tensor<16x24xi8>
    %q2c = tensor.extract_slice %q2[3, 0] [13, 24] [1, 1] : tensor<16x24xi8> to tensor<13x24xi8>
    %s2c = tensor.extract_slice %s2[3, 0] [13, 1] [1, 1] : tensor<16x1xf32> to tensor<13x1xf32>
    %c = equant.linear %y, %q2c scale(%s2c) {sites = ["code_rows"], weight_scheme = #w8}
           : (tensor<?x24xf32>, tensor<13x24xi8>, tensor<13x1xf32>) -> tensor<?x13xf32>

    // A part of two fused linears.
    %g = ml_program.global_load_const @model.layers.1.mlp.gate_proj.weight : tensor<24x16xf32>
    %s3 = equant.choose_qparams %g rule absmax {scheme = #w4} : (tensor<24x16xf32>) -> tensor<24x2xf16>
    %q3 = equant.quantize %g scale(%s3) {scheme = #w4} : (tensor<24x16xf32>, tensor<24x2xf16>) -> tensor<24x16xi4>
    %q3c = tensor.extract_slice %q3[8, 0] [8, 8] [1, 1] : tensor<24x16xi4> to tensor<8x8xi4>
    %s3c = tensor.extract_slice %s3[8, 0] [8, 1] [1, 1] : tensor<24x2xf16> to tensor<8x1xf16>
    %u = ml_program.global_load_const @model.layers.1.mlp.up_proj.weight : tensor<24x16xf32>
    %s4 = equant.choose_qparams %u rule absmax {scheme = #w4} : (tensor<24x16xf32>) -> tensor<24x2xf16>
    %q4 = equant.quantize %u scale(%s4) {scheme = #w4} : (tensor<24x16xf32>, tensor<24x2xf16>) -> tensor<24x16xi4>
    %q4c = tensor.extract_slice %q4[0, 0] [24, 8] [1, 1] : tensor<24x16xi4> to tensor<24x8xi4>
    %s4c = tensor.extract_slice %s4[0, 0] [24, 1] [1, 1] : tensor<24x2xf16> to tensor<24x1xf16>
    %q = equant.concat %q3c, %q4c : (tensor<8x8xi4>, tensor<24x8xi4>) -> tensor<32x8xi4>
    %s = equant.concat %s3c, %s4c : (tensor<8x1xf16>, tensor<24x1xf16>) -> tensor<32x1xf16>
    %d = equant.linear %z, %q scale(%s) {sites = ["gate", "up"], weight_scheme = #w4}
           : (tensor<?x8xf32>, tensor<32x8xi4>, tensor<32x1xf16>) -> tensor<?x32xf32>

    // A part of a weight that stays float.
    %f = ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight : tensor<24x16xf32>
    %fc = tensor.extract_slice %f[0, 5] [24, 8] [1, 1] : tensor<24x16xf32> to tensor<24x8xf32>
    %e = lm.linear %z, %fc {site = "float"} : (tensor<?x8xf32>, tensor<24x8xf32>) -> tensor<?x24xf32>
    return %a, %b, %c, %d, %e : tensor<?x16xf32>, tensor<?x16xf32>, tensor<?x13xf32>, tensor<?x32xf32>, tensor<?x24xf32>
  }
}
