// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --equant-online-scales
// RUN: not easyquant-opt %s "--equant-online-scales=online-decay=1" --split-input-file 2>&1 | FileCheck %s --check-prefix=DECAY
// DECAY: error: online-decay must be at least 0 and less than 1, found 1

#online = #equant.scheme<i8, symmetric, tensor, online>
#w = #equant.scheme<i8, symmetric, channel>
// expected-error @below {{the recipe has activations online-ema and online-window; expected one of them for all sites with online scales}}
module attributes {equant.recipe = {activation_basis = "plain", activations = "online-ema", sites = [{match = "a", activations = "online-window"}]}} {
  func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %c: !equant.weight<8x8, #w>) {
    %g = equant.linear %x, %c {sites = ["a"], input_scheme = #online, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
    return
  }
}

// -----

#online = #equant.scheme<i8, symmetric, tensor, online>
#w = #equant.scheme<i8, symmetric, channel>
// expected-error @below {{has online scales, which are those of a row's sequence, but takes no !lm.batch}}
func.func @forward(%x: tensor<?x8xf32>, %c: !equant.weight<8x8, #w>) {
  %g = equant.linear %x, %c {sites = ["a"], input_scheme = #online, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
  return
}

// -----

#online = #equant.scheme<i8, symmetric, tensor, online>
#w = #equant.scheme<i8, symmetric, channel>
// expected-error @below {{has online scales, which belong to one place of a step; expected a private function that is called once}}
func.func private @layer(%x: tensor<?x8xf32>, %batch: !lm.batch, %c: !equant.weight<8x8, #w>) {
  %g = equant.linear %x, %c {sites = ["a"], input_scheme = #online, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
  return
}
func.func @forward(%x: tensor<?x8xf32>, %batch: !lm.batch, %c: !equant.weight<8x8, #w>) {
  call @layer(%x, %batch, %c) : (tensor<?x8xf32>, !lm.batch, !equant.weight<8x8, #w>) -> ()
  call @layer(%x, %batch, %c) : (tensor<?x8xf32>, !lm.batch, !equant.weight<8x8, #w>) -> ()
  return
}

// -----

#w = #equant.scheme<i8, symmetric, channel>
func.func @full(%x: tensor<?x8xf32>, %c: !equant.weight<8x8, #w>) {
  // expected-error @below {{online scales are of symmetric codes i8, found #equant.scheme<i8, symmetric, full, tensor, online>}}
  %g = equant.linear %x, %c {sites = ["a"], input_scheme = #equant.scheme<i8, symmetric, full, tensor, online>, input_scale = 0.5 : f32} : (tensor<?x8xf32>, !equant.weight<8x8, #w>) -> tensor<?x8xf32>
  return
}

// -----

func.func @advance(%state: !lm.state<sites = 2, fields = 2>, %batch: !lm.batch) {
  // expected-error @below {{a window of 4 steps takes a state of 6 fields, found 2}}
  equant.advance %state, %batch {decay = 0.5 : f64, window = 4 : i64} : !lm.state<sites = 2, fields = 2>
  return
}

// -----

func.func @decay(%state: !lm.state<sites = 2, fields = 2>, %batch: !lm.batch) {
  // expected-error @below {{decay must be at least 0 and less than 1, found 1.000000e+00 : f64}}
  equant.advance %state, %batch {decay = 1.0 : f64, window = 0 : i64} : !lm.state<sites = 2, fields = 2>
  return
}

// -----

func.func @index(%state: !lm.state<sites = 2, fields = 2>, %batch: !lm.batch) {
  // expected-error @below {{index must be one of the 2 sites of the state, found 2}}
  %s = equant.online_scale %state, %batch {index = 2 : i64} : !lm.state<sites = 2, fields = 2> -> tensor<?xf32>
  return
}

// -----

// expected-error @below {{sites must be 1 to 65536 and fields 1 to 1024, found 0 and 2}}
func.func private @none(!lm.state<sites = 0, fields = 2>)
