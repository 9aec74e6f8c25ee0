// RUN: not easyquant-opt %s --equant-absmax=activation-basis=plain --equant-quantize 2>&1 | FileCheck %s --check-prefix=LONG
// RUN: easyquant-opt %s --equant-absmax=activation-basis=plain "--equant-quantize=max-fallback=2" | FileCheck %s --check-prefix=LISTED
// RUN: not easyquant-opt %s --equant-absmax=activation-basis=plain "--equant-quantize=max-fallback=-1" 2>&1 | FileCheck %s --check-prefix=NEGATIVE
// RUN: easyquant-opt %s "--equant-absmax=scheme=W8A16" --equant-quantize | FileCheck %s --check-prefix=SHORT
// RUN: easyquant-opt %s "--equant-absmax=scheme=W4A8 activation-basis=plain" --equant-quantize | FileCheck %s --check-prefix=SHORT
// RUN: sed -e 's|// PLAN|equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, scale = @missing>,|' %s | not easyquant-opt --equant-quantize 2>&1 | FileCheck %s --check-prefix=MISSING
// RUN: sed -e 's|// PLAN|equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i8, symmetric, channel>, scale = @scale>,|' %s | not easyquant-opt --equant-quantize 2>&1 | FileCheck %s --check-prefix=TYPE
// RUN: sed -e 's|// PLAN|equant.plan = #equant.plan<methods = [], rule = absmax, weight = <i2, codebook = [-1.0, -0.3, 0.3, 1.0], channel>, input = <i8, symmetric, token, dynamic>>,|' %s | not easyquant-opt --equant-quantize 2>&1 | FileCheck %s --check-prefix=TABLE

// TABLE: error: 1 site cannot be quantized as asked
// TABLE-NEXT: site 'up' has int8 activations, but the values of its table, {{.*}}<[-1.000000e+00, -3.000000e-01, 3.000000e-01, 1.000000e+00]>, are not all multiples by -127 to 127 of one power of two; take such a table (iq4_nl, nf4_int8, learned2_int8) or leave activations float (A16)
// LONG: error: 2 sites cannot be quantized as asked, and at most 0 may stay float instead (max-fallback):
// LONG-NEXT: site 'long' sums 70000 products, but an int32 accumulator holds 66311 of #equant.scheme<i8, symmetric, channel> by #equant.scheme<i8, symmetric, token, dynamic>; give a group size, leave activations float (A16) or ignore the site
// LONG-NEXT: site 'longer' sums 70008 products
// LISTED: equant.fallbacks = [{name = "long", reason = "sums 70000 products{{.*}}"}, {name = "longer", reason = "
// LISTED: equant.linear {{.*}} sites = ["up"]
// LISTED: lm.linear {{.*}} {site = "long"}
// LISTED: lm.linear {{.*}} {site = "longer"}
// NEGATIVE: error: max-fallback must not be negative, found -1
// SHORT-NOT: lm.linear
// MISSING: error: site 'up': its plan names @missing, but there is no such global
// TYPE: error: site 'up': global @scale must be 'tensor<8x1xf32>' for its plan, found 'tensor<8x2xf32>'
ml_program.global private @scale(#ml_program.extern : tensor<8x2xf32>) : tensor<8x2xf32> {equant.file = "layer_0.safetensors"}
func.func @forward(%x: tensor<?x8xf32>, %l: tensor<?x70000xf32>, %w: tensor<8x8xf32>, %v: tensor<8x70000xf32>, %m: tensor<?x70008xf32>, %u: tensor<8x70008xf32>) {
  lm.linear %x, %w {
    // PLAN
    site = "up"} : (tensor<?x8xf32>, tensor<8x8xf32>) -> tensor<?x8xf32>
  lm.linear %l, %v {site = "long"} : (tensor<?x70000xf32>, tensor<8x70000xf32>) -> tensor<?x8xf32>
  lm.linear %m, %u {site = "longer"} : (tensor<?x70008xf32>, tensor<8x70008xf32>) -> tensor<?x8xf32>
  return
}
