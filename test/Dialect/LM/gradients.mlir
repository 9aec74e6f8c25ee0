// RUN: easyquant-opt %s -split-input-file -verify-diagnostics | FileCheck %s

// CHECK-LABEL: func.func @all
func.func @all(%dy: tensor<?x16xf32>, %x: tensor<?x16xf32>, %kv: tensor<?x8xf32>, %w: tensor<16x8xf32>, %c: tensor<16xf32>,
               %head: tensor<4xf32>, %table: tensor<10x2x2xf32>, %tokens: tensor<?xi32>, %batch: !lm.batch, %a: tensor<?x4xf32>) {
  // CHECK: lm.linear_input_gradient %{{.*}}, %{{.*}} : tensor<?x16xf32>, tensor<16x8xf32> -> tensor<?x8xf32>
  %0 = lm.linear_input_gradient %dy, %w : tensor<?x16xf32>, tensor<16x8xf32> -> tensor<?x8xf32>
  // CHECK: lm.linear_weight_gradient %{{.*}}, %{{.*}} : tensor<?x16xf32>, tensor<?x8xf32> -> tensor<16x8xf32>
  %1 = lm.linear_weight_gradient %dy, %kv : tensor<?x16xf32>, tensor<?x8xf32> -> tensor<16x8xf32>
  // CHECK: lm.bias_gradient %{{.*}} : tensor<?x16xf32>
  %2 = lm.bias_gradient %dy : tensor<?x16xf32>
  // CHECK: lm.rms_norm_gradient {{.*}} : tensor<?x16xf32>, tensor<4xf32>
  %3 = lm.rms_norm_gradient %dy, %x, %head {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>, tensor<4xf32>
  // CHECK: lm.rms_norm_weight_gradient {{.*}} : tensor<?x16xf32> -> tensor<4xf32>
  %4 = lm.rms_norm_weight_gradient %dy, %x {epsilon = 1.0e-05 : f64} : tensor<?x16xf32> -> tensor<4xf32>
  // CHECK: lm.layer_norm_gradient
  %5 = lm.layer_norm_gradient %dy, %x, %c {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>
  // CHECK: lm.layer_norm_weight_gradient
  %6 = lm.layer_norm_weight_gradient %dy, %x {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>
  // CHECK: lm.attention_gradient
  %7:3 = lm.attention_gradient %dy, %x, %kv, %kv {num_heads = 4, num_kv_heads = 2, head_dim = 4, scale = 0.5, window = 3}
           : tensor<?x16xf32>, tensor<?x8xf32>
  // CHECK: lm.rope_gradient
  %8 = lm.rope_gradient %dy, %table, %batch {head_dim = 4} : tensor<?x16xf32>, tensor<10x2x2xf32>
  // CHECK: lm.glu_gradient silu %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x16xf32>
  %9:2 = lm.glu_gradient silu %dy, %x, %x : tensor<?x16xf32>
  // CHECK: lm.soft_cap_gradient %{{.*}}, %{{.*}} {bound = 3.000000e+01 : f64} : tensor<?x16xf32>
  %15 = lm.soft_cap_gradient %dy, %x {bound = 30.0 : f64} : tensor<?x16xf32>
  // CHECK: lm.gelu_gradient %{{.*}}, %{{.*}} approximate none : tensor<?x16xf32>
  %10 = lm.gelu_gradient %dy, %x approximate none : tensor<?x16xf32>
  // CHECK: lm.concat %{{.*}}, %{{.*}} : tensor<?x16xf32>, tensor<?x8xf32> -> tensor<?x24xf32>
  %11 = lm.concat %dy, %kv : tensor<?x16xf32>, tensor<?x8xf32> -> tensor<?x24xf32>
  // CHECK: lm.rows_gradient %{{.*}}, %{{.*}} at %{{.*}} : tensor<?x16xf32>, tensor<?xi32>
  %12 = lm.rows_gradient %dy, %x at %tokens : tensor<?x16xf32>, tensor<?xi32>
  // CHECK: lm.embedding_gradient %{{.*}}, %{{.*}} : tensor<?x16xf32>, tensor<?xi32> -> tensor<5x16xf32>
  %13 = lm.embedding_gradient %dy, %tokens : tensor<?x16xf32>, tensor<?xi32> -> tensor<5x16xf32>
  // CHECK: lm.position_embedding_gradient %{{.*}}, %{{.*}} : tensor<?x16xf32> -> tensor<5x16xf32>
  %14 = lm.position_embedding_gradient %dy, %batch : tensor<?x16xf32> -> tensor<5x16xf32>
  // CHECK: lm.conv1d_gradient %{{.*}}, %{{.*}} : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  %16 = lm.conv1d_gradient %dy, %w : (tensor<?x16xf32>, tensor<16x8xf32>) -> tensor<?x16xf32>
  // CHECK: lm.conv1d_gradient %{{.*}}, %{{.*}} silu_of(%{{.*}}) bias(%{{.*}})
  %17 = lm.conv1d_gradient %dy, %w silu_of(%x) bias(%c) : (tensor<?x16xf32>, tensor<16x8xf32>, tensor<?x16xf32>, tensor<16xf32>) -> tensor<?x16xf32>
  // CHECK: lm.gated_delta_gradient {{.*}} {key_heads = 2 : i64, tiled, value_heads = 4 : i64} : tensor<?x8xf32>, tensor<?x16xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>
  %18:5 = lm.gated_delta_gradient %dy, %kv, %kv, %x, %a, %a, %head, %head {key_heads = 2, value_heads = 4, tiled}
            : tensor<?x8xf32>, tensor<?x16xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>
  return
}

// CHECK-LABEL: func.func @experts
func.func @experts(%rows: tensor<?x6xf32>, %x: tensor<?x8xf32>, %w: tensor<24x8xf32>, %offsets: tensor<5xi32>, %places: tensor<?x2xi32>, %choices: tensor<?x2xf32>,
                   %logits: tensor<?x4xf32>, %factors: tensor<4xf32>, %gate: tensor<?x1xf32>) {
  // CHECK: lm.linear_input_gradient %{{.*}}, %{{.*}} experts(%{{.*}} : tensor<5xi32>) : tensor<?x6xf32>, tensor<24x8xf32> -> tensor<?x8xf32>
  %0 = lm.linear_input_gradient %rows, %w experts(%offsets : tensor<5xi32>) : tensor<?x6xf32>, tensor<24x8xf32> -> tensor<?x8xf32>
  // CHECK: lm.linear_weight_gradient %{{.*}}, %{{.*}} experts(%{{.*}} : tensor<5xi32>) : tensor<?x6xf32>, tensor<?x8xf32> -> tensor<24x8xf32>
  %1 = lm.linear_weight_gradient %rows, %x experts(%offsets : tensor<5xi32>) : tensor<?x6xf32>, tensor<?x8xf32> -> tensor<24x8xf32>
  // CHECK: lm.route_gradient %{{.*}}, %{{.*}}, %{{.*}}, %{{.*}} {renormalize} : tensor<?x2xf32>, tensor<?x4xf32>, tensor<5xi32>, tensor<?x2xi32>
  %2 = lm.route_gradient %choices, %logits, %offsets, %places {renormalize} : tensor<?x2xf32>, tensor<?x4xf32>, tensor<5xi32>, tensor<?x2xi32>
  // CHECK: lm.route_gradient {{.*}} factors(%{{.*}} : tensor<4xf32>) {scale = 2.500000e+00 : f64, sigmoid}
  %3 = lm.route_gradient %choices, %logits, %offsets, %places factors(%factors : tensor<4xf32>) {sigmoid, scale = 2.5 : f64}
         : tensor<?x2xf32>, tensor<?x4xf32>, tensor<5xi32>, tensor<?x2xi32>
  // CHECK: lm.weigh_choices %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  %4 = lm.weigh_choices %x, %places, %choices : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  // CHECK: lm.choice_weights_gradient %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
  %5 = lm.choice_weights_gradient %x, %x, %places : tensor<?x8xf32>, tensor<?x2xi32> -> tensor<?x2xf32>
  // CHECK: lm.shared_expert_gradient %{{.*}}, %{{.*}}, %{{.*}} : tensor<?x8xf32>, tensor<?x1xf32>
  %6:2 = lm.shared_expert_gradient %x, %x, %gate : tensor<?x8xf32>, tensor<?x1xf32>
  return
}

// -----

func.func @silu_of_another_width(%dy: tensor<?x16xf32>, %x: tensor<?x8xf32>, %w: tensor<16x3xf32>) {
  // expected-error @below {{silu_of must be 'tensor<?x16xf32>', found 'tensor<?x8xf32>'}}
  lm.conv1d_gradient %dy, %w silu_of(%x) : (tensor<?x16xf32>, tensor<16x3xf32>, tensor<?x8xf32>) -> tensor<?x16xf32>
  return
}

// -----

func.func @bias_of_nothing(%dy: tensor<?x16xf32>, %c: tensor<16xf32>, %w: tensor<16x3xf32>) {
  // expected-error @below {{bias goes with silu_of}}
  lm.conv1d_gradient %dy, %w bias(%c) : (tensor<?x16xf32>, tensor<16x3xf32>, tensor<16xf32>) -> tensor<?x16xf32>
  return
}

// -----

func.func @delta_heads(%dy: tensor<?x16xf32>, %k: tensor<?x8xf32>, %a: tensor<?x4xf32>, %c: tensor<4xf32>) {
  // expected-error @below {{has key and value of 8 and 16 columns; expected 3 and 4 heads, these a multiple of those}}
  lm.gated_delta_gradient %dy, %k, %k, %dy, %a, %a, %c, %c {key_heads = 3, value_heads = 4}
    : tensor<?x8xf32>, tensor<?x16xf32>, tensor<?x4xf32>, tensor<4xf32>, tensor<4xf32>
  return
}

// -----

func.func @linear_input(%dy: tensor<?x16xf32>, %w: tensor<8x16xf32>) {
  // expected-error @below {{weight is 8 x 16, but a linear of 16 columns in and 16 out has one of 16 x 16}}
  lm.linear_input_gradient %dy, %w : tensor<?x16xf32>, tensor<8x16xf32> -> tensor<?x16xf32>
  return
}

// -----

func.func @linear_weight(%dy: tensor<?x16xf32>, %x: tensor<?x8xf32>) {
  // expected-error @below {{weight is 8 x 16, but a linear of 8 columns in and 16 out has one of 16 x 8}}
  lm.linear_weight_gradient %dy, %x : tensor<?x16xf32>, tensor<?x8xf32> -> tensor<8x16xf32>
  return
}

// -----

func.func @heads(%dy: tensor<?x16xf32>, %w: tensor<5xf32>) {
  // expected-error @below {{input has 16 columns, which are no heads of 5, the elements of the weight}}
  lm.rms_norm_gradient %dy, %dy, %w {epsilon = 1.0e-05 : f64} : tensor<?x16xf32>, tensor<5xf32>
  return
}

// -----

func.func @epsilon(%dy: tensor<?x16xf32>) {
  // expected-error @below {{epsilon must be finite and not negative}}
  lm.layer_norm_weight_gradient %dy, %dy {epsilon = -1.0 : f64} : tensor<?x16xf32>
  return
}

// -----

func.func @attention(%dy: tensor<?x16xf32>, %kv: tensor<?x8xf32>) {
  // expected-error @below {{num_heads 4 is no multiple of num_kv_heads 3}}
  lm.attention_gradient %dy, %dy, %kv, %kv {num_heads = 4, num_kv_heads = 3, head_dim = 4, scale = 0.5}
    : tensor<?x16xf32>, tensor<?x8xf32>
  return
}

// -----

func.func @rope(%dy: tensor<?x16xf32>, %table: tensor<10x3x2xf32>, %batch: !lm.batch) {
  // expected-error @below {{table must be tensor<PxHx2xf32>, H from 1 to 2 for head_dim 4}}
  lm.rope_gradient %dy, %table, %batch {head_dim = 4} : tensor<?x16xf32>, tensor<10x3x2xf32>
  return
}

// -----

func.func @concat(%dy: tensor<?x16xf32>) {
  // expected-error @below {{widths of the operands do not add up to the 24 columns of the result}}
  lm.concat %dy, %dy : tensor<?x16xf32>, tensor<?x16xf32> -> tensor<?x24xf32>
  return
}

// -----

func.func @tables(%dy: tensor<?x16xf32>, %tokens: tensor<?xi32>) {
  // expected-error @below {{table has 8 columns, but the gradient has 16}}
  lm.embedding_gradient %dy, %tokens : tensor<?x16xf32>, tensor<?xi32> -> tensor<5x8xf32>
  return
}

// -----

func.func @weights_of_experts(%dy: tensor<?x6xf32>, %w: tensor<20x8xf32>, %offsets: tensor<5xi32>) {
  // expected-error @below {{weight is 20 x 8, but a linear of 4 experts, 8 columns in and 6 out has one of 24 x 8}}
  lm.linear_input_gradient %dy, %w experts(%offsets : tensor<5xi32>) : tensor<?x6xf32>, tensor<20x8xf32> -> tensor<?x8xf32>
  return
}

// -----

func.func @choices(%x: tensor<?x8xf32>, %places: tensor<?x2xi32>, %weights: tensor<?x3xf32>) {
  // expected-error @below {{a choice has a place and a weight, found 'tensor<?x2xi32>' and 'tensor<?x3xf32>'}}
  lm.weigh_choices %x, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x3xf32>
  return
}

// -----

func.func @route(%choices: tensor<?x2xf32>, %logits: tensor<?x3xf32>, %offsets: tensor<5xi32>, %places: tensor<?x2xi32>) {
  // expected-error @below {{offsets of 3 experts are 4 numbers, found 'tensor<5xi32>'}}
  lm.route_gradient %choices, %logits, %offsets, %places : tensor<?x2xf32>, tensor<?x3xf32>, tensor<5xi32>, tensor<?x2xi32>
  return
}

// -----

func.func @gate(%x: tensor<?x8xf32>, %gate: tensor<?x2xf32>) {
  // expected-error @below {{the gate is one number a row, found 'tensor<?x2xf32>'}}
  lm.shared_expert_gradient %x, %x, %gate : tensor<?x8xf32>, tensor<?x2xf32>
  return
}
