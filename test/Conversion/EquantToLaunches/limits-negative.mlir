// RUN: not easyquant-opt %s --easyquant-launches=max-rows=0 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not easyquant-opt %s --easyquant-launches=max-rows=4611686018427387904 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: not easyquant-opt %s --easyquant-launches=max-rows=1048576 2>&1 | FileCheck %s --check-prefix=BYTES
// RUN: not easyquant-opt %s "--easyquant-emit-gpu-program=output=%t target=sm_80 max-rows=0" 2>&1 | FileCheck %s --check-prefix=ZERO
// RUN: not easyquant-opt %s "--easyquant-emit-gpu-program=output=%t target=sm_80 max-rows=4611686018427387904" 2>&1 | FileCheck %s --check-prefix=ROWS
// RUN: easyquant-opt %s --easyquant-launches=max-rows=512 | FileCheck %s --check-prefix=FITS

// ZERO: error: max-rows is 0; expected 1 to 1048576
// ROWS: error: max-rows is 4611686018427387904; expected 1 to 1048576
// BYTES: error: 'func.func' op needs more than the 140737488355328 bytes of buffers that can be addressed, for calls of up to 1048576 tokens; lower max-rows
// FITS: launch.arena_bytes = 4398046509056 : i64

func.func @forward(%x: tensor<?x2147483647xf32>) -> tensor<?x2147483647xf32> {
  %y = lm.gelu %x approximate none : tensor<?x2147483647xf32>
  %z = lm.gelu %y approximate none : tensor<?x2147483647xf32>
  return %z : tensor<?x2147483647xf32>
}
