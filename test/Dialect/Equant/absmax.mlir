// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,W8A8
// RUN: easyquant-opt %s --equant-absmax=scheme=W8A16 | FileCheck %s --check-prefixes=CHECK,W8A16
// RUN: easyquant-opt %s --equant-absmax=scheme=W4A16 | FileCheck %s --check-prefixes=CHECK,W4A16
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 group-size=32 activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,W4A8
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A16 group-size=48" | FileCheck %s --check-prefixes=CHECK,G48
// RUN: easyquant-opt %s "--equant-absmax=scheme=W3A16" | FileCheck %s --check-prefixes=CHECK,W3A16
// RUN: easyquant-opt %s "--equant-absmax=scheme=W2A16 group-size=0 methods=smoothquant,gptq" | FileCheck %s --check-prefixes=CHECK,W2A16
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activations=static activation-basis=plain weight-observer=mse" | FileCheck %s --check-prefixes=CHECK,STATIC
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activations=online-ema sinks=none activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,NOSINKS
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A8 activations=static observer=mse activation-basis=plain" | FileCheck %s --check-prefixes=CHECK,MSE
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A16 weight-observer=percentile weight-percentile=99.5" | FileCheck %s --check-prefixes=CHECK,PERCENTILE
// RUN: easyquant-opt %s --equant-absmax=scheme=none | FileCheck %s --check-prefixes=CHECK,NONE

// W8A8:  module attributes {equant.recipe = {activation_basis = "plain", activations = "dynamic", group_size = 0 : i64, head = "int8", ignore = [], method = "absmax", scheme = "W8A8", targets = [], weight_observer = "absmax"}}
// W4A16: module attributes {equant.recipe = {activation_basis = "plain", activations = "dynamic", group_size = 128 : i64, head = "int8", ignore = [], method = "absmax", scheme = "W4A16", targets = [], weight_observer = "absmax"}}
// W4A8:  module attributes {equant.recipe = {activation_basis = "plain", activations = "dynamic", group_size = 32 : i64,
// W2A16: group_size = 0 : i64, head = "int8", ignore = [], method = "smoothquant+gptq", scheme = "W2A16",
// PERCENTILE: method = "absmax", scheme = "W4A16", targets = [], weight_observer = "percentile", weight_percentile = 9.950000e+01 : f64
// NONE:  module attributes {equant.recipe = {activation_basis = "plain", activations = "dynamic", group_size = 0 : i64, head = "float", ignore = [], method = "absmax", scheme = "none", targets = [], weight_observer = "absmax"}}
module {
  // CHECK-LABEL: func.func @site(
  func.func @site(%x: tensor<?x100xf32>, %w: tensor<16x100xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
    // CHECK: lm.linear
    // W8A8-SAME: {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, input = <i8, symmetric, token, dynamic>>, site = "up"}
    // W8A16-SAME: {equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>>, site = "up"}
    // W4A16-SAME: weight = <i4, symmetric, group = 128, scale = f16>>, site = "up"}
    // W4A8-SAME: weight = <i4, symmetric, group = 32, scale = f16>, input = <i8, symmetric, token, dynamic>>, site = "up"}
    // G48-SAME: weight = <i8, symmetric, group = 48, scale = f16>>, site = "up"}
    // W3A16-SAME: weight = <i3, symmetric, group = 128, scale = f16>>, site = "up"}
    // W2A16-SAME: methods = ["smoothquant", "gptq"], rule = absmax, weight = <i2, symmetric, channel>>, site = "up"}
    // STATIC-SAME: rule = mse, weight = <i8, symmetric, channel>, input = <i8, symmetric, tensor, sinks>>, site = "up"}
    // NOSINKS-SAME: input = <i8, symmetric, tensor, online>>, site = "up"}
    // MSE-SAME: input = <i8, symmetric, tensor>>, site = "up"}
    // PERCENTILE-SAME: rule = percentile, percentile = 9.950000e+01 : f64, weight = <i4, symmetric, group = 128, scale = f16>>, site = "up"}
    // NONE-SAME: bias(%{{[^)]*}}) {site = "up"}
    %y = lm.linear %x, %w bias(%b) {site = "up"} : (tensor<?x100xf32>, tensor<16x100xf32>, tensor<16xf32>) -> tensor<?x16xf32>
    return %y : tensor<?x16xf32>
  }
}
