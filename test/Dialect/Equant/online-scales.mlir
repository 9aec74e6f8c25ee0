// Online scales: places in the state of sequences, what reads and tracks them, and the kernels they become part of.

// RUN: easyquant-opt %s --equant-online-scales=online-decay=0.75 | FileCheck %s
// RUN: sed -e s/online-ema/online-window/ %s | easyquant-opt "--equant-online-scales=online-window=3 online-tokens=8" | FileCheck %s --check-prefix=WINDOW
// Packing by hand, for there is no model to pack.
// RUN: easyquant-opt %s --equant-online-scales --inline | sed -e "s/equant.linear/equant.packed_linear/; s/\(weight<8x8, #equant.scheme<[^>]*>\)>/\1, #equant.layout<panel>>/g" > %t.mlir
// RUN: easyquant-opt %t.mlir --equant-legalize-activations --equant-fuse-kernels | FileCheck %s --check-prefix=FUSED

// CHECK: equant.online = {decay = 7.500000e-01 : f64, start = [5.000000e-01, 2.500000e-01], tokens = 32 : i64, window = 0 : i64}
// CHECK: online_decay = 7.500000e-01 : f64
// WINDOW: equant.online = {{.*}}tokens = 8 : i64, window = 3 : i64
// WINDOW: equant.advance %{{.*}} {decay = 9.000000e-01 : f64, window = 3 : i64} : <sites = 2, fields = 5>

// Linears that read the same activations, with the same start, share a place.
// CHECK-LABEL: func.func private @layer_0(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>, %[[BATCH:.*]]: !lm.batch, %{{.*}}, %[[STATE:.*]]: !lm.state<sites = 2, fields = 2>)
// CHECK:         equant.track %[[X]] in %[[STATE]] {index = 0 : i64} : tensor<?x8xf32>, <sites = 2, fields = 2>
// CHECK-NEXT:    %[[S:.*]] = equant.online_scale %[[STATE]], %[[BATCH]] {index = 0 : i64} : <sites = 2, fields = 2> -> tensor<?xf32>
// CHECK-NEXT:    equant.linear %[[X]], %{{.*}} online(%[[S]]) {input_scheme = #equant.scheme<i8, symmetric, tensor, online>, sites = ["gate"]
// CHECK-NOT:     equant.track
// CHECK:         equant.linear %[[X]], %{{.*}} online(%[[S]]) {{.*}}sites = ["up"]
// CHECK:         %[[H:.*]] = lm.glu
// CHECK:         equant.track %[[H]] in %[[STATE]] {index = 1 : i64}

// Behind lm.rows scales are per token; all sites advance at the end.
// CHECK-LABEL: func.func @forward(
// CHECK-SAME:    %[[S:[a-z0-9]*]]: !lm.state<sites = 2, fields = 2>)
// CHECK:         %[[Y:.*]] = call @layer_0(%{{.*}}, %[[S]])
// CHECK:         lm.rows
// CHECK:         equant.linear {{.*}}{input_scheme = #equant.scheme<i8, symmetric, token, dynamic>, sites = ["last"]
// CHECK:         equant.advance %[[S]], %{{.*}} {decay = 7.500000e-01 : f64, window = 0 : i64} : <sites = 2, fields = 2>
// CHECK-NEXT:    return

// FUSED-LABEL: func.func @forward(
// FUSED:         equant.fusion {
// FUSED-NEXT:      %[[S:.*]] = equant.online_scale %{{.*}} {index = 0 : i64}
// FUSED-NEXT:      equant.track %{{.*}} {index = 0 : i64}
// FUSED-NEXT:      equant.quantize_rows %{{.*}} online(%[[S]] : tensor<?xf32>) : {{.*}} -> !equant.rows<?x8, #equant.scheme<i8, symmetric, tensor, online>, sums = 0>
// FUSED:         equant.fusion {
// FUSED-NEXT:      lm.glu
// FUSED-NEXT:      equant.online_scale %{{.*}} {index = 1 : i64}
// FUSED-NEXT:      equant.track
// FUSED-NEXT:      equant.quantize_rows
#online = #equant.scheme<i8, symmetric, tensor, online>
#w = #equant.scheme<i8, symmetric, channel>
module attributes {equant.recipe = {activation_basis = "plain", activations = "online-ema"}} {
  func.func private @layer_0(%x: tensor<?x8xf32>, %batch: !lm.batch, %c: !equant.weight<8x8, #w>) -> tensor<?x8xf32> {
    %g = equant.linear %x, %c {sites = ["gate"], input_scheme = #online, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
    %u = equant.linear %x, %c {sites = ["up"], input_scheme = #online, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
    %h = lm.glu silu %g, %u : tensor<?x8xf32>
    %d = equant.linear %h, %c {sites = ["down"], input_scheme = #online, input_scale = 0.25 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
    return %d : tensor<?x8xf32>
  }
  func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %rows: tensor<?xi32>, %c: !equant.weight<8x8, #w>) -> tensor<?x8xf32> {
    %y = call @layer_0(%x, %batch, %c) : (tensor<?x8xf32>, !lm.batch, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
    %r = lm.rows %y at %rows : tensor<?x8xf32>, tensor<?xi32>
    %z = equant.linear %r, %c {sites = ["last"], input_scheme = #online, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
    return %z : tensor<?x8xf32>
  }
}
