// A mixture of experts: the router stays float, linears of experts are quantized as they are, with one site for all, and are not joined.

// RUN: easyquant-opt %s --equant-absmax="scheme=W8A8 head=float activation-basis=plain" --equant-quantize --equant-fuse-shared-input | FileCheck %s
// RUN: not easyquant-opt %s --equant-absmax=scheme=W8A8 --equant-check-plans=target=gpu 2>&1 | FileCheck %s --check-prefix=GPU
// RUN: easyquant-opt %s --equant-check-plans=target=sm_80
// RUN: easyquant-opt %s --equant-absmax=scheme=W8A8 --equant-check-plans=target=cpu
// RUN: not easyquant-opt %s --equant-absmax="scheme=W8A8 activation-basis=plain" --equant-quantize --equant-shard=degree=2 2>&1 | FileCheck %s --check-prefix=RANKS
// RUN: not easyquant-opt %s --convert-lm-to-linalg 2>&1 | FileCheck %s --check-prefix=LINALG

// CHECK-LABEL: func.func private @layer_0(
// CHECK:         lm.linear %{{.*}} {site = "mlp.gate"}
// CHECK:         %{{.*}}, %[[OFFSETS:.*]], %{{.*}}, %{{.*}} = lm.route
// CHECK:         equant.linear %[[ROWS:.*]], %{{.*}} experts(%[[OFFSETS]]) {{{.*}}sites = ["mlp.experts.gate_proj"]} : (tensor<?x32xf32>, !equant.weight<128x32, {{.*}}>, tensor<5xi32>) -> tensor<?x32xf32>
// CHECK:         equant.linear %[[ROWS]], %{{.*}} experts(%[[OFFSETS]]) {{{.*}}sites = ["mlp.experts.up_proj"]}

// GPU: error: site 'mlp.experts.gate_proj': it has experts of 32 outputs, and GPUs read packed weights of experts 64 outputs at a time; leave it float
// RANKS: error: 'lm.combine' op reads columns that ranks would have apart
// LINALG: belongs to a mixture of experts, which has no form in upstream ops yet

ml_program.global private @router(#ml_program.extern<tensor<4x32xf32>>) : tensor<4x32xf32>
ml_program.global private @gate(#ml_program.extern<tensor<128x32xf32>>) : tensor<128x32xf32>
ml_program.global private @up(#ml_program.extern<tensor<128x32xf32>>) : tensor<128x32xf32>

func.func private @layer_0(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %router = ml_program.global_load_const @router : tensor<4x32xf32>
  %gate = ml_program.global_load_const @gate : tensor<128x32xf32>
  %up = ml_program.global_load_const @up : tensor<128x32xf32>
  %logits = lm.linear %x, %router {site = "mlp.gate"} : (tensor<?x32xf32>, tensor<4x32xf32>) -> tensor<?x4xf32>
  %order, %offsets, %places, %weights = lm.route %logits {top_k = 2, renormalize}
    : tensor<?x4xf32> -> tensor<?xi32>, tensor<5xi32>, tensor<?x2xi32>, tensor<?x2xf32>
  %rows = lm.rows %x at %order : tensor<?x32xf32>, tensor<?xi32>
  %g = lm.linear %rows, %gate experts(%offsets) {site = "mlp.experts.gate_proj"} : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<5xi32>) -> tensor<?x32xf32>
  %u = lm.linear %rows, %up experts(%offsets) {site = "mlp.experts.up_proj"} : (tensor<?x32xf32>, tensor<128x32xf32>, tensor<5xi32>) -> tensor<?x32xf32>
  %h = lm.glu silu %g, %u : tensor<?x32xf32>
  %y = lm.combine %h, %places, %weights : tensor<?x32xf32>, tensor<?x2xi32>, tensor<?x2xf32>
  return %y : tensor<?x32xf32>
}

func.func @forward(%x: tensor<?x32xf32>) -> tensor<?x32xf32> {
  %y = call @layer_0(%x) : (tensor<?x32xf32>) -> tensor<?x32xf32>
  return %y : tensor<?x32xf32>
}
