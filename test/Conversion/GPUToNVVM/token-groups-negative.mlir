// RUN: easyquant-opt %s --verify-diagnostics --easyquant-launches=target=sm_80

#own = #equant.scheme<i8, asymmetric, token, group = 32, dynamic>
func.func @forward(%x: tensor<?x64xf32>) -> !equant.rows<?x64, #own> {
  // expected-error @below {{no GPU kernel for #equant.scheme<i8, asymmetric, token, group = 32, dynamic>; expected groups without zero points, or compile it with --target cpu}}
  %q = equant.quantize_rows %x : tensor<?x64xf32> -> !equant.rows<?x64, #own>
  return %q : !equant.rows<?x64, #own>
}
