// Where the division goes: into a norm and its bias, the rows of up_proj, the rows of v_proj; and where it cannot.

// RUN: rm -rf %t && mkdir -p %t/float && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama --set attention_bias=true --set num_key_value_heads=4
// RUN: easyquant-translate --import-hf %t/model | easyquant-opt --equant-materialize-weights=output=%t/float -o %t/float.mlir
// RUN: %python %S/Inputs/statistics_file.py %t/statistics.safetensors %t/float.mlir q=16 o=16 gate=16 down=24
// RUN: sed -e "s|MODEL|%t/model|; s|WORK|%t/work|" %s > %t/in.mlir
// RUN: easyquant-opt %t/in.mlir "--equant-smooth-quant=statistics=%t/statistics.safetensors alpha=0.5" | FileCheck %s
// RUN: easyquant-opt %t/in.mlir "--equant-smooth-quant=statistics=%t/statistics.safetensors alpha=0.5" | easyquant-opt | FileCheck %s

// A site's own alpha stands above the pass's; sites that read the same activations agree on it.
// RUN: sed -e "s|#plan, site = \"down\"|#own, site = \"down\"|" %t/in.mlir | easyquant-opt - "--equant-smooth-quant=statistics=%t/statistics.safetensors alpha=0.5" | FileCheck %s --check-prefix=OWN
// OWN: {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["gate", "up"]}
// OWN: {alpha = 2.500000e-01 : f64, method = "smoothquant", sites = ["down"]}
// RUN: sed -e "s|#plan, site = \"up\"|#own, site = \"up\"|" %t/in.mlir | not easyquant-opt - "--equant-smooth-quant=statistics=%t/statistics.safetensors alpha=0.5" 2>&1 | FileCheck %s --check-prefix=TORN
// TORN: error: sites 'gate' and 'up' read the same activations, but one asks for the default alpha, the other for alpha 2.500000e-01 : f64: give both the same

#own = #equant.plan<methods = ["smoothquant"], rule = absmax, weight = <i8, symmetric, channel>, options = {alpha = 0.25}>
#plan = #equant.plan<methods = ["smoothquant"], rule = absmax, weight = <i8, symmetric, channel>>
#other = #equant.plan<methods = ["gptq"], rule = absmax, weight = <i8, symmetric, channel>>

