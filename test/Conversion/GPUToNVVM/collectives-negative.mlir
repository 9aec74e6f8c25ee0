// What ranks exchange has no launch on a GPU.

// RUN: not easyquant-opt %s --easyquant-launches=target=sm_80 2>&1 | FileCheck %s

// CHECK: error: 'shard.all_reduce' op is for several ranks, which share models on CPUs so far

shard.grid @tensor_parallel(shape = 2)

func.func @shared_rows(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %y = lm.gelu %x approximate tanh : tensor<?x64xf32>
  %z = shard.all_reduce %y on @tensor_parallel grid_axes = [0] : tensor<?x64xf32> -> tensor<?x64xf32>
  return %z : tensor<?x64xf32>
}
