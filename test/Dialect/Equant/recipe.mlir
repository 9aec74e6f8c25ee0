// RUN: rm -rf %t && mkdir %t
// RUN: echo '{"method": "gptq", "scheme": "W4A16", "head": "float", "ignore": ["skipped"], "sites": [{"match": "re:down$", "scheme": "W8A8", "method": "zeropoint", "activations": "static", "activation_basis": "plain"}, {"match": "layers.0.up", "weight_observer": "percentile", "weight_percentile": 99, "group_size": 8}, {"match": "layers.1.up", "scheme": "none"}, {"match": "layers.1.out", "method": "smoothquant+gptq", "scheme": "W8A8", "activations": "static", "activation_basis": "plain", "alpha": 0.725, "act_order": true, "damping": 0.05, "observer": "percentile"}]}' > %t/a.json
// RUN: easyquant-opt %s --equant-recipe=file=%t/a.json -o %t/out.mlir
// RUN: FileCheck %s < %t/out.mlir

// The recipe in the module says the same when it is read again.
// RUN: easyquant-opt %s --equant-recipe=file=%t/a.json | sed -n -e 's|.*equant.recipe = \(.*\)} {|\1|p' > %t/recipe.txt
// RUN: %python %S/Inputs/attribute_to_json.py %t/recipe.txt > %t/b.json
// RUN: easyquant-opt %s --equant-recipe=file=%t/b.json | diff %t/out.mlir -

// CHECK: equant.recipe = {activation_basis = "plain", activations = "dynamic", group_size = 128 : i64, head = "float", ignore = ["skipped"], method = "gptq", scheme = "W4A16", sites = [
// CHECK-SAME: {activation_basis = "plain", activations = "static", group_size = 0 : i64, match = "re:down$", method = "zeropoint", scheme = "W8A8", sinks = "keep", weight_observer = "absmax"},
// CHECK-SAME: {activation_basis = "plain", activations = "dynamic", group_size = 8 : i64, match = "layers.0.up", method = "gptq", scheme = "W4A16", weight_observer = "percentile", weight_percentile = 9.900000e+01 : f64},
// CHECK-LABEL: func.func @forward(
// CHECK: methods = ["gptq"], rule = percentile, percentile = 9.900000e+01 : f64, weight = <i4, symmetric, group = 8, scale = f16>>, site = "layers.0.up"}
// CHECK: methods = [], rule = zeropoint, weight = <i8, asymmetric, channel>, input = <i8, asymmetric, tensor, sinks>>, site = "layers.0.down"}
// CHECK: {site = "layers.1.up"}
// CHECK: methods = ["gptq"], rule = absmax, weight = <i4, symmetric, group = 128, scale = f16>>, site = "layers.1.gate"}
// CHECK: methods = ["smoothquant", "gptq"], rule = absmax, weight = <i8, symmetric, channel>, input = <i8, symmetric, tensor>,
// CHECK-SAME: options = {act_order = true, alpha = 7.250000e-01 : f64, damping = 5.000000e-02 : f64, observer = "percentile"}>, site = "layers.1.out"}
// CHECK: {site = "skipped"}
// CHECK: {site = "lm_head"}
module {
  func.func @forward(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) {
    lm.linear %x, %w {site = "layers.0.up"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    lm.linear %x, %w {site = "layers.0.down"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    lm.linear %x, %w {site = "layers.1.up"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    lm.linear %x, %w {site = "layers.1.gate"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    lm.linear %x, %w {site = "layers.1.out"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    lm.linear %x, %w {site = "skipped"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    lm.linear %x, %w {site = "lm_head"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
    return
  }
}
