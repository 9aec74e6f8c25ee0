//===- Passes.td - Passes over steps ------------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LAUNCH_TRANSFORMS_PASSES
#define EASYQUANT_DIALECT_LAUNCH_TRANSFORMS_PASSES

include "mlir/Pass/PassBase.td"

def PlaceBuffers : Pass<"launch-place-buffers", "::mlir::func::FuncOp"> {
  let summary = "Give every buffer of a step its bytes of the arena";
  let description = [{
    A buffer is alive from the first launch that uses it to the last; buffers that are never alive together may share bytes.
    Each gets the lowest offset that no buffer alive at the same time covers. Scratch comes behind all buffers.

    Before:

    ```mlir
    func.func @forward(…) attributes {launch.max_rows = 512 : i64} {
      %h = launch.buffer(%rows) : memref<?x576xf32>
    ```

    After:

    ```mlir
    func.func @forward(…) attributes {launch.arena_bytes = 4521984 : i64, launch.counter_bytes = 0 : i64,
                                      launch.max_rows = 512 : i64, launch.scratch_bytes = 4608 : i64} {
      %h = launch.buffer(%rows) {offset = 1179648 : i64} : memref<?x576xf32>
    ```
  }];
}

def PrintLaunches : Pass<"launch-print", "::mlir::func::FuncOp"> {
  let summary = "Print the launches of a step, what they cost and what they wait for";
  let description = [{
    Prints to standard output one line a launch: its number, phase and site; its kernel, and for how many rows; the bytes of
    constants that it reads, those that it reads and writes a row (without the cache); and the latest launches that it depends
    on: others that it depends on come before these.

    ```
      1 quantize  model.layers.0.input_layernorm  @rms_norm_576_dynamic  reads 2304 + 2304/row, writes 588/row  after 0
    ```
  }];
}

#endif // EASYQUANT_DIALECT_LAUNCH_TRANSFORMS_PASSES
