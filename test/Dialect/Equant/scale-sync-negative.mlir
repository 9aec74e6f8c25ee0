// RUN: not easyquant-opt %s -equant-insert-scale-sync 2>&1 | FileCheck %s
// CHECK: error: 'equant.quantize_rows' op keeps sinks apart in a range that is not around 0, of rows that ranks share, which has no call; take a symmetric scheme or sinks none

#sinks = #equant.scheme<i8, symmetric, full, tensor, sinks>

shard.grid @tensor_parallel(shape = 2)

func.func @shared(%x: tensor<?x8xf32>, %c: !equant.weight<32x8, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x {scale = 0.5 : f32} : tensor<?x8xf32> -> !equant.rows<?x8, #sinks, sums = 0>
  %p = equant.packed_linear %q, %c {sites = ["down_proj"]} : (!equant.rows<?x8, #sinks, sums = 0>, !equant.weight<32x8, #equant.scheme<i8, symmetric, channel>, #equant.layout<panel>>) -> tensor<?x32xf32>
  %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
