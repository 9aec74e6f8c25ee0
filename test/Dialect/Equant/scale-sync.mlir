// RUN: easyquant-opt %s -equant-insert-scale-sync | FileCheck %s
// RUN: easyquant-opt %s -equant-insert-scale-sync -equant-reduce-integers | FileCheck %s --check-prefix=INT

#channel = #equant.scheme<i8, symmetric, channel>
#token = #equant.scheme<i8, symmetric, token, dynamic>
#tensor = #equant.scheme<i8, symmetric, tensor>
#panel = #equant.layout<panel>

shard.grid @tensor_parallel(shape = 2)

// The scale of a row whose columns ranks share is that of the largest magnitude of all; sums are added before they are scaled.
// CHECK-LABEL: func.func @dynamic(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>
// CHECK: %[[OWN:.*]] = equant.token_absmax %[[X]] : tensor<?x8xf32> -> tensor<?xf32>
// CHECK: %[[ALL:.*]] = shard.all_reduce %[[OWN]] on @tensor_parallel grid_axes = [0] reduction = max : tensor<?xf32> -> tensor<?xf32>
// CHECK: equant.quantize_rows %[[X]] absmax(%[[ALL]] : tensor<?xf32>)
// INT-LABEL: func.func @dynamic(
// INT: %[[Q:.*]] = equant.quantize_rows
// INT: %[[P:.*]] = equant.packed_linear %[[Q]], %[[W:.*]] {sites = ["down_proj"]} : {{.*}} -> tensor<?x32xi32>
// INT: %[[I:.*]] = shard.all_reduce %[[P]] on @tensor_parallel grid_axes = [0] : tensor<?x32xi32> -> tensor<?x32xi32>
// INT: %[[Y:.*]] = equant.rescale %[[I]] of %[[Q]], %[[W]] {sites = ["down_proj"]}
// INT: return %[[Y]]
func.func @dynamic(%x: tensor<?x8xf32>, %c: !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x : tensor<?x8xf32> -> !equant.rows<?x8, #token, sums = 0>
  %p = equant.packed_linear %q, %c {sites = ["down_proj"]} : (!equant.rows<?x8, #token, sums = 0>, !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32>
  %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// A static scale is the same on all ranks.
// CHECK-LABEL: func.func @static(
// CHECK-NOT: token_absmax
// CHECK: return
func.func @static(%x: tensor<?x8xf32>, %c: !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x {scale = 0.5 : f32} : tensor<?x8xf32> -> !equant.rows<?x8, #tensor, sums = 0>
  %p = equant.packed_linear %q, %c {sites = ["down_proj"]} : (!equant.rows<?x8, #tensor, sums = 0>, !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32>
  %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// With sinks apart the largest magnitude of a whole row says whether it leaves the range.
// CHECK-LABEL: func.func @sinks(
// CHECK: %[[OWN:.*]] = equant.token_absmax
// CHECK: %[[ALL:.*]] = shard.all_reduce %[[OWN]] on @tensor_parallel grid_axes = [0] reduction = max
// CHECK: equant.quantize_rows %{{.*}} absmax(%[[ALL]] : tensor<?xf32>) {{.*}}scale = 5.000000e-01
// INT-LABEL: func.func @sinks(
#sinks = #equant.scheme<i8, symmetric, tensor, sinks>
func.func @sinks(%x: tensor<?x8xf32>, %c: !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x {scale = 0.5 : f32} : tensor<?x8xf32> -> !equant.rows<?x8, #sinks, sums = 0>
  %p = equant.packed_linear %q, %c {sites = ["down_proj"]} : (!equant.rows<?x8, #sinks, sums = 0>, !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32>
  %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// What no sum over ranks comes of is a rank's own.
// CHECK-LABEL: func.func @own(
// CHECK-NOT: token_absmax
// INT-LABEL: func.func @own(
// INT-NOT: rescale
func.func @own(%x: tensor<?x8xf32>, %c: !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x : tensor<?x8xf32> -> !equant.rows<?x8, #token, sums = 0>
  %y = equant.packed_linear %q, %c {sites = ["q_proj"]} : (!equant.rows<?x8, #token, sums = 0>, !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}

// Online scales are there before their step. What they go on from, the extrema of all sites, becomes that of all ranks in one call.
// INT-LABEL: func.func @online(
// CHECK-LABEL: func.func @online(
// CHECK-SAME:    %[[STATE:[a-z0-9]*]]: !lm.state<sites = 2, fields = 2>, %[[BATCH:[a-z0-9]*]]: !lm.batch
// CHECK:         equant.quantize_rows {{.*}} online
// CHECK-NOT:     sync_extrema
// CHECK:         equant.quantize_rows {{.*}} online
// CHECK-NEXT:    %[[SYNCED:.*]] = equant.sync_extrema %[[STATE]] on @tensor_parallel : <sites = 2, fields = 2>
// CHECK:         shard.all_reduce
// CHECK:         equant.advance %[[SYNCED]], %[[BATCH]]
#online = #equant.scheme<i8, symmetric, tensor, online>
func.func @online(%x: tensor<?x8xf32>, %h: tensor<?x8xf32>, %c: !equant.weight<32x8, #channel, #panel>, %state: !lm.state<sites = 2, fields = 2>, %batch: !lm.batch) -> (!equant.rows<?x8, #online, sums = 0>, tensor<?x32xf32>) {
  equant.track %x in %state {index = 0 : i64} : tensor<?x8xf32>, <sites = 2, fields = 2>
  %r = equant.online_scale %state, %batch {index = 0 : i64} : <sites = 2, fields = 2> -> tensor<?xf32>
  %k = equant.quantize_rows %x online(%r : tensor<?xf32>) : tensor<?x8xf32> -> !equant.rows<?x8, #online, sums = 0>
  equant.track %h in %state {index = 1 : i64} : tensor<?x8xf32>, <sites = 2, fields = 2>
  %o = equant.online_scale %state, %batch {index = 1 : i64} : <sites = 2, fields = 2> -> tensor<?xf32>
  %q = equant.quantize_rows %h online(%o : tensor<?xf32>) : tensor<?x8xf32> -> !equant.rows<?x8, #online, sums = 0>
  %p = equant.packed_linear %q, %c {sites = ["down_proj"]} : (!equant.rows<?x8, #online, sums = 0>, !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32>
  %y = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  equant.advance %state, %batch {decay = 0.9 : f64, window = 0 : i64} : <sites = 2, fields = 2>
  return %k, %y : !equant.rows<?x8, #online, sums = 0>, tensor<?x32xf32>
}

// A bias behind a sum of integers is added as these are scaled.
// INT-LABEL: func.func @bias(
// INT-SAME:    %[[B:[a-z0-9]*]]: tensor<32xf32>)
// INT: %[[I:.*]] = shard.all_reduce {{.*}} : tensor<?x32xi32> -> tensor<?x32xi32>
// INT: %[[Y:.*]] = equant.rescale %[[I]] of %{{.*}}, %{{.*}} bias(%[[B]])
// INT-NOT: add_bias
// INT: return %[[Y]]
// CHECK-LABEL: func.func @bias(
func.func @bias(%x: tensor<?x8xf32>, %c: !equant.weight<32x8, #channel, #panel>, %b: tensor<32xf32>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x : tensor<?x8xf32> -> !equant.rows<?x8, #token, sums = 0>
  %p = equant.packed_linear %q, %c {sites = ["down_proj"]} : (!equant.rows<?x8, #token, sums = 0>, !equant.weight<32x8, #channel, #panel>) -> tensor<?x32xf32>
  %s = shard.all_reduce %p on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  %y = equant.add_bias %s, %b : tensor<?x32xf32>, tensor<32xf32>
  return %y : tensor<?x32xf32>
}

// Experts read rows that ranks share, too; their results are weighted before the sum, which is one of floats.
// CHECK-LABEL: func.func @experts(
// CHECK: equant.token_absmax
// CHECK: shard.all_reduce {{.*}} reduction = max
// CHECK: lm.combine
// INT-LABEL: func.func @experts(
// INT-NOT: rescale
func.func @experts(%x: tensor<?x8xf32>, %c: !equant.weight<64x8, #channel, #panel>, %offsets: tensor<3xi32>, %places: tensor<?x2xi32>, %weights: tensor<?x2xf32>) -> tensor<?x32xf32> {
  %q = equant.quantize_rows %x : tensor<?x8xf32> -> !equant.rows<?x8, #token, sums = 0>
  %p = equant.packed_linear %q, %c experts(%offsets) {sites = ["down_proj"]} : (!equant.rows<?x8, #token, sums = 0>, !equant.weight<64x8, #channel, #panel>, tensor<3xi32>) -> tensor<?x32xf32>
  %y = lm.combine %p, %places, %weights : tensor<?x32xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %s = shard.all_reduce %y on @tensor_parallel grid_axes = [0] : tensor<?x32xf32> -> tensor<?x32xf32>
  return %s : tensor<?x32xf32>
}
