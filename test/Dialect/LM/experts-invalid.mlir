// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

func.func @chosen(%logits: tensor<?x4xf32>) {
  // expected-error @below {{top_k is 5, but there are 4 experts}}
  lm.route %logits {top_k = 5} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x5xi32>, tensor<?x5xf32>
  return
}

// -----

func.func @offsets(%logits: tensor<?x4xf32>) {
  // expected-error @below {{offsets of 4 experts are 5 numbers, found 'tensor<4xi32>'}}
  lm.route %logits {top_k = 2} : tensor<?x4xf32> -> tensor<?xi32>, tensor<4xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @choices(%logits: tensor<?x4xf32>) {
  // expected-error @below {{places and weights have a column for each of 2 choices, found 'tensor<?x2xi32>' and 'tensor<?x3xf32>'}}
  lm.route %logits {top_k = 2} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x3xf32>
  return
}

// -----

func.func @many(%logits: tensor<?x4097xf32>) {
  // expected-error @below {{routes to at most 4096 experts, found 4097}}
  lm.route %logits {top_k = 1} : tensor<?x4097xf32> -> tensor<?xi32>, tensor<4098xi32>, tensor<?x1xi32>, tensor<?x1xf32>
  return
}

// -----

func.func @no_expert(%x: tensor<?x8xf32>, %w: tensor<24x8xf32>, %offsets: tensor<1xi32>) {
  // expected-error @below {{where the rows of each of E experts begin and the last ones end, tensor<(E + 1)xi32>}}
  lm.linear %x, %w experts(%offsets) {site = "a"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<1xi32>) -> tensor<?x24xf32>
  return
}

// -----

func.func @shares(%x: tensor<?x8xf32>, %w: tensor<24x8xf32>, %offsets: tensor<6xi32>) {
  // expected-error @below {{weight of 'a' has 24 rows, which 5 experts cannot share}}
  lm.linear %x, %w experts(%offsets) {site = "a"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<6xi32>) -> tensor<?x4xf32>
  return
}

// -----

func.func @width(%x: tensor<?x8xf32>, %w: tensor<24x8xf32>, %offsets: tensor<5xi32>) {
  // expected-error @below {{result has 24 columns, but the weight of 'a' gives 6}}
  lm.linear %x, %w experts(%offsets) {site = "a"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<5xi32>) -> tensor<?x24xf32>
  return
}

// -----

func.func @bias(%x: tensor<?x8xf32>, %w: tensor<24x8xf32>, %b: tensor<6xf32>, %offsets: tensor<5xi32>) {
  // expected-error @below {{bias has 6 elements, but the weight of 'a' gives 24}}
  lm.linear %x, %w bias(%b) experts(%offsets) {site = "a"} : (tensor<?x8xf32>, tensor<24x8xf32>, tensor<6xf32>, tensor<5xi32>) -> tensor<?x6xf32>
  return
}

// -----

func.func @combine(%x: tensor<?x8xf32>, %places: tensor<?x2xi32>, %weights: tensor<?x3xf32>) {
  // expected-error @below {{a choice has a place and a weight, found 'tensor<?x2xi32>' and 'tensor<?x3xf32>'}}
  lm.combine %x, %places, %weights : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x3xf32>
  return
}

// -----

func.func @choosing_bias(%logits: tensor<?x4xf32>, %b: tensor<4xf32>) {
  // expected-error @below {{a bias that only chooses goes with sigmoid scores; one that is added to logits is that of the linear which makes them}}
  lm.route %logits bias(%b : tensor<4xf32>) {top_k = 2} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @bias_of_experts(%logits: tensor<?x4xf32>, %b: tensor<3xf32>) {
  // expected-error @below {{'bias' has one number for each of 4 experts, found 3}}
  lm.route %logits bias(%b : tensor<3xf32>) {top_k = 2, sigmoid} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @factors(%logits: tensor<?x4xf32>, %f: tensor<5xf32>) {
  // expected-error @below {{'factors' has one number for each of 4 experts, found 5}}
  lm.route %logits factors(%f : tensor<5xf32>) {top_k = 2} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @scale(%logits: tensor<?x4xf32>) {
  // expected-error @below {{scale must be a positive number that f32 holds, found -1}}
  lm.route %logits {top_k = 2, scale = -1.0 : f64} : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @shared(%x: tensor<?x8xf32>, %places: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error @below {{shared are 'tensor<?x8xf32>' and the gate before it, tensor<?x1xf32>, found 'tensor<?x8xf32>'}}
  lm.combine %x, %places, %weights shared(%x : tensor<?x8xf32>) : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}

// -----

func.func @gate(%x: tensor<?x8xf32>, %places: tensor<?x2xi32>, %weights: tensor<?x2xf32>) {
  // expected-error @below {{shared are 'tensor<?x8xf32>' and the gate before it, tensor<?x1xf32>, found 'tensor<?x8xf32>', 'tensor<?x2xf32>'}}
  lm.combine %x, %places, %weights shared(%x, %weights : tensor<?x8xf32>, tensor<?x2xf32>) : tensor<?x8xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return
}
