// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --equant-rotate | FileCheck %s --check-prefix=ROTATE

!x = tensor<?x576xf32>

// CHECK-LABEL: func.func @ops
func.func @ops(%x: !x, %w: tensor<64x576xf32>) -> (!x, tensor<64x576xf32>) {
  // CHECK: equant.hadamard %{{.*}} {block = 64 : i64} : tensor<?x576xf32>
  %r = equant.hadamard %x {block = 64 : i64} : !x
  // CHECK: equant.hadamard %{{.*}} {block = 32 : i64} : tensor<64x576xf32>
  %v = equant.hadamard %w {block = 32 : i64} : tensor<64x576xf32>
  return %r, %v : !x, tensor<64x576xf32>
}

// CHECK-LABEL: func.func @rows
func.func @rows(%w: tensor<64x576xf32>, %b: tensor<64xf32>) -> (tensor<64x576xf32>, tensor<64xf32>) {
  // CHECK: equant.hadamard %{{.*}} {axis = 0 : i64, block = 64 : i64} : tensor<64x576xf32>
  %v = equant.hadamard %w {axis = 0 : i64, block = 64 : i64} : tensor<64x576xf32>
  // CHECK: equant.hadamard %{{.*}} {axis = 0 : i64, block = 32 : i64} : tensor<64xf32>
  %c = equant.hadamard %b {axis = 0 : i64, block = 32 : i64} : tensor<64xf32>
  return %v, %c : tensor<64x576xf32>, tensor<64xf32>
}

// CHECK: #equant.scheme<i8, symmetric, token, dynamic, hadamard = 64>
func.func private @scheme() attributes {a = #equant.scheme<i8, symmetric, token, dynamic, hadamard = 64>,
// CHECK-SAME: #equant.scheme<i4, asymmetric, group = 64, hadamard = 512, scale = f16>
  b = #equant.scheme<i4, asymmetric, group = 64, hadamard = 512, scale = f16>}

#rotated = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel, hadamard = 64>,
                        input = <i8, symmetric, token, dynamic, hadamard = 64>>
#plain = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>>

ml_program.global private @table(#ml_program.extern : tensor<97x576xf32>) : tensor<97x576xf32>
ml_program.global private @up(#ml_program.extern : tensor<64x576xf32>) : tensor<64x576xf32>

// Sites that read one input share it; the others read it as it is. A tied table is rotated, and its rows are rotated back.
// ROTATE-LABEL: func.func @model(
// ROTATE: %[[TABLE:.*]] = ml_program.global_load_const @table
// ROTATE: %[[ROTATED:.*]] = equant.hadamard %[[TABLE]] {block = 64 : i64} : tensor<97x576xf32>
// ROTATE: %[[ROWS:.*]] = lm.embedding %{{.*}}, %[[ROTATED]]
// ROTATE: %[[X:.*]] = equant.hadamard %[[ROWS]] {block = 64 : i64} : tensor<?x576xf32>
// ROTATE: %[[R:.*]] = equant.hadamard %[[X]] {block = 64 : i64} : tensor<?x576xf32>
// ROTATE: lm.linear %[[R]], %{{.*}}site = "up"
// ROTATE: lm.linear %[[X]], %{{.*}}site = "gate"
// ROTATE: lm.linear %[[R]], %{{.*}}site = "lm_head"
func.func @model(%tokens: tensor<?xi32>) -> (tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x97xf32>) {
  %table = ml_program.global_load_const @table : tensor<97x576xf32>
  %up = ml_program.global_load_const @up : tensor<64x576xf32>
  %x = lm.embedding %tokens, %table : tensor<?xi32>, tensor<97x576xf32> -> tensor<?x576xf32>
  %a = lm.linear %x, %up {equant.plan = #rotated, site = "up"} : (!x, tensor<64x576xf32>) -> tensor<?x64xf32>
  %b = lm.linear %x, %up {equant.plan = #plain, site = "gate"} : (!x, tensor<64x576xf32>) -> tensor<?x64xf32>
  %c = lm.linear %x, %table {equant.plan = #rotated, site = "lm_head"} : (!x, tensor<97x576xf32>) -> tensor<?x97xf32>
  return %a, %b, %c : tensor<?x64xf32>, tensor<?x64xf32>, tensor<?x97xf32>
}
