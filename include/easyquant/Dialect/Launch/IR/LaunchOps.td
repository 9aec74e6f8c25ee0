//===- LaunchOps.td - Launches of kernels ------------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_LAUNCH_IR_LAUNCHOPS
#define EASYQUANT_DIALECT_LAUNCH_IR_LAUNCHOPS

include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/CommonAttrConstraints.td"
include "mlir/IR/CommonTypeConstraints.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Launch_Dialect : Dialect {
  let name = "launch";
  let cppNamespace = "::easyquant::launch";
  let summary = "A step of a model as launches of kernels on planned memory";
  let description = [{
    What a step does on one device, CPU or GPU: kernels, one after another, on parts of a few ranges of memory. A step is a
    function of straight-line code on memrefs: its arguments are what is given at run time (tokens, sequences, cache, memory for
    its results), constants are `memref.get_global`s with an offset into the artifact's weights, activations are
    `launch.buffer`s, and parts of them `memref.subview`s. Nothing else of a step is decided below this level, so that a
    printed module shows every launch, its memory and its site.

    `docs/rationale/Launch.md` says why.
  }];
}

class Launch_Op<string mnemonic, list<Trait> traits = []> : Op<Launch_Dialect, mnemonic, traits>;

def Launch_Bytes : MemRefRankOf<[I8], [1]>;

def Launch_BufferOp : Launch_Op<"buffer", [Pure]> {
  let summary = "rows of an activation";
  let description = [{
    Memory for `rows` rows, at most the step's `launch.max_rows`, from byte `offset` of the arena on, which
    `launch-place-buffers` gives it.

    ```mlir
    %b = launch.buffer(%rows) {offset = 4096 : i64} : memref<?x576xf32>
    ```
  }];
  let arguments = (ins Index:$rows, OptionalAttr<ConfinedAttr<I64Attr, [IntNonNegative]>>:$offset);
  let results = (outs AnyMemRef:$memory);
  let assemblyFormat = "`(` $rows `)` attr-dict `:` type($memory)";
  let hasVerifier = 1;
}

