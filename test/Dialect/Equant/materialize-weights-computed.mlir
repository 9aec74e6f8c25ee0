// What methods have computed, and equant.scale: on quantized and float weights, norms and biases.

// RUN: rm -rf %t && mkdir -p %t/1 %t/2 && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama --set attention_bias=true
// RUN: %python %S/Inputs/work_folder.py %t/work/smooth_0.safetensors stamp-s up.smooth_scale=f32:16 down.smooth_scale=f32:24 bias.smooth_scale=f32:16
// RUN: %python %S/Inputs/work_folder.py %t/work/gptq_0.safetensors stamp-g q.weight_codes=i8:16x16 q.weight_scale=f32:16x1 down.weight_scale=f32:16x3
// RUN: sed -e "s|MODEL|%t/model|; s|WORK|%t/work|" %s > %t/in.mlir
// RUN: easyquant-opt %t/in.mlir "--equant-materialize-weights=output=%t/1 threads=1" -o %t/1.mlir
// RUN: easyquant-opt %t/in.mlir "--equant-materialize-weights=output=%t/2 threads=2" -o %t/2.mlir
// RUN: cmp %t/1.mlir %t/2.mlir && cmp %t/1/weights.safetensors %t/2/weights.safetensors
// RUN: %python %S/Inputs/check_computed.py %t/model %t/work %t/1/weights.safetensors > %t/errors
// RUN: cat %t/1.mlir %t/errors | FileCheck %s

// The error of a weight with computed codes is that of these codes.
// CHECK: weight_error = [[INTEGER:[0-9]+]].[[DIGITS:[0-9][0-9][0-9]]]
// CHECK-NOT: equant.work
// CHECK-NOT: equant.file
// CHECK-NOT: smooth_scale
// CHECK-LABEL: func.func @layer(
// CHECK-NOT:     equant.scale
// CHECK:         %[[B:.*]] = ml_program.global_load_const @"model.layers.0.self_attn.q_proj+k_proj.bias" : tensor<24xf32>
// CHECK:         equant.packed_linear %{{.*}} bias(%[[B]])
// CHECK-DAG:     %[[N:.*]] = ml_program.global_load_const @model.layers.0.input_layernorm.weight : tensor<16xf32>
// CHECK:         lm.rms_norm %{{.*}}, %[[N]]
// CHECK-DAG:     ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight :
// CHECK-DAG:     ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight_2 :
// CHECK:       q [[INTEGER]].[[DIGITS]]

