// RUN: easyquant-opt %s --canonicalize | FileCheck %s

// CHECK-LABEL: func.func @split_of_one(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>)
// CHECK-NEXT:    return %[[X]]
func.func @split_of_one(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = lm.split %x : tensor<?x8xf32> -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// CHECK-LABEL: func.func @split_of_split(
// CHECK-SAME:    %[[X:.*]]: tensor<?x8xf32>)
// CHECK-NEXT:    %[[S:.*]]:4 = lm.split %[[X]] : tensor<?x8xf32> -> tensor<?x1xf32>, tensor<?x2xf32>, tensor<?x3xf32>, tensor<?x2xf32>
// CHECK-NEXT:    return %[[S]]#0, %[[S]]#1, %[[S]]#2, %[[S]]#3
func.func @split_of_split(%x: tensor<?x8xf32>)
    -> (tensor<?x1xf32>, tensor<?x2xf32>, tensor<?x3xf32>, tensor<?x2xf32>) {
  %a, %bc, %d = lm.split %x : tensor<?x8xf32> -> tensor<?x1xf32>, tensor<?x5xf32>, tensor<?x2xf32>
  %b, %c = lm.split %bc : tensor<?x5xf32> -> tensor<?x2xf32>, tensor<?x3xf32>
  return %a, %b, %c, %d : tensor<?x1xf32>, tensor<?x2xf32>, tensor<?x3xf32>, tensor<?x2xf32>
}

// The slice between has another reader: both splits stay.
// CHECK-LABEL: func.func @split_of_split_with_reader(
// CHECK-COUNT-2: lm.split
func.func @split_of_split_with_reader(%x: tensor<?x8xf32>)
    -> (tensor<?x6xf32>, tensor<?x2xf32>, tensor<?x4xf32>) {
  %a, %b = lm.split %x : tensor<?x8xf32> -> tensor<?x2xf32>, tensor<?x6xf32>
  %c, %d = lm.split %b : tensor<?x6xf32> -> tensor<?x2xf32>, tensor<?x4xf32>
  return %b, %c, %d : tensor<?x6xf32>, tensor<?x2xf32>, tensor<?x4xf32>
}

// Attention writes the cache: it stays although nobody reads its result, and equal ones are not merged. What is pure goes.
// CHECK-LABEL: func.func @attention_stays(
// CHECK-NOT:     lm.add
// CHECK-COUNT-2: lm.attention
func.func @attention_stays(%x: tensor<?x8xf32>, %cache: !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>,
                           %batch: !lm.batch) {
  %dead = lm.add %x, %x : tensor<?x8xf32>
  %a = lm.attention %x, %x, %x, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64}
         : tensor<?x8xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>
  %b = lm.attention %x, %x, %x, %cache, %batch
         {layer = 0, num_heads = 2, num_kv_heads = 2, head_dim = 4, scale = 0.5 : f64}
         : tensor<?x8xf32>, tensor<?x8xf32>, !lm.kv_cache<layers = 1, kv_heads = 2, head_dim = 4>
  return
}
