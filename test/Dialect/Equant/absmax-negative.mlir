// RUN: not easyquant-opt %s --equant-absmax=scheme=W7A8 2>&1 | FileCheck %s --check-prefix=SCHEME
// RUN: not easyquant-opt %s --equant-absmax=head=int4 2>&1 | FileCheck %s --check-prefix=HEAD
// RUN: not easyquant-opt %s --equant-absmax=head-group-size=32 2>&1 | FileCheck %s --check-prefix=HEAD-GROUP
// RUN: not easyquant-opt %s "--equant-absmax=scheme=none head=int8" 2>&1 | FileCheck %s --check-prefix=FLOAT-HEAD
// RUN: not easyquant-opt %s "--equant-absmax=scheme=none group-size=64" 2>&1 | FileCheck %s --check-prefix=FLOAT-GROUP
// RUN: not easyquant-opt %s --equant-absmax=scheme=W4A16_ASYM 2>&1 | FileCheck %s --check-prefix=ASYMMETRIC
// RUN: not easyquant-opt %s --equant-absmax=scheme=none_ASYM 2>&1 | FileCheck %s --check-prefix=NONE-ASYM
// RUN: not easyquant-opt %s --equant-absmax=activations=online 2>&1 | FileCheck %s --check-prefix=ACTIVATIONS
// RUN: not easyquant-opt %s --equant-absmax=weight-observer=ema 2>&1 | FileCheck %s --check-prefix=OBSERVER
// RUN: not easyquant-opt %s --equant-absmax=weight-percentile=99 2>&1 | FileCheck %s --check-prefix=LONELY
// RUN: not easyquant-opt %s "--equant-absmax=weight-observer=percentile weight-percentile=30" 2>&1 | FileCheck %s --check-prefix=PERCENTILE
// RUN: not easyquant-opt %s --equant-absmax=methods=gtpq 2>&1 | FileCheck %s --check-prefix=METHOD
// RUN: not easyquant-opt %s --equant-absmax=methods=gptq,smoothquant 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not easyquant-opt %s --equant-absmax=methods=gptq,gptq 2>&1 | FileCheck %s --check-prefix=REPEATED
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W4A16 group-size=12" 2>&1 | FileCheck %s --check-prefix=GROUP
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W4A16 group-size=4611686018427387904" 2>&1 | FileCheck %s --check-prefix=HUGE-GROUP
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W8A8 group-size=-8" 2>&1 | FileCheck %s --check-prefix=NEGATIVE-GROUP
// RUN: not easyquant-opt %s --equant-absmax=ignore=lm_haed 2>&1 | FileCheck %s --check-prefix=PATTERN
// RUN: not easyquant-opt %s "--equant-absmax=targets=re:^mlp" 2>&1 | FileCheck %s --check-prefix=REGEX
// RUN: not easyquant-opt %s "--equant-absmax=targets=re:*" 2>&1 | FileCheck %s --check-prefix=NO-REGEX
// RUN: not easyquant-opt %s --equant-absmax --equant-absmax 2>&1 | FileCheck %s --check-prefix=TWICE

// SCHEME: error: unknown scheme 'W7A8'; legal are none, keep, keepA8, W8A8, W8A16, W6A8, W6A16, W5A8, W5A16, W4A8, W4A16, W3A8, W3A16, W2A8, W2A16, W8A8_ASYM, W8A16_ASYM, W6A8_ASYM, W6A16_ASYM, W5A8_ASYM, W5A16_ASYM, W4A8_ASYM, W4A16_ASYM, W3A8_ASYM, W3A16_ASYM, W2A8_ASYM, W2A16_ASYM, FP8, FP8_DYNAMIC, MXFP4A16, NVFP4, NVFP4A16, Q8_0, Q5_0, Q4_0, Q5_1, Q4_1, IQ4_NL, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, IQ4_XS, NF4A16, IQ4NLA16, T4A16, T3A16, T2A16, NF4A8, IQ4NLA8, T4A8, T3A8, T2A8, Q3, Q4, Q5 and Q6
// HEAD: error: unknown head 'int4'; legal are int8, float, keep, W8A8, W8A16, W6A8, W6A16, W5A8, W5A16, W4A8, W4A16, W3A8, W3A16, W2A8, W2A16, W8A8_ASYM, W8A16_ASYM, W6A8_ASYM, W6A16_ASYM, W5A8_ASYM, W5A16_ASYM, W4A8_ASYM, W4A16_ASYM, W3A8_ASYM, W3A16_ASYM, W2A8_ASYM, W2A16_ASYM, MXFP4A16, NVFP4A16, Q8_0, Q5_0, Q4_0, Q5_1, Q4_1, IQ4_NL, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, IQ4_XS, NF4A16, IQ4NLA16, T4A16, T3A16, T2A16, NF4A8, IQ4NLA8, T4A8, T3A8 and T2A8
// HEAD-GROUP: error: head-group-size 32 needs a head with a scheme of its own, such as W4A16, but head is int8
// FLOAT-HEAD: error: head=int8 needs a scheme that quantizes, but scheme is none
// FLOAT-GROUP: error: group size 64 needs a scheme, but scheme is none
// ASYMMETRIC: error: scheme W4A16_ASYM has zero points, but absmax chooses none; take method zeropoint
// NONE-ASYM: error: unknown scheme 'none_ASYM'; legal are
// ACTIVATIONS: error: unknown activations 'online'; legal are dynamic, static, online-ema, online-window and float; did you mean 'online-ema'?
// OBSERVER: error: unknown weight observer 'ema'; legal are absmax, minmax, percentile, mse, entropy and hessian-diagonal
// LONELY: error: weight percentile 99 belongs to weight observer percentile
// PERCENTILE: error: percentile 30: expected one above 50 and at most 100
// METHOD: error: unknown method 'gtpq'; legal are smoothquant, awq, gptq, signround and lkd
// ORDER: error: method 'smoothquant' transforms weights and comes before 'gptq', which rounds them
// REPEATED: error: method 'gptq' is named twice
// GROUP: error: group size must be a positive multiple of 8, or 0 for a scale per channel; found 12
// HUGE-GROUP: error: group size must be at most 2147483647, found 4611686018427387904
// NEGATIVE-GROUP: error: group size must be a positive multiple of 8, or 0 for a scale per channel; found -8
// PATTERN: error: ignore pattern 'lm_haed' matches no site; the closest names are 'lm_head', 'layers.0.up' (use re: for a regular expression)
// REGEX: error: targets pattern 're:^mlp' matches no site; the closest names are
// NO-REGEX: error: targets pattern 're:*' is no regular expression: repetition-operator operand invalid
// TWICE: error: module is quantized already: it has equant.recipe
func.func @forward(%x: tensor<?x8xf32>, %w: tensor<8x8xf32>) {
  lm.linear %x, %w {site = "layers.0.up"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  lm.linear %x, %w {site = "lm_head"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  return
}
