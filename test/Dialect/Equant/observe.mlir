// RUN: easyquant-opt %s --split-input-file --verify-diagnostics | FileCheck %s
// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @observed(
func.func @observed(%x: tensor<?x8xf32>) {
  // CHECK: equant.observe %{{.*}} {sites = ["q", "k"], statistics = ["absmax", "hessian"]} : tensor<?x8xf32>
  equant.observe %x {sites = ["q", "k"], statistics = ["absmax", "hessian"]} : tensor<?x8xf32>
  return
}

// -----

func.func @nobody(%x: tensor<?x8xf32>) {
  // expected-error @below {{must name the sites that read its input}}
  equant.observe %x {sites = [], statistics = ["absmax"]} : tensor<?x8xf32>
  return
}

// -----

func.func @nothing(%x: tensor<?x8xf32>) {
  // expected-error @below {{must name at least one statistic}}
  equant.observe %x {sites = ["q"], statistics = []} : tensor<?x8xf32>
  return
}

// -----

func.func @unknown(%x: tensor<?x8xf32>) {
  // expected-error @below {{has no statistic 'median'; legal are absmax}}
  equant.observe %x {sites = ["q"], statistics = ["median"]} : tensor<?x8xf32>
  return
}
