// RUN: not easyquant-opt %s --equant-simquant-kv="scheme=int3" 2>&1 | FileCheck %s --check-prefix=SCHEME
// RUN: not easyquant-opt %s --equant-simquant-kv="residual=100" 2>&1 | FileCheck %s --check-prefix=RESIDUAL
// RUN: not easyquant-opt %s --equant-simquant-kv="residual=0" 2>&1 | FileCheck %s --check-prefix=NONE
// RUN: not easyquant-opt %s --equant-simquant-kv="group=48 residual=96" 2>&1 | FileCheck %s --check-prefix=POWER
// RUN: not easyquant-opt %s --equant-simquant-kv 2>&1 | FileCheck %s --check-prefix=DIVIDE
// RUN: not easyquant-opt %s --equant-simquant-kv="sinks=-1" 2>&1 | FileCheck %s --check-prefix=SINKS
// RUN: not easyquant-opt %s --equant-simquant-kv="keys=rope" 2>&1 | FileCheck %s --check-prefix=KEYS
// RUN: not easyquant-opt %s --equant-simquant-kv="key-scales=group" 2>&1 | FileCheck %s --check-prefix=SCALES
// RUN: not easyquant-opt %s --equant-simquant-kv="group=32 keys=pre-rope" 2>&1 | FileCheck %s --check-prefix=ROPE
// RUN: sed -e s/96/40/g %s | not easyquant-opt --equant-simquant-kv="keys=hadamard" 2>&1 | FileCheck %s --check-prefix=BASIS
// RUN: echo "module {}" | not easyquant-opt --equant-simquant-kv 2>&1 | FileCheck %s --check-prefix=EMPTY

// SCHEME: error: unknown KV scheme 'int3'; legal are none, int8, int4 and int2
// RESIDUAL: error: KV residual of 100 tokens: expected a positive multiple of the group of 64
// NONE: error: KV residual of 0 tokens: expected a positive multiple of the group of 64
// POWER: error: KV group of 48: expected a power of two from 16 to 1024
// DIVIDE: error: layer 0: KV group of 64: does not divide heads of 96 dimensions; give a power of two that does, or that is not less, such as 32
// SINKS: error: KV residual of 128 tokens and -1 sinks: {{.*}}no negative number
// KEYS: error: unknown place of KV keys 'rope'; legal are post-rope, pre-rope and hadamard
// SCALES: error: unknown scales of KV keys 'group'; legal are channel and token
// ROPE: error: keys=pre-rope: layer 0 has no keys that lm.rope rotates by their position; take keys=post-rope
// BASIS: error: keys=hadamard: layer 0 has heads of 40 dimensions, which are no whole blocks of 16; take keys=post-rope
// EMPTY: error: there is no lm.attention whose cache could be quantized

!cache = !lm.kv_cache<layers = 1, kv_heads = 1, head_dim = 96>

func.func private @layer_0(%q: tensor<?x96xf32>, %batch: !lm.batch, %cache: !cache) -> tensor<?x96xf32> {
  %y = lm.attention %q, %q, %q, %cache, %batch
         {layer = 0 : i64, num_heads = 1 : i64, num_kv_heads = 1 : i64, head_dim = 96 : i64, scale = 1.25e-01 : f64}
         : tensor<?x96xf32>, tensor<?x96xf32>, !cache
  return %y : tensor<?x96xf32>
}
