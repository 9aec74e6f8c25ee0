// RUN: not easyquant-opt %s -equant-insert-scale-sync 2>&1 | FileCheck %s
// CHECK: error: 'equant.quantize_rows' op keeps sinks apart in a range that is not around 0, of rows that ranks share, which has no call; take a symmetric scheme or sinks none

#sinks = #equant.scheme<i8, symmetric, full, tensor, sinks>

shard.grid @tensor_parallel(shape = 2)

func.func @shared(%x: tensor<?x8xf32>, %c: tensor<1x2x32x4xi8>, %w: tensor<1x1x32xf32>) -> tensor<?x32xf32> {
  %q, %s, %t = equant.quantize_rows %x {scheme = #sinks, group = 0 : i64, scale = 0.5 : f32} : tensor<?x8xf32> -> tensor<?x8xi8>, tensor<?xf32>, tensor<?x1xi32>
  %p = equant.linear %q, %c scale(%w) row_scales(%s) row_sums(%t)
    {sites = ["down_proj"], weight_scheme = #equant.scheme<i8, symmetric, channel>, input_scheme = #sinks, layout = #equant.layout<panel, rows = 32, depth = 4>}
    : (tensor<?x8xi8>, tensor<1x2x32x4xi8>, tensor<1x1x32xf32>, tensor<?xf32>, tensor<?x1xi32>) -> tensor<?x32xf32>
  %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
