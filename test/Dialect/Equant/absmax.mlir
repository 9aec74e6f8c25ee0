// RUN: easyquant-opt %s --equant-absmax=scheme=W8A8 | FileCheck %s --check-prefixes=CHECK,W8A8
// RUN: easyquant-opt %s --equant-absmax=scheme=W8A16 | FileCheck %s --check-prefixes=CHECK,W8A16
// RUN: easyquant-opt %s --equant-absmax=scheme=W4A16 | FileCheck %s --check-prefixes=CHECK,W4A16
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 group-size=32" | FileCheck %s --check-prefixes=CHECK,W4A8
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A16 group-size=48" | FileCheck %s --check-prefixes=CHECK,G48
// RUN: easyquant-opt %s --equant-absmax=scheme=none | FileCheck %s --check-prefixes=CHECK,NONE

// W8A8:  module attributes {equant.recipe = {group_size = 0 : i64, head = "int8", ignore = [], method = "absmax", scheme = "W8A8", targets = []}}
// W4A16: module attributes {equant.recipe = {group_size = 128 : i64, head = "int8", ignore = [], method = "absmax", scheme = "W4A16", targets = []}}
// W4A8:  module attributes {equant.recipe = {group_size = 32 : i64,
// NONE:  module attributes {equant.recipe = {group_size = 0 : i64, head = "float", ignore = [], method = "absmax", scheme = "none", targets = []}}
module {
  ml_program.global private @up.weight(#ml_program.extern : tensor<16x100xf32>) : tensor<16x100xf32>

  // CHECK-LABEL: func.func @site(
  // CHECK-SAME:    %[[X:[^:]*]]: tensor<?x100xf32>, %[[B:[^:]*]]: tensor<16xf32>)
  func.func @site(%x: tensor<?x100xf32>, %b: tensor<16xf32>) -> tensor<?x16xf32> {
    // CHECK: %[[W:.*]] = ml_program.global_load_const @up.weight
    %w = ml_program.global_load_const @up.weight : tensor<16x100xf32>

    // W8A8: %[[S:.*]] = equant.choose_qparams %[[W]] rule absmax {scheme = #equant.scheme<i8, symmetric, channel>} : (tensor<16x100xf32>) -> tensor<16x1xf32>
    // W8A8: %[[Q:.*]] = equant.quantize %[[W]] scale(%[[S]]) {scheme = #equant.scheme<i8, symmetric, channel>} : (tensor<16x100xf32>, tensor<16x1xf32>) -> tensor<16x100xi8>
    // W8A8: %[[Y:.*]] = equant.linear %[[X]], %[[Q]] scale(%[[S]]) bias(%[[B]])
    // W8A8-SAME: {input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["up"], weight_scheme = #equant.scheme<i8, symmetric, channel>}
    // W8A8-NOT: lm.linear

    // W8A16: equant.linear %[[X]], %{{.*}} scale(%{{.*}}) bias(%[[B]]) {sites = ["up"], weight_scheme = #equant.scheme<i8, symmetric, channel>}

    // W4A16: %[[S:.*]] = equant.choose_qparams %[[W]] rule absmax {scheme = #equant.scheme<i4, symmetric, group = 128>} : (tensor<16x100xf32>) -> tensor<16x1xf32>
    // W4A16: equant.linear %[[X]], %{{.*}} scale(%[[S]]) bias(%[[B]]) {sites = ["up"], weight_scheme = #equant.scheme<i4, symmetric, group = 128>}
    // W4A16-SAME: (tensor<?x100xf32>, tensor<16x100xi4>, tensor<16x1xf32>, tensor<16xf32>)

    // W4A8: %[[S:.*]] = equant.choose_qparams %[[W]] rule absmax {scheme = #equant.scheme<i4, symmetric, group = 32>} : (tensor<16x100xf32>) -> tensor<16x4xf32>
    // W4A8: input_scheme = #equant.scheme<i8, symmetric, token, dynamic>

    // G48: equant.choose_qparams %[[W]] rule absmax {scheme = #equant.scheme<i8, symmetric, group = 48>} : (tensor<16x100xf32>) -> tensor<16x3xf32>

    // NONE: lm.linear %[[X]], %[[W]] bias(%[[B]]) {site = "up"}
    %y = lm.linear %x, %w bias(%b) {site = "up"} : (tensor<?x100xf32>, tensor<16x100xf32>, tensor<16xf32>) -> tensor<?x16xf32>
    // W8A8: return %[[Y]]
    return %y : tensor<?x16xf32>
  }
}
