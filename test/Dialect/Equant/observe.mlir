// RUN: easyquant-opt %s --split-input-file --verify-diagnostics | FileCheck %s
// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --canonicalize --cse | FileCheck %s

// CHECK-LABEL: func.func @observed(
func.func @observed(%x: tensor<?x8xf32>) {
  // CHECK: equant.observe %{{.*}} {sites = ["q", "k"], statistics = ["absmax", "hessian"]} : tensor<?x8xf32>
  equant.observe %x {sites = ["q", "k"], statistics = ["absmax", "hessian"]} : tensor<?x8xf32>
  return
}

// -----

// CHECK-LABEL: func.func @experts(
func.func @experts(%x: tensor<?x8xf32>, %order: tensor<?xi32>, %offsets: tensor<5xi32>) {
  // CHECK: equant.observe %{{.*}} experts(%{{.*}}, %{{.*}}) {sites = ["up"], statistics = ["absmax"]} : tensor<?x8xf32>, tensor<?xi32>, tensor<5xi32>
  equant.observe %x experts(%order, %offsets) {sites = ["up"], statistics = ["absmax"]} : tensor<?x8xf32>, tensor<?xi32>, tensor<5xi32>
  return
}

// -----

func.func @positions(%x: tensor<?x8xf32>, %order: tensor<?xi32>, %offsets: tensor<5xi32>) {
  // expected-error @below {{asks for 'sinks' of experts, whose rows do not follow each other in a text}}
  equant.observe %x experts(%order, %offsets) {sites = ["up"], statistics = ["absmax", "sinks"]} : tensor<?x8xf32>, tensor<?xi32>, tensor<5xi32>
  return
}

// -----

func.func @order_alone(%x: tensor<?x8xf32>, %order: tensor<?xi32>) {
  // expected-error @below {{of experts takes the order of their rows and where those of each begin}}
  "equant.observe"(%x, %order) <{operandSegmentSizes = array<i32: 1, 1, 0>, sites = ["up"], statistics = ["absmax"]}> : (tensor<?x8xf32>, tensor<?xi32>) -> ()
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
