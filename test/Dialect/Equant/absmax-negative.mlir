// RUN: not easyquant-opt %s --equant-absmax=scheme=W5A8 2>&1 | FileCheck %s --check-prefix=SCHEME
// RUN: not easyquant-opt %s --equant-absmax=head=int4 2>&1 | FileCheck %s --check-prefix=HEAD
// RUN: not easyquant-opt %s "--equant-absmax=scheme=none head=int8" 2>&1 | FileCheck %s --check-prefix=FLOAT-HEAD
// RUN: not easyquant-opt %s "--equant-absmax=scheme=none group-size=64" 2>&1 | FileCheck %s --check-prefix=FLOAT-GROUP
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W4A16 group-size=0" 2>&1 | FileCheck %s --check-prefix=NO-GROUP
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W4A16 group-size=12" 2>&1 | FileCheck %s --check-prefix=GROUP
// RUN: not easyquant-opt %s "--equant-absmax=scheme=W8A8 group-size=-8" 2>&1 | FileCheck %s --check-prefix=NEGATIVE-GROUP
// RUN: not easyquant-opt %s --equant-absmax=ignore=lm_haed 2>&1 | FileCheck %s --check-prefix=PATTERN
// RUN: not easyquant-opt %s "--equant-absmax=targets=re:^mlp" 2>&1 | FileCheck %s --check-prefix=REGEX
// RUN: not easyquant-opt %s "--equant-absmax=targets=re:*" 2>&1 | FileCheck %s --check-prefix=NO-REGEX
// RUN: not easyquant-opt %s --equant-absmax=ignore=long --equant-absmax 2>&1 | FileCheck %s --check-prefix=TWICE
// RUN: not easyquant-opt %s --equant-absmax=targets=long 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: easyquant-opt %s "--equant-absmax=targets=long scheme=W8A16"
// RUN: easyquant-opt %s "--equant-absmax=targets=long scheme=W4A8"

// SCHEME: error: unknown scheme 'W5A8'; legal are W8A8, W8A16, W4A16, W4A8 and none
// HEAD: error: unknown head 'int4'; legal are int8 and float
// FLOAT-HEAD: error: head=int8 needs a scheme that quantizes, but scheme is none
// FLOAT-GROUP: error: group size 64 needs a scheme, but scheme is none
// NO-GROUP: error: scheme W4A16 needs groups: give a group size that is a positive multiple of 8
// GROUP: error: group size must be a positive multiple of 8; found 12
// NEGATIVE-GROUP: error: group size must be a positive multiple of 8, or 0 for a scale per channel; found -8
// PATTERN: error: ignore pattern 'lm_haed' matches no site; the closest names are 'lm_head', 'long', 'layers.0.up' (use re: for a regular expression)
// REGEX: error: targets pattern 're:^mlp' matches no site; the closest names are
// NO-REGEX: error: targets pattern 're:*' is no regular expression: repetition-operator operand invalid
// TWICE: error: module is quantized already: it has equant.recipe
// LONG: error: site 'long' sums 70000 products, but an int32 accumulator holds 66311 of #equant.scheme<i8, symmetric, channel> by #equant.scheme<i8, symmetric, token, dynamic>; give a group size, leave activations float (A16) or ignore the site
func.func @forward(%x: tensor<?x8xf32>, %l: tensor<?x70000xf32>, %w: tensor<8x8xf32>, %v: tensor<8x70000xf32>) {
  lm.linear %x, %w {site = "layers.0.up"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  lm.linear %x, %w {site = "lm_head"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  lm.linear %l, %v {site = "long"} : (tensor<?x70000xf32>, tensor<8x70000xf32>) -> tensor<?x8xf32>
  return
}
