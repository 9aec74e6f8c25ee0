// Ops say themselves what takes a factor on the columns of their results: here a linear that a linear reads at once, and one
// behind a choice of rows and the ungated side of a product.

// RUN: rm -rf %t && mkdir -p %t/float && %python %S/../../Inputs/make_checkpoint.py %t/model --arch llama
// RUN: easyquant-translate --import-hf %t/model | easyquant-opt --equant-materialize-weights=output=%t/float -o %t/float.mlir
// RUN: %python %S/Inputs/statistics_file.py %t/statistics.safetensors %t/float.mlir second=16 down=24 other=16
// RUN: sed -e "s|MODEL|%t/model|; s|WORK|%t/work|" %s > %t/in.mlir
// RUN: easyquant-opt %t/in.mlir --equant-smooth-quant=statistics=%t/statistics.safetensors | FileCheck %s

#plan = #equant.plan<methods = ["smoothquant"], rule = absmax, weight = <i8, symmetric, channel>>

// CHECK:      equant.transforms = [
// CHECK-SAME:   {method = "smoothquant", sites = ["other"], skipped = "its input is made by lm.glu of what others read too"},
// CHECK-SAME:   {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["second"]},
// CHECK-SAME:   {alpha = 5.000000e-01 : f64, method = "smoothquant", sites = ["down"]}]
module attributes {lm.source = "MODEL", equant.work = "WORK"} {
  ml_program.global private @model.layers.0.self_attn.q_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.self_attn.o_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.1.self_attn.o_proj.weight(#ml_program.extern : tensor<16x16xf32>) : tensor<16x16xf32>
  ml_program.global private @model.layers.0.mlp.gate_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.up_proj.weight(#ml_program.extern : tensor<24x16xf32>) : tensor<24x16xf32>
  ml_program.global private @model.layers.0.mlp.down_proj.weight(#ml_program.extern : tensor<16x24xf32>) : tensor<16x24xf32>

  // CHECK-LABEL: func.func @chain(
  func.func @chain(%x: tensor<?x16xf32>, %rows: tensor<?xi32>) -> tensor<?x16xf32> {
    %w0 = ml_program.global_load_const @model.layers.0.self_attn.q_proj.weight : tensor<16x16xf32>
    %w1 = ml_program.global_load_const @model.layers.0.self_attn.o_proj.weight : tensor<16x16xf32>
    %wg = ml_program.global_load_const @model.layers.0.mlp.gate_proj.weight : tensor<24x16xf32>
    %wu = ml_program.global_load_const @model.layers.0.mlp.up_proj.weight : tensor<24x16xf32>
    %wd = ml_program.global_load_const @model.layers.0.mlp.down_proj.weight : tensor<16x24xf32>
    // CHECK: %[[W0:.*]] = equant.scale %{{.*}} by %{{.*}} {axis = 0 : i64, divide} : tensor<16x16xf32>
    // CHECK: lm.linear %{{.*}}, %[[W0]] {site = "first"}
    %a = lm.linear %x, %w0 {site = "first"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    // CHECK: %[[W1:.*]] = equant.scale %{{.*}} by %{{.*}} {axis = 1 : i64} : tensor<16x16xf32>
    // CHECK: lm.linear %{{.*}}, %[[W1]] {{.*}} site = "second"}
    %b = lm.linear %a, %w1 {equant.plan = #plan, site = "second"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    // CHECK: lm.linear %{{.*}}, %{{.*}} {site = "gate"}
    %gate = lm.linear %b, %wg {site = "gate"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    // CHECK: %[[WU:.*]] = equant.scale %{{.*}} by %{{.*}} {axis = 0 : i64, divide} : tensor<24x16xf32>
    // CHECK: lm.linear %{{.*}}, %[[WU]] {site = "up"}
    %up = lm.linear %b, %wu {site = "up"} : (tensor<?x16xf32>, tensor<24x16xf32>) -> tensor<?x24xf32>
    %g = lm.rows %gate at %rows : tensor<?x24xf32>, tensor<?xi32>
    %u = lm.rows %up at %rows : tensor<?x24xf32>, tensor<?xi32>
    %h = lm.glu silu %g, %u : tensor<?x24xf32>
    %d = lm.linear %h, %wd {equant.plan = #plan, site = "down"} : (tensor<?x24xf32>, tensor<16x24xf32>) -> tensor<?x16xf32>
    return %d : tensor<?x16xf32>
  }

  func.func @left(%x: tensor<?x16xf32>) -> (tensor<?x16xf32>, tensor<?x16xf32>) {
    %w = ml_program.global_load_const @model.layers.1.self_attn.o_proj.weight : tensor<16x16xf32>
    %h = lm.glu silu %x, %x : tensor<?x16xf32>
    %y = lm.linear %h, %w {equant.plan = #plan, site = "other"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return %x, %y : tensor<?x16xf32>, tensor<?x16xf32>
  }
}
