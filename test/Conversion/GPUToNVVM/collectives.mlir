// What ranks exchange, between the launches of a GPU: what of a token's row another rank has is zero, and the logits of a rank lie behind
// those of the ranks before it.

// RUN: easyquant-opt %s --easyquant-launches=target=sm_80 | FileCheck %s

// CHECK-LABEL: func.func @forward(
// CHECK-SAME: %[[LOGITS:[a-z0-9]+]]: memref<?x96xf32> {launch.argument = "logits"}
// CHECK-SAME: %[[RANK:[a-z0-9]+]]: index {launch.argument = "rank"}
// CHECK: %[[ROWS:.*]] = memref.dim
// CHECK: %[[X:.*]] = launch.buffer(%[[ROWS]]) {{.*}}memref<?x64xf32>
// CHECK: launch.kernel other @kernels::@embedding_48x64_sharded_bf16_fragments({{.*}}%[[RANK]], %[[X]]
// CHECK: launch.collective 0 all_reduce sum(%[[X]]) {site = {{.*}}} : memref<?x64xf32>
// CHECK: launch.wait 0(%[[X]])
// CHECK: launch.kernel {{[a-z]+}} @kernels::@gelu_tanh
// CHECK: %[[OWN:.*]] = memref.reinterpret_cast %[[LOGITS]] to offset: [%{{.*}}], sizes: [%[[ROWS]], 48], strides: [48, 1]
// CHECK: launch.kernel {{[a-z]+}} @kernels::@linear_48x64_bf16_bf16_f32_stream_1({{.*}}%[[OWN]], {{.*}}writes = array<i64: 3>
// CHECK: launch.collective 1 all_gather(%[[LOGITS]]) {site = {{.*}}} : memref<?x96xf32>
// CHECK: launch.wait 1(%[[LOGITS]])
shard.grid @tensor_parallel(shape = 2)

func.func @forward(%tokens: tensor<?xi32>, %table: tensor<48x64xf32>, %head: tensor<48x64xf32>) -> tensor<?x96xf32> {
  %part = lm.embedding %tokens, %table {sharded} : tensor<?xi32>, tensor<48x64xf32> -> tensor<?x64xf32>
  %x = shard.all_reduce %part on @tensor_parallel grid_axes = [0] : tensor<?x64xf32> -> tensor<?x64xf32>
  %y = lm.gelu %x approximate tanh : tensor<?x64xf32>
  %b = arith.truncf %y : tensor<?x64xf32> to tensor<?x64xbf16>
  %own = lm.linear %b, %head {site = "lm_head"} : (tensor<?x64xbf16>, tensor<48x64xf32>) -> tensor<?x48xf32>
  %logits = shard.all_gather %own on @tensor_parallel grid_axes = [0] gather_axis = 1 : tensor<?x48xf32> -> tensor<?x96xf32>
  return %logits : tensor<?x96xf32>
}
