// RUN: easyquant-opt %s --split-input-file --verify-diagnostics --equant-quantize

func.func @columns(%x: tensor<?x64xf32>, %order: tensor<32xi32>) -> tensor<?x64xf32> {
  // expected-error@+1 {{needs the place of each of 64 columns, found 32}}
  %y = equant.gather_columns %x by %order : tensor<?x64xf32>, tensor<32xi32>
  return %y : tensor<?x64xf32>
}

// -----

// expected-error@+1 {{equant.column_order belongs to a quantizable op and names a global, found "order"}}
func.func private @attribute() attributes {equant.column_order = "order"}

// -----

ml_program.global private @w(#ml_program.extern<tensor<64x64xf32>>) : tensor<64x64xf32>

func.func @forward(%x: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %w = ml_program.global_load_const @w : tensor<64x64xf32>
  // expected-error@+1 {{site 'q': equant.column_order is of codes, and its plan has none}}
  %y = lm.linear %x, %w {equant.column_order = @order, site = "q", equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>>}
         : (tensor<?x64xf32>, tensor<64x64xf32>) -> tensor<?x64xf32>
  return %y : tensor<?x64xf32>
}