#w8 = #equant.scheme<i8, symmetric, channel>
#w4 = #equant.scheme<i4, symmetric, group = 8>
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.input_layernorm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.self_attn.q_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.self_attn.k_proj.weight(#ml_program.extern : tensor<8x16xf32>) : tensor<8x16xf32>
  ml_program.global private @model.layers.0.self_attn.q_proj.bias(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.self_attn.k_proj.bias(#ml_program.extern : tensor<8xf32>) : tensor<8xf32>
  ml_program.global private @model.layers.0.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @up.smooth_scale(#ml_program.extern : tensor<16xf32>) : tensor<16xf32> {equant.file = "smooth_0.safetensors", equant.stamp = "stamp-s"}
  ml_program.global private @down.smooth_scale(#ml_program.extern : tensor<24xf32>) : tensor<24xf32> {equant.file = "smooth_0.safetensors", equant.stamp = "stamp-s"}
  ml_program.global private @bias.smooth_scale(#ml_program.extern : tensor<16xf32>) : tensor<16xf32> {equant.file = "smooth_0.safetensors", equant.stamp = "stamp-s"}
  ml_program.global private @q.weight_codes(#ml_program.extern : tensor<16x16xi8>) : tensor<16x16xi8> {equant.file = "gptq_0.safetensors", equant.stamp = "stamp-g"}
  ml_program.global private @q.weight_scale(#ml_program.extern : tensor<16x1xf32>) : tensor<16x1xf32> {equant.file = "gptq_0.safetensors", equant.stamp = "stamp-g"}
  ml_program.global private @down.weight_scale(#ml_program.extern : tensor<16x3xf32>) : tensor<16x3xf32> {equant.file = "gptq_0.safetensors"}

  func.func @layer(%x: tensor<?x16xf32>) -> (tensor<?x24xf32>, tensor<?x16xf32>, tensor<?x24xf32>, tensor<?x24xf32>) {
    %qw = ml_program.global_load_const @model.layers.0.self_attn.q_proj.weight : tensor<16x16xf32>
    %qs = ml_program.global_load_const @q.weight_scale : tensor<16x1xf32>
    %qr = ml_program.global_load_const @q.weight_codes : tensor<16x16xi8>
    %qc = equant.quantize %qw scale(%qs) rounded(%qr) : (tensor<16x16xf32>, tensor<16x1xf32>, tensor<16x16xi8>) -> !equant.weight<16x16, #w8>
    %kw = ml_program.global_load_const @model.layers.0.self_attn.k_proj.weight : tensor<8x16xf32>
    %kc = equant.quantize %kw rule absmax : (tensor<8x16xf32>) -> !equant.weight<8x16, #w8>
    %c = equant.concat %qc, %kc : (!equant.weight<16x16, #w8>, !equant.weight<8x16, #w8>) -> !equant.weight<24x16, #w8>
    %qb = ml_program.global_load_const @model.layers.0.self_attn.q_proj.bias : tensor<16xf32>
    %kb = ml_program.global_load_const @model.layers.0.self_attn.k_proj.bias : tensor<8xf32>
    %bf = ml_program.global_load_const @bias.smooth_scale : tensor<16xf32>
    %qb2 = equant.scale %qb by %bf {axis = 0, divide} : tensor<16xf32>, tensor<16xf32>
    %b = equant.concat %qb2, %kb : (tensor<16xf32>, tensor<8xf32>) -> tensor<24xf32>
    %qk = equant.linear %x, %c bias(%b) {sites = ["q", "k"]} : (tensor<?x16xf32>, !equant.weight<24x16, #w8>, tensor<24xf32>) -> tensor<?x24xf32>

    %n = ml_program.global_load_const @model.layers.0.input_layernorm.weight : tensor<16xf32>
    %f = ml_program.global_load_const @up.smooth_scale : tensor<16xf32>
    %g = ml_program.global_load_const @down.smooth_scale : tensor<24xf32>
    %n2 = equant.scale %n by %f {axis = 0, divide} : tensor<16xf32>, tensor<16xf32>
    %y = lm.rms_norm %x, %n2 {epsilon = 0.0 : f64} : tensor<?x16xf32>
    %uw = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %uw2 = equant.scale %uw by %f {axis = 1} : tensor<24x16xf32>, tensor<16xf32>
    %uw3 = equant.scale %uw2 by %g {axis = 0, divide} : tensor<24x16xf32>, tensor<24xf32>
    %uc = equant.quantize %uw3 rule absmax : (tensor<24x16xf32>) -> !equant.weight<24x16, #w8>
    %u = equant.linear %y, %uc {sites = ["up"]} : (tensor<?x16xf32>, !equant.weight<24x16, #w8>) -> tensor<?x24xf32>

    %dw = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %dw2 = equant.scale %dw by %g {axis = 1} : tensor<16x24xf32>, tensor<24xf32>
    %ds = ml_program.global_load_const @down.weight_scale : tensor<16x3xf32>
    %dc = equant.quantize %dw2 scale(%ds) : (tensor<16x24xf32>, tensor<16x3xf32>) -> !equant.weight<16x24, #w4>
    %d = equant.linear %u, %dc {sites = ["down"]} : (tensor<?x24xf32>, !equant.weight<16x24, #w4>) -> tensor<?x16xf32>

    %gw = ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight : tensor<24x16xf32>
    %gw2 = equant.scale %gw by %f {axis = 1} : tensor<24x16xf32>, tensor<16xf32>
    %p = lm.linear %d, %gw2 {site = "gate"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    %q = lm.linear %d, %gw {site = "plain"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    return %qk, %d, %p, %q : tensor<?x24xf32>, tensor<?x16xf32>, tensor<?x24xf32>, tensor<?x24xf32>
  }
}