def Launch_ScratchOp : Launch_Op<"scratch", [Pure]> {
  let summary = "memory that no launch leaves anything in for another";
  let description = [{
    `bytes` bytes behind all buffers, of each thread of a CPU where `per_thread` says so. All launches share them.

    ```mlir
    %s = launch.scratch 1024 per_thread : memref<?xi8>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$bytes, UnitAttr:$per_thread);
  let results = (outs Launch_Bytes:$memory);
  let assemblyFormat = "$bytes (`per_thread` $per_thread^)? attr-dict `:` type($memory)";
}

def Launch_CountersOp : Launch_Op<"counters", [Pure]> {
  let summary = "int32s that are zero before and after every launch";
  let description = [{
    ```mlir
    %c = launch.counters : memref<96xi32>
    ```
  }];
  let results = (outs MemRefRankOf<[I32], [1]>:$memory);
  let assemblyFormat = "attr-dict `:` type($memory)";
}

def Launch_CacheOp : Launch_Op<"cache", [Pure, AllTypesMatch<["cache", "memory"]>]> {
  let summary = "the cache from a byte on";
  let description = [{
    What a layer's part of a page, or of a window, that lies at byte 0 would be.

    ```mlir
    %layer = launch.cache %cache from 24576 : memref<?xi8>
    ```
  }];
  let arguments = (ins Launch_Bytes:$cache, ConfinedAttr<I64Attr, [IntNonNegative]>:$offset);
  let results = (outs Launch_Bytes:$memory);
  let assemblyFormat = "$cache `from` $offset attr-dict `:` type($cache)";
}

def Launch_KernelOp : Launch_Op<"kernel", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the launch of a kernel";
  let description = [{
    Launches a kernel for `site`; it counts as `phase` (`easyquant/Formats/Phase.h`). The operands numbered in `writes` are
    written, and may be read; the others are read. With `rows` the launch happens for so many rows of its own, `rows[1]` = 0
    being no limit. A launch for `each_sequence`, which only GPUs have, happens once for each sequence of the step, a run of
    them for one sequence after the other: rows of activations are then those of the sequence, as are the step's arguments
    `position`, `held`, `pages` and `window`, and `rows` counts them, so that a sequence gets the kernels that it would get
    alone. Where several threads run a kernel together, each touches its share of the operands numbered in `shares` and no
    other's: rows, which are shared out alike by all kernels over as many rows, or its part of the scratch. A kernel that
    `meets` touches the shares first; behind a barrier of its own it reads what it wrote of them, and touches the rest. Operands are the kernel's parameters in their order:
    memory, and numbers of type index, f32 or i32. A kernel on a CPU is a `func.func` that takes behind them what every such
    kernel takes (`easyquant/Codegen/CPU/Kernels.h`); on a GPU it is a `gpu.func`, memory a pointer and an index an i32.

    ```mlir
    launch.kernel @linear_576x576_f32(%x, %w, %y, %s) {phase = "gemm", site = "q_proj", writes = array<i64: 2, 3>}
      : memref<?x576xf32>, memref<576x576xf32>, memref<?x576xf32>, memref<?xi8>
    ```
  }];
  let arguments = (ins SymbolRefAttr:$kernel, Variadic<AnyType>:$arguments, StrAttr:$site, StrAttr:$phase,
                       DenseI64ArrayAttr:$writes, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$shares, UnitAttr:$meets,
                       UnitAttr:$each_sequence,
                       OptionalAttr<ConfinedAttr<DenseI64ArrayAttr, [DenseArrayCount<2>]>>:$rows);
  let assemblyFormat = "$kernel `(` $arguments `)` attr-dict (`:` type($arguments)^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool isWritten(int64_t operand) { return ::llvm::is_contained(getWrites(), operand); }
    bool isShared(int64_t operand) { return ::llvm::is_contained(getShares(), operand); }
  }];
}

def Launch_HostOp : Launch_Op<"host", []> {
  let summary = "what the program's caller computes";
  let description = [{
    Calls the function that a program of calibration is given, with the number `call` and the operands, of which it writes
    those numbered in `writes` (`easyquant/Conversion/LaunchesToLLVM/HostCalls.h`).

    ```mlir
    launch.host 0(%dy, %x, %dw) {site = "q_proj", writes = array<i64: 2>}
      : memref<?x576xf32>, memref<?x576xf32>, memref<576x576xf32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$call, Variadic<AnyType>:$arguments, StrAttr:$site,
                       DenseI64ArrayAttr:$writes);
  let assemblyFormat = "$call `(` $arguments `)` attr-dict (`:` type($arguments)^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = "bool isWritten(int64_t operand) { return ::llvm::is_contained(getWrites(), operand); }";
}

def Launch_CollectiveOp : Launch_Op<"collective", []> {
  let summary = "the start of a collective among ranks";
  let description = [{
    Starts collective number `id` of the step, in place on all rows of `memory`, and does not wait for it: nothing may touch the memory
    until `launch.wait` of the same number. `all_reduce` combines the memory of all ranks by `reduction`; after `all_gather` the
    memory has the columns of every rank, of which each has written its own share, the one of its number: columns of all rows, or
    (`memref.reinterpret_cast`, on GPUs) a block of rows of its own, behind those of the ranks before it, which whoever reads the
    memory puts side by side. Ranks start the same collectives in the same order. On CPUs one thread starts it, behind a barrier; on
    GPUs it is done in the order of the step's queue.

    ```mlir
    launch.collective 3(%sums) {call = "all_reduce", reduction = "sum", site = "model.layers.0.mlp.down_proj"} : memref<?x576xi32>
    launch.wait 3(%sums) {site = "model.layers.0.mlp.down_proj"} : memref<?x576xi32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$id, StrAttr:$call, AnyMemRef:$memory, StrAttr:$reduction, StrAttr:$site);
  let assemblyFormat = "$id `(` $memory `)` attr-dict `:` type($memory)";
  let hasVerifier = 1;
}

def Launch_WaitOp : Launch_Op<"wait", []> {
  let summary = "waits for a collective";
  let description = [{
    Behind it `memory` holds the result of collective number `id`, which was started on it.

    ```mlir
    launch.wait 3(%sums) {site = "model.layers.0.mlp.down_proj"} : memref<?x576xi32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$id, AnyMemRef:$memory, StrAttr:$site);
  let assemblyFormat = "$id `(` $memory `)` attr-dict `:` type($memory)";
}

#endif // EASYQUANT_DIALECT_LAUNCH_IR_LAUNCHOPS