// CHECK:      module attributes {
// CHECK-SAME:   equant.transforms = [
// CHECK-SAME:     {method = "smoothquant", sites = ["grouped"], skipped = "its input is made by lm.attention whose heads share values"},
// CHECK-SAME:     {method = "smoothquant", sites = ["gelu"], skipped = "its input is made by lm.gelu, through which no factor passes"},
// CHECK-SAME:     {method = "smoothquant", sites = ["shared"], skipped = "its input is also read by lm.add"},
// CHECK-SAME:     {method = "smoothquant", sites = ["argument"], skipped = "its input comes from outside of the layer"},
// CHECK-SAME:     {method = "smoothquant", sites = ["tied"], skipped = "its input is read by site 'tied', whose weight others read too"},
// CHECK-SAME:     {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["q", "k", "v"]},
// CHECK-SAME:     {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["o"]},
// CHECK-SAME:     {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["gate", "up"]},
// CHECK-SAME:     {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["down"]}]
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.input_layernorm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.self_attn.k_proj.bias(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.post_attention_layernorm.weight(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.self_attn.q_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.self_attn.k_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.self_attn.v_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.self_attn.v_proj.bias(#ml_program.extern : tensor<16xf32>) : tensor<16xf32>
  ml_program.global private @model.layers.0.self_attn.o_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>
  ml_program.global private @model.layers.1.self_attn.q_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.1.self_attn.k_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.1.self_attn.v_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.1.self_attn.o_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.embed_tokens.weight(#ml_program.extern : tensor<40x16xf32>) : tensor<40x16xf32>
  // CHECK-DAG: ml_program.global private @q.smooth_scale({{.*}}) : tensor<16xf32> {equant.file = "smooth_layer.safetensors", equant.stamp = "smoothquant {{[0-9a-f]+}}"}
  // CHECK-DAG: ml_program.global private @down.smooth_scale({{.*}}) : tensor<24xf32>

  // CHECK-LABEL: func.func @layer(
  func.func @layer(%x: tensor<?x16xf32>, %cache: !lm.kv_cache<layers = 1, kv_heads = 4, head_dim = 4>, %batch: !lm.batch) -> tensor<?x16xf32> {
    // CHECK: %[[NORM:.*]] = ml_program.global_load_const @model.layers.0.input_layernorm.weight :
    // CHECK: %[[BIAS:.*]] = ml_program.global_load_const @model.layers.0.self_attn.k_proj.bias :
    // CHECK: %[[NORM2:.*]] = equant.scale %[[NORM]] by %{{.*}} {axis = 0 : i64, divide}
    // CHECK: %[[BIAS2:.*]] = equant.scale %[[BIAS]] by %{{.*}} {axis = 0 : i64, divide}
    // CHECK: %[[N:.*]] = lm.layer_norm %{{.*}}, %[[NORM2]], %[[BIAS2]]
    %norm = ml_program.global_load_const @model.layers.0.input_layernorm.weight : tensor<16xf32>
    %norm_bias = ml_program.global_load_const @model.layers.0.self_attn.k_proj.bias : tensor<16xf32>
    %n = lm.layer_norm %x, %norm, %norm_bias {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>
    %qw = ml_program.global_load_const @model.layers.0.self_attn.q_proj.weight : tensor<16x16xf32>
    %kw = ml_program.global_load_const @model.layers.0.self_attn.k_proj.weight : tensor<16x16xf32>
    %vw = ml_program.global_load_const @model.layers.0.self_attn.v_proj.weight : tensor<16x16xf32>
    %vb = ml_program.global_load_const @model.layers.0.self_attn.v_proj.bias : tensor<16xf32>
    // CHECK: %[[S:.*]] = ml_program.global_load_const @q.smooth_scale
    // CHECK: %[[QW:.*]] = equant.scale %{{.*}} by %[[S]] {axis = 1 : i64} : tensor<16x16xf32>, tensor<16xf32>
    // CHECK: lm.linear %[[N]], %[[QW]]
    %q = lm.linear %n, %qw {equant.plan = #plan, site = "q"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    // A reader without the method is scaled too: it reads the same activation.
    // CHECK: equant.scale %{{.*}} by %{{.*}} {axis = 1 : i64}
    // CHECK: lm.linear %[[N]], {{.*}} site = "k"
    %k = lm.linear %n, %kw {equant.plan = #other, site = "k"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    // CHECK: %[[V:.*]] = equant.scale %{{.*}} by %{{.*}} {axis = 1 : i64}
    // CHECK: %[[O:.*]] = ml_program.global_load_const @o.smooth_scale
    // CHECK: %[[VW:.*]] = equant.scale %[[V]] by %[[O]] {axis = 0 : i64, divide} : tensor<16x16xf32>, tensor<16xf32>
    // CHECK: %[[VB:.*]] = equant.scale %{{.*}} by %{{.*}} {axis = 0 : i64, divide} : tensor<16xf32>, tensor<16xf32>
    // CHECK: lm.linear %[[N]], %[[VW]] bias(%[[VB]]) {{.*}} site = "v"
    %v = lm.linear %n, %vw bias(%vb) {equant.plan = #plan, site = "v"} : (tensor<?x16xf32>, tensor<16x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
    %a = lm.attention %q, %k, %v, %cache, %batch {layer = 0, num_heads = 4, num_kv_heads = 4, head_dim = 4, scale = 1.0}
      : tensor<?x16xf32>, tensor<?x16xf32>, !lm.kv_cache<layers = 1, kv_heads = 4, head_dim = 4>
    %ow = ml_program.global_load_const @model.layers.0.self_attn.o_proj.weight : tensor<16x16xf32>
    %o = lm.linear %a, %ow {equant.plan = #plan, site = "o"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    // CHECK: %[[R:.*]] = lm.rms_norm
    // CHECK: lm.linear %[[R]], {{.*}} site = "gate"
    // CHECK: equant.scale %{{.*}} by %{{.*}} {axis = 1 : i64}
    // CHECK: equant.scale %{{.*}} by %{{.*}} {axis = 0 : i64, divide} : tensor<24x16xf32>, tensor<24xf32>
    // CHECK: lm.linear %[[R]], {{.*}} site = "up"
    %norm2 = ml_program.global_load_const @model.layers.0.post_attention_layernorm.weight : tensor<16xf32>
    %m = lm.rms_norm %o, %norm2 {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>
    %gw = ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight : tensor<24x16xf32>
    %uw = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %dw = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    %g = lm.linear %m, %gw {equant.plan = #plan, site = "gate"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    %u = lm.linear %m, %uw {equant.plan = #plan, site = "up"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    %h = lm.glu silu %g, %u : tensor<?x24xf32>
    %d = lm.linear %h, %dw {equant.plan = #plan, site = "down"} : (tensor<?x24xf32>, tensor<16x24xf32>) -> tensor<?x16xf32>
    return %d : tensor<?x16xf32>
  }

  // CHECK-LABEL: func.func @left(
  // CHECK-NOT:     equant.scale
  func.func @left(%x: tensor<?x16xf32>, %z: tensor<?x16xf32>, %kv: tensor<?x8xf32>, %tokens: tensor<?xi32>, %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>, %batch: !lm.batch) -> (tensor<?x16xf32>, tensor<?x40xf32>) {
    %w0 = ml_program.global_load_const @model.layers.1.self_attn.q_proj.weight : tensor<16x16xf32>
    %w1 = ml_program.global_load_const @model.layers.1.self_attn.k_proj.weight : tensor<16x16xf32>
    %w2 = ml_program.global_load_const @model.layers.1.self_attn.v_proj.weight : tensor<16x16xf32>
    %w3 = ml_program.global_load_const @model.layers.1.self_attn.o_proj.weight : tensor<16x16xf32>
    %table = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %head = ml_program.global_load_const @model.embed_tokens.weight : tensor<40x16xf32>
    %e = lm.embedding %tokens, %table : tensor<?xi32>, tensor<40x16xf32> -> tensor<?x16xf32>
    %a = lm.attention %x, %kv, %kv, %cache, %batch {layer = 0, num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 1.0}
      : tensor<?x16xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>
    %b = lm.linear %a, %w0 {equant.plan = #plan, site = "grouped"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    %c = lm.gelu %b approximate tanh : tensor<?x16xf32>
    %d = lm.linear %c, %w1 {equant.plan = #plan, site = "gelu"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    %f = lm.linear %d, %w2 {equant.plan = #plan, site = "shared"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    %g = lm.add %d, %f : tensor<?x16xf32>
    %h = lm.linear %z, %w3 {equant.plan = #plan, site = "argument"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    %i = lm.add %g, %h : tensor<?x16xf32>
    %y = lm.linear %e, %head {equant.plan = #plan, site = "tied"} : (tensor<?x16xf32>, tensor<40x16xf32>) -> tensor<?x40xf32>
    return %i, %y : tensor<?x16xf32>, tensor<?x40xf32>
  }
}
