// RUN: easyquant-opt %s | easyquant-opt | FileCheck %s
// RUN: easyquant-opt %s --equant-fuse-kernels=target=cpu | FileCheck %s --check-prefix=FUSED
// RUN: not easyquant-opt %s --equant-shard=degree=2 2>&1 | FileCheck %s --check-prefix=SHARD

!x = tensor<?x64xf32>
!rows = !equant.rows<?x64, #equant.scheme<i8, symmetric, token, dynamic>, sums = 0>

ml_program.global private @order(#ml_program.extern<tensor<64xi32>>) : tensor<64xi32>
ml_program.global private @up.weight(#ml_program.extern<tensor<64x64xf32>>) : tensor<64x64xf32>
ml_program.global private @down.weight(#ml_program.extern<tensor<64x64xf32>>) : tensor<64x64xf32>

// CHECK-LABEL: func.func @rows
// CHECK: equant.gather_columns %{{.*}} by %{{.*}} : tensor<?x64xf32>, tensor<64xi32>
// What makes the codes gathers.
// FUSED-LABEL: func.func @rows
// FUSED:       equant.fusion {
// FUSED-NEXT:    equant.gather_columns
// FUSED-NEXT:    equant.quantize_rows
func.func @rows(%x: !x) -> !rows {
  %order = ml_program.global_load_const @order : tensor<64xi32>
  %g = equant.gather_columns %x by %order : !x, tensor<64xi32>
  %q = equant.quantize_rows %g : !x -> !rows
  return %q : !rows
}

// SHARD: error: site 'down' reads columns in the order of its groups (act-order without static groups), which ranks would have apart; compile it for one rank, or give a scheme that quantizes anew
func.func @forward(%x: !x) -> !x {
  %order = ml_program.global_load_const @order : tensor<64xi32>
  %u = ml_program.global_load_const @up.weight : tensor<64x64xf32>
  %d = ml_program.global_load_const @down.weight : tensor<64x64xf32>
  %h = lm.linear %x, %u {site = "up"} : (!x, tensor<64x64xf32>) -> !x
  %g = equant.gather_columns %h by %order : !x, tensor<64xi32>
  %y = lm.linear %g, %d {site = "down"} : (!x, tensor<64x64xf32>) -> !x
  %z = lm.add %x, %y : !x
  return %z : !x
}
