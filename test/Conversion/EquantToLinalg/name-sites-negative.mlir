// RUN: easyquant-opt %s --pass-pipeline='builtin.module(equant-name-sites,equant-absmax{scheme=W8A8},equant-quantize,equant-evaluate-constants)' --split-input-file --verify-diagnostics

func.func @dynamic(%x: tensor<1x4xf32>, %w: tensor<4x2xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  // expected-error @below {{is site 'up', but it has no weight: its factors are an argument and an argument; expected dense<>, dense_resource<>, an immutable ml_program.global or #flow.parameter.named as one of them, behind linalg.transpose, linalg.broadcast and changes of shape at most; else leave equant.site out}}
  %0 = linalg.matmul {equant.site = "up"} ins(%x, %w : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @computed(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = arith.constant dense<0.5> : tensor<4x2xf32>
  %w = math.exp %c : tensor<4x2xf32>
  // expected-error @below {{its factors are an argument and the result of math.exp}}
  %0 = linalg.matmul {equant.site = "up"} ins(%x, %w : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @twice(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> (tensor<1x2xf32>, tensor<1x2xf32>) {
  %c = arith.constant dense<0.5> : tensor<4x2xf32>
  // expected-note @below {{the other is here}}
  %0 = linalg.matmul {equant.site = "up"} ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  // expected-error @below {{has the name of another site, 'up'; give one of them another equant.site}}
  %1 = linalg.matmul {equant.site = "up"} ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0, %1 : tensor<1x2xf32>, tensor<1x2xf32>
}

// -----

func.func @double(%x: tensor<1x4xf64>, %i: tensor<1x2xf64>) -> tensor<1x2xf64> {
  %c = arith.constant dense<0.5> : tensor<4x2xf64>
  // expected-error @below {{is site 'up', but it computes with tensor<1x4xf64>; expected tensors of f32, f16 or bf16}}
  %0 = linalg.matmul {equant.site = "up"} ins(%x, %c : tensor<1x4xf64>, tensor<4x2xf64>) outs(%i : tensor<1x2xf64>) -> tensor<1x2xf64>
  return %0 : tensor<1x2xf64>
}

// -----

func.func @no_rows(%x: tensor<2x5xf32>, %i: tensor<2xf32>) -> tensor<2xf32> {
  %c = arith.constant dense<0.5> : tensor<2x5xf32>
  // expected-error @below {{is site 'a', but it multiplies channel by channel; expected a weight of output by input features}}
  %0 = linalg.contract indexing_maps = [affine_map<(c, k) -> (c, k)>, affine_map<(c, k) -> (c, k)>, affine_map<(c, k) -> (c)>] {equant.site = "a"}
         ins(%x, %c : tensor<2x5xf32>, tensor<2x5xf32>) outs(%i : tensor<2xf32>) -> tensor<2xf32>
  return %0 : tensor<2xf32>
}

// -----

func.func @named() {
  // expected-error @below {{equant.site is the name of a quantizable op of another dialect, on ranked tensors; found "a"}}
  %0 = arith.constant {equant.site = "a"} 1 : i32
  return
}

// -----

func.func @unnamed(%x: memref<1x4xf32>, %w: memref<4x2xf32>, %i: memref<1x2xf32>) {
  // expected-error @below {{equant.site is the name of a quantizable op of another dialect, on ranked tensors; found "a"}}
  linalg.matmul {equant.site = "a"} ins(%x, %w : memref<1x4xf32>, memref<4x2xf32>) outs(%i : memref<1x2xf32>)
  return
}

// -----

func.func @method(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = arith.constant dense<0.5> : tensor<4x2xf32>
  // expected-error @below {{methods that calibrate, rotated bases and online scales belong to models of lm}}
  %0 = linalg.matmul {equant.site = "up", equant.plan = #equant.plan<methods = ["gptq"], rule = absmax, weight = <i8, symmetric, channel>>}
         ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @missing(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = arith.constant dense_resource<gone> : tensor<4x2xf32>
  // expected-error @below {{of a constant: dense_resource<gone> has no data in the module; expected it among the dialect_resources at its end}}
  %0 = linalg.matmul ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @infinite(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = arith.constant dense<[[0.5, 1.0], [0.5, 0x7F800000], [0.5, 1.0], [0.5, 1.0]]> : tensor<4x2xf32>
  // expected-error @below {{of a constant: }}
  %0 = linalg.matmul ins(%x, %c : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}

// -----

func.func @short(%x: tensor<1x4xf32>, %i: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %c = arith.constant dense_resource<short> : tensor<4x2xf16>
  %w = arith.extf %c : tensor<4x2xf16> to tensor<4x2xf32>
  // expected-error @below {{of a constant: dense_resource<short> has 4 bytes, but 8 elements of 16 bits are 16}}
  %0 = linalg.matmul ins(%x, %w : tensor<1x4xf32>, tensor<4x2xf32>) outs(%i : tensor<1x2xf32>) -> tensor<1x2xf32>
  return %0 : tensor<1x2xf32>
}
{-# dialect_resources: { builtin: { short: "0x0400000000000000" } } #-}
