// RUN: rm -rf %t && mkdir %t
// RUN: not easyquant-opt %s --equant-recipe 2>&1 | FileCheck %s --check-prefix=FILE
// RUN: not easyquant-opt %s --equant-recipe=file=%t/none.json 2>&1 | FileCheck %s --check-prefix=MISSING
// FILE: error: option file is missing: the recipe to read
// MISSING: error: {{.*}}none.json: cannot be read: No such file or directory

// RUN: echo '{"scheme": "W4A16",' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=JSON
// JSON: error: {{.*}}a.json: not valid JSON at byte
// RUN: echo '["W4A16"]' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=OBJECT
// OBJECT: error: {{.*}}a.json: found an array, expected an object
// RUN: echo '{"shceme": "W4A16"}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=KEY
// KEY: error: {{.*}}a.json: unknown key 'shceme'; legal are scheme, method, group_size, scale_type, activations, activation_group_size, activation_zero_points, activation_basis, hadamard_block, head, head_group_size, ignore, targets, weight_observer, weight_percentile, sinks, mixed, dequantize, observer, observer_percentile, online_decay, online_window, online_tokens, alpha, search_samples, clip, hessian, act_order, static_groups, damping, steps, epochs, kv, sites
// RUN: echo '{"group_size": "128"}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=TYPE
// TYPE: error: {{.*}}a.json: group_size: found "128", expected an integer
// RUN: echo '{"ignore": "lm_head"}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=LIST
// LIST: error: {{.*}}a.json: ignore: found "lm_head", expected an array
// RUN: echo '{"method": "gtpq"}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=METHOD
// METHOD: error: {{.*}}a.json: unknown method 'gtpq'; legal are absmax, zeropoint, symmetric, zeroquant, smoothquant, awq, gptq, signround, lkd, and such joined by +
// RUN: echo '{"method": "gptq+zeropoint"}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=BASE
// BASE: error: {{.*}}a.json: method 'zeropoint' chooses the codes and comes first: 'gptq+zeropoint'

// RUN: echo '{"sites": [{"scheme": "none"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=MATCH
// MATCH: error: {{.*}}a.json: sites[0]: match: found nothing, expected a string
// RUN: echo '{"sites": [{"match": "up", "head": "int8"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=SITEKEY
// SITEKEY: error: {{.*}}a.json: sites[0]: unknown key 'head'; legal are match, scheme, method, group_size, scale_type, activations, activation_group_size, activation_zero_points, activation_basis, hadamard_block, weight_observer, weight_percentile, observer, sinks, alpha, clip, act_order, static_groups, damping
// RUN: echo '{"sites": [{"match": "pu"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=NOSITE
// NOSITE: error: {{.*}}a.json: sites[0] pattern 'pu' matches no site; the closest names are 'up', 'lm_head' (use re: for a regular expression)
// RUN: echo '{"sites": [{"match": "up"}, {"match": "re:u"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=TWO
// TWO: error: {{.*}}a.json: site 'up' has two rules: sites[0], 'up', and sites[1], 're:u'; let one of them name fewer sites
// RUN: echo '{"sites": [{"match": "up", "scheme": "W4A16", "group_size": 12}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=GROUP
// GROUP: error: site 'up': group size must be a positive multiple of 8, or 0 for a scale per channel; found 12
// RUN: echo '{"sites": [{"match": "up", "alpha": 0.5}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=ALPHA
// ALPHA: error: site 'up': alpha belongs to method smoothquant, found method absmax
// RUN: echo '{"method": "smoothquant", "sites": [{"match": "up", "alpha": 1.5}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=RANGE
// RANGE: error: site 'up': alpha '1.5': expected a number from 0 to 1, or search
// RUN: echo '{"method": "gptq", "sites": [{"match": "up", "clip": false}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=CLIP
// CLIP: error: site 'up': clip belongs to method awq, found method gptq
// RUN: echo '{"method": "gptq", "sites": [{"match": "up", "damping": 0}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=DAMPING
// DAMPING: error: site 'up': damping 0: expected a positive number
// RUN: echo '{"sites": [{"match": "up", "observer": "ema"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=DYNAMIC
// DYNAMIC: error: site 'up': observer ema belongs to static activations
// RUN: echo '{"sites": [{"match": "up", "activations": "static", "observer": "max"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=OBSERVER
// OBSERVER: error: site 'up': unknown observer 'max'; legal are minmax, absmax, percentile, mse, entropy and ema
// RUN: echo '{"sites": [{"match": "up", "sinks": "keep"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=SINKS
// SINKS: error: site 'up': sinks keep belongs to static or online activations of int8, found dynamic ones
// RUN: echo '{"sites": [{"match": "up", "scheme": "FP8", "sinks": "keep"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=FLOATS
// FLOATS: error: site 'up': sinks keep belongs to static or online activations of int8, found f8E4M3FN
// RUN: echo '{"sites": [{"match": "up", "activations": "static", "sinks": "drop"}]}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=DROP
// DROP: error: site 'up': unknown sinks 'drop'; legal are none and keep
// RUN: echo '{"mixed": true}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=MIXED
// MIXED: error: {{.*}}a.json: mixed precision by blocks belongs to zeroquant, found method absmax
// RUN: echo '{"method": "zeroquant", "scheme": "W4A16", "mixed": true}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=MIXED4
// MIXED4: error: {{.*}}a.json: mixed means MLP weights of 4 bits beside attention weights of 8: give scheme W8A8 or W8A16, found W4A16
// RUN: echo '{"head": "8tni"}' > %t/a.json && not easyquant-opt %s --equant-recipe=file=%t/a.json 2>&1 | FileCheck %s --check-prefix=HEAD
// HEAD: error: {{.*}}a.json: unknown head '8tni'; legal are int8, float, keep, W8A8, W8A16, W6A8, W6A16, W5A8, W5A16, W4A8, W4A16, W3A8, W3A16, W2A8, W2A16, W8A8_ASYM, W8A16_ASYM, W6A8_ASYM, W6A16_ASYM, W5A8_ASYM, W5A16_ASYM, W4A8_ASYM, W4A16_ASYM, W3A8_ASYM, W3A16_ASYM, W2A8_ASYM, W2A16_ASYM, MXFP4A16, NVFP4A16, Q8_0, Q5_0, Q4_0, Q5_1, Q4_1, IQ4_NL, Q6_K, Q5_K, Q4_K, Q3_K, Q2_K, IQ4_XS, NF4A16, IQ4NLA16, T4A16, T3A16, T2A16, NF4A8, IQ4NLA8, T4A8, T3A8 and T2A8; without the option it is int8, or float where the scheme is none
func.func @forward(%x: tensor<?x16xf32>, %w: tensor<16x16xf32>) {
  lm.linear %x, %w {site = "up"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  lm.linear %x, %w {site = "lm_head"} : (tensor<?x16xf32>, tensor<16x16xf32>) -> tensor<?x16xf32>
  return
}
