// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{lm.rope_table must be {theta = T} with T finite and positive, found {theta = 0.000000e+00 : f64}}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 0.0 : f64}}

// -----

// expected-error @below {{lm.rope_table must be {theta = T} with T finite and positive, found {factor = 2.000000e+00 : f64, theta = 1.000000e+04 : f64}}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, factor = 2.0 : f64}}

// -----

// expected-error @below {{lm.rope_table belongs to an ml_program.global of type tensor<PxHx2xf32>}}
ml_program.global private @t(#ml_program.extern : tensor<8x4xf32>) : tensor<8x4xf32> {lm.rope_table = {theta = 10000.0 : f64}}

// -----

// expected-error @below {{lm.rope_table belongs to an ml_program.global of type tensor<PxHx2xf32>}}
func.func private @f() attributes {lm.rope_table = {theta = 10000.0 : f64}}
