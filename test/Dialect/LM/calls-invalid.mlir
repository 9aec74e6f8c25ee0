// Everybody who follows the calls of a model refuses these alike.
// RUN: easyquant-opt %s -split-input-file -verify-diagnostics --lm-hoist-rows
// RUN: easyquant-opt %s -split-input-file -verify-diagnostics --easyquant-launches
// RUN: easyquant-opt %s -split-input-file -verify-diagnostics --easyquant-emit-gpu-program="output=%t target=sm_80"

// Functions that call themselves, directly and through others, and calls of what is not there.

func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{makes a function call itself: @forward -> @forward; expected @forward to call layers, and layers to call nothing that calls them}}
  %y = call @forward(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = call @layer_0(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func private @layer_0(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  %y = call @layer_1(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func private @layer_1(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{makes a function call itself: @layer_0 -> @layer_1 -> @layer_0}}
  %y = call @layer_0(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}

// -----

func.func @forward(%x: tensor<?x8xf32>) -> tensor<?x8xf32> {
  // expected-error @below {{calls @layer_0, which is no function with a body in this module}}
  %y = call @layer_0(%x) : (tensor<?x8xf32>) -> tensor<?x8xf32>
  return %y : tensor<?x8xf32>
}
func.func private @layer_0(tensor<?x8xf32>) -> tensor<?x8xf32>
