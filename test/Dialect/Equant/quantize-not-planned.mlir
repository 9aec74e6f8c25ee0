// A module whose sites nobody has planned stays as it is, which is said; one whose recipe leaves all of it float was asked for.
// RUN: easyquant-opt %s --equant-quantize 2>&1 | FileCheck %s --check-prefixes=CHECK,MISSING
// RUN: easyquant-opt %s --equant-absmax=scheme=none --equant-quantize 2>&1 | FileCheck %s --implicit-check-not=warning

// MISSING: warning: equant-quantize: nothing to do: expected a site with an equant.plan (a plan pass before this one, such as equant-absmax); found 1 quantizable ops (lm.linear, and linalg ops that equant-name-sites has named), 0 of them with a plan
// CHECK-LABEL: func.func @f(
// CHECK: lm.linear
func.func @f(%x: tensor<?x8xf32>, %w: tensor<16x8xf32>) -> tensor<?x16xf32> {
  %y = lm.linear %x, %w {site = "up"} : (tensor<?x8xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  return %y : tensor<?x16xf32>
}
