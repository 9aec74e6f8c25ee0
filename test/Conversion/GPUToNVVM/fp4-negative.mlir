// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --convert-equant-to-launches=target=sm_90a

// Codes as sm_120a multiplies them, on another chip.
!rows = !equant.rows<?x64, #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error @below {{is of codes that sm_90a does not multiply: run equant-legalize-activations with target=sm_90a}}
  %r = equant.quantize_rows %x {scale = 2.5e-03 : f32} : tensor<?x64xf32> -> !rows
  return
}

// -----

!rows = !equant.rows<?x64, #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>>
func.func @forward(%x: tensor<?x64xf32>) {
  // expected-error @below {{scale belongs to a static scheme or an outer one}}
  %r = equant.quantize_rows %x : tensor<?x64xf32> -> !rows
  return
}

// -----

// expected-error @below {{have no zero points to correct by, and no sums}}
func.func private @f(!equant.rows<?x64, #equant.scheme<f4E2M1FN, group = 16, dynamic, scale = f8E4M3FN, outer = tensor>, sums = 16>)
