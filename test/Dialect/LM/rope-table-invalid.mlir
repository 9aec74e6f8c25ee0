// RUN: easyquant-opt %s -split-input-file -verify-diagnostics

// expected-error @below {{rotary embedding with rope_theta = 0: expected a finite positive number}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 0.0 : f64}}

// -----

// expected-error @below {{lm.rope_table {factor = 2.000000e+00 : f64, theta = 1.000000e+04 : f64}: expected 1 fields, found 2}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, factor = 2.0 : f64}}

// -----

// expected-error @below {{lm.rope_table belongs to an ml_program.global of type tensor<PxHx2xf32>}}
ml_program.global private @t(#ml_program.extern : tensor<8x4xf32>) : tensor<8x4xf32> {lm.rope_table = {theta = 10000.0 : f64}}

// -----

// expected-error @below {{lm.rope_table belongs to an ml_program.global of type tensor<PxHx2xf32>}}
func.func private @f() attributes {lm.rope_table = {theta = 10000.0 : f64}}

// -----

// expected-error @below {{lm.rope_table must be a dictionary, found "theta"}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = "theta"}

// -----

// expected-error @below {{scaling must be "linear", "llama3", "yarn", "longrope" or "proportional"}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "ntk"}}

// -----

// expected-error @below {{factor must be there, a float}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "linear"}}

// -----

// expected-error @below {{rotary embedding with factor = -2: expected a finite positive number}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "linear", factor = -2.0 : f64}}

// -----

// expected-error @below {{original_positions must be there, an i64}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "llama3", factor = 2.0 : f64, low_freq_factor = 1.0 : f64, high_freq_factor = 4.0 : f64}}

// -----

// expected-error @below {{truncate must be there, a bool}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "yarn", factor = 2.0 : f64, beta_fast = 32.0 : f64, beta_slow = 1.0 : f64, attention_factor = 1.0 : f64, original_positions = 16 : i64}}

// -----

// expected-error @below {{late_gain must be a float that is not 0}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "yarn", factor = 2.0 : f64, beta_fast = 32.0 : f64, beta_slow = 1.0 : f64, attention_factor = 1.0 : f64, original_positions = 16 : i64, truncate = true, late_gain = 0.0 : f64}}

// -----

// expected-error @below {{late_gain = -1: expected a finite positive number}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "yarn", factor = 2.0 : f64, beta_fast = 32.0 : f64, beta_slow = 1.0 : f64, attention_factor = 1.0 : f64, original_positions = 16 : i64, truncate = true, late_gain = -1.0 : f64}}

// -----

// expected-error @below {{beta_slow = 32 and beta_fast = 32}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "yarn", factor = 2.0 : f64, beta_fast = 32.0 : f64, beta_slow = 32.0 : f64, attention_factor = 1.0 : f64, original_positions = 16 : i64, truncate = true}}

// -----

// Verifiers compute no table: these take no time and no memory.

// expected-error @below {{a table for heads of at most 65536 dimensions has at most 32768 pairs a position, found 2147483648}}
ml_program.global private @t(#ml_program.extern : tensor<32x2147483648x2xf32>) : tensor<32x2147483648x2xf32> {lm.rope_table = {theta = 10000.0 : f64}}

// -----

// expected-error @below {{rotary table of 2147483648 positions for 64 dimensions: expected at most 2147483648 floats, 33554432 positions}}
ml_program.global private @t(#ml_program.extern : tensor<2147483648x32x2xf32>) : tensor<2147483648x32x2xf32> {lm.rope_table = {theta = 10000.0 : f64}}

// -----

// 16 million positions are none too many.
ml_program.global private @t(#ml_program.extern : tensor<16777216x64x2xf32>) : tensor<16777216x64x2xf32> {lm.rope_table = {theta = 10000.0 : f64}}

// -----

// expected-error @below {{lm.rope_table belongs to an ml_program.global of type tensor<PxHx2xf32>}}
"ml_program.global"() <{sym_name = "t", sym_visibility = "private"}> {lm.rope_table = {theta = 10000.0 : f64}} : () -> ()

// -----

// expected-error @below {{divisors must be there, an array of f32}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "longrope", attention_factor = 1.0 : f64}}

// -----

// expected-error @below {{rotary embedding of 4 dimensions with 3 divisors of their frequencies: expected 2}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "longrope", attention_factor = 1.0 : f64, divisors = array<f32: 1.0, 2.0, 3.0>}}

// -----

// expected-error @below {{rotary embedding with a divisor = 0: expected a finite positive number}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "longrope", attention_factor = 1.0 : f64, divisors = array<f32: 1.0, 0.0>}}

// -----

// expected-error @below {{turned_pairs must be there, an i64}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "proportional"}}

// -----

// expected-error @below {{rotary embedding of 4 dimensions whose first 3 pairs turn: expected 1 to 2}}
ml_program.global private @t(#ml_program.extern : tensor<8x2x2xf32>) : tensor<8x2x2xf32> {lm.rope_table = {theta = 10000.0 : f64, scaling = "proportional", turned_pairs = 3 : i64}}
