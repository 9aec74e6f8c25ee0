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
include "mlir/IR/EnumAttr.td"
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

    Ops say what they do to memory, so that passes of MLIR (`cse`, `canonicalize`, `sccp`) may run between any two of ours: a
    `launch.buffer` is an allocation, and launches read and write their operands. Scratch, counters and the cache lie in one place
    however often they are named, and naming them has no effect.

    Attributes of a step, its arguments, constants and kernels (`launch.max_rows` and the like, `easyquant/Dialect/Launch/IR/Launch.h`)
    are verified where they stand.

    `docs/rationale/Launch.md` says why.
  }];
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
}

//===----------------------------------------------------------------------===//
// What launches count as, and what ranks exchange
//===----------------------------------------------------------------------===//

// The names and numbers are those of easyquant/Formats, which LaunchDialect.cpp compares when it is compiled.
class Launch_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::easyquant::launch";
  string names = "static constexpr const char *k" # name # "Names[] = {" #
                 !interleave(!foreach(case, cases, "\"" # case.str # "\""), ", ") # "};\n";
}

def Launch_Phase : Launch_Enum<"Phase", "what time is spent on", [
  I32EnumAttrCase<"Load", 0, "load">, I32EnumAttrCase<"Quantize", 1, "quantize">, I32EnumAttrCase<"Gemm", 2, "gemm">,
  I32EnumAttrCase<"Attention", 3, "attention">, I32EnumAttrCase<"Comm", 4, "comm">, I32EnumAttrCase<"Sync", 5, "sync">,
  I32EnumAttrCase<"Other", 6, "other">,
]>;

def Launch_CollectiveCall : Launch_Enum<"CollectiveCall", "what ranks do together", [
  I32EnumAttrCase<"AllReduce", 0, "all_reduce">, I32EnumAttrCase<"AllGather", 1, "all_gather">,
]>;

def Launch_Reduction : Launch_Enum<"Reduction", "what ranks' numbers are combined by", [
  I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">, I32EnumAttrCase<"Min", 2, "min">,
]>;

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

class Launch_Op<string mnemonic, list<Trait> traits = []> : Op<Launch_Dialect, mnemonic, traits>;
class Launch_Launch<string mnemonic, list<Trait> traits = []>
    : Launch_Op<mnemonic, traits # [DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]>;

def Launch_Bytes : MemRefRankOf<[I8], [1]>;

def Launch_BufferOp : Launch_Op<"buffer"> {
  let summary = "rows of an activation";
  let description = [{
    Memory for `rows` rows, at most the step's `launch.max_rows`, or `multiple` times as many, from byte `offset` of the
    arena on, which `launch-place-buffers` gives it. Two buffers are two activations, however alike they are.

    ```mlir
    %b = launch.buffer(%rows) {offset = 4096 : i64} : memref<?x576xf32>
    ```
  }];
  let arguments = (ins Index:$rows, OptionalAttr<ConfinedAttr<I64Attr, [IntNonNegative]>>:$offset,
                       DefaultValuedAttr<ConfinedAttr<I64Attr, [IntPositive, IntMaxValue<4096>]>, "1">:$multiple);
  let results = (outs Res<AnyMemRef, "", [MemAlloc]>:$memory);
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
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative, IntMaxValue<1099511627776>]>:$bytes, UnitAttr:$per_thread);
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
  let hasVerifier = 1;
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

def Launch_PiecesOp : Launch_Op<"pieces", [Pure]> {
  let summary = "the pieces that the attention of a step is cut into";
  let description = [{
    A matrix of int32s that the caller lists before each step, as `formats::PieceCut` says, whose fields the attributes are. Row 0 has the number
    of pieces in column 0; each row behind it is a `formats::Piece`. Only GPUs have pieces.

    ```mlir
    %p = launch.pieces {min_rows = 1, max_rows = 8, rows = 5, tokens = 256, origin = 0, window = 0} : memref<?x8xi32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive]>:$min_rows, ConfinedAttr<I64Attr, [IntNonNegative]>:$max_rows,
                       ConfinedAttr<I64Attr, [IntPositive]>:$rows, ConfinedAttr<I64Attr, [IntNonNegative]>:$tokens,
                       ConfinedAttr<I64Attr, [IntMaxValue<0>]>:$origin, ConfinedAttr<I64Attr, [IntNonNegative]>:$window);
  let results = (outs MemRefRankOf<[I32], [2]>:$memory);
  let assemblyFormat = "attr-dict `:` type($memory)";
}

def Launch_PartialsOp : Launch_Op<"partials", [Pure]> {
  let summary = "memory for partial sums of pieces";
  let description = [{
    As many places of `bytes` bytes as the pieces of a step say, which no launch leaves anything in for another.

    ```mlir
    %s = launch.partials 2176 : memref<?xi8>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive, IntMaxValue<1073741824>]>:$bytes);
  let results = (outs Launch_Bytes:$memory);
  let assemblyFormat = "$bytes attr-dict `:` type($memory)";
}

def Launch_PartialCountersOp : Launch_Op<"partial_counters", [Pure]> {
  let summary = "int32s of places for partial sums, zero before and after every launch";
  let description = [{
    `count` of them for each place.

    ```mlir
    %c = launch.partial_counters 3 : memref<?xi32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntPositive, IntMaxValue<1048576>]>:$count);
  let results = (outs MemRefRankOf<[I32], [1]>:$memory);
  let assemblyFormat = "$count attr-dict `:` type($memory)";
}

//===----------------------------------------------------------------------===//
// Launches
//===----------------------------------------------------------------------===//

def Launch_KernelOp : Launch_Launch<"kernel", [DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "the launch of a kernel";
  let description = [{
    Launches a kernel for `site`; it counts as `phase`. The operands numbered in `writes` are written, and may be read; the others
    are read. With `rows` the launch happens for so many rows of its own, `rows[1]` = 0 being no limit. A launch that takes
    `launch.pieces` happens where there are any. Where several threads run a
    kernel together, each touches its share of the operands numbered in `shares` and no other's: rows, which are shared out alike
    by all kernels over as many rows, or its part of the scratch. A kernel that `meets` touches the shares first; behind a barrier
    of its own it reads what it wrote of them, and touches the rest.

    Operands are the kernel's parameters in their order, and are checked against them; so is `writes`, where the kernel says which
    parameters it writes (`launch.writes`). A kernel on a CPU is a `func.func`; behind
    its operands it takes the team of threads (`!llvm.ptr, index, index`, `easyquant/Codegen/CPU/Team.h`). It takes memory as it is
    given, or of a type that leaves more open: sizes, strides, the offset. A kernel on a GPU is a `gpu.func`: memory is a pointer,
    an index an i32, and an f32 or i32 may be given for a pointer, to where the number is kept.

    ```mlir
    launch.kernel gemm @linear_576x576_f32(%x, %w, %y, %s) {site = "q_proj", writes = array<i64: 2, 3>}
      : memref<?x576xf32>, memref<576x576xf32>, memref<?x576xf32>, memref<?xi8>
    ```
  }];
  let arguments = (ins Launch_Phase:$phase, SymbolRefAttr:$kernel, Variadic<AnyType>:$arguments, StrAttr:$site,
                       DenseI64ArrayAttr:$writes, DefaultValuedAttr<DenseI64ArrayAttr, "{}">:$shares, UnitAttr:$meets,
                       OptionalAttr<ConfinedAttr<DenseI64ArrayAttr, [DenseArrayCount<2>]>>:$rows);
  let assemblyFormat = "$phase $kernel `(` $arguments `)` attr-dict (`:` type($arguments)^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = Launch_Phase.names # [{
    bool isWritten(int64_t operand) { return ::llvm::is_contained(getWrites(), operand); }
    bool isShared(int64_t operand) { return ::llvm::is_contained(getShares(), operand); }
  }];
}

def Launch_HostOp : Launch_Launch<"host"> {
  let summary = "what the program's caller computes";
  let description = [{
    Calls the function that a program of calibration is given, with the number `call` and the operands, vectors and matrices, of
    which it writes those numbered in `writes` (`easyquant/Conversion/LaunchesToLLVM/HostCalls.h`). What the caller keeps of them
    nobody sees here, so that no such call may be left out, done once for two, or done in another order.

    ```mlir
    launch.host 0(%dy, %x, %dw) {site = "q_proj", writes = array<i64: 2>}
      : memref<?x576xf32>, memref<?x576xf32>, memref<576x576xf32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$call, Variadic<AnyMemRef>:$arguments, StrAttr:$site,
                       DenseI64ArrayAttr:$writes);
  let assemblyFormat = "$call `(` $arguments `)` attr-dict (`:` type($arguments)^)?";
  let hasVerifier = 1;
  let extraClassDeclaration = "bool isWritten(int64_t operand) { return ::llvm::is_contained(getWrites(), operand); }";
}

def Launch_CollectiveOp : Launch_Launch<"collective"> {
  let summary = "the start of a collective among ranks";
  let description = [{
    Starts collective number `id` of the step, in place on all rows of `memory`, and does not wait for it: nothing may touch the memory
    until the one `launch.wait` of the same number and memory. `all_reduce` combines the memory of all ranks by `reduction`; after
    `all_gather` the memory has the columns of every rank, of which each has written its own share, the one of its number: columns
    of all rows, or (`memref.reinterpret_cast`, on GPUs) a block of rows of its own, behind those of the ranks before it. The
    reader of the memory puts these side by side. Ranks start the same collectives in the same order, numbered from 0. On CPUs one
    thread starts it, behind a barrier; on GPUs it is done in the order of the step's queue.

    ```mlir
    launch.collective 3 all_reduce sum(%sums) {site = "model.layers.0.mlp.down_proj"} : memref<?x576xi32>
    launch.wait 3(%sums) {site = "model.layers.0.mlp.down_proj"} : memref<?x576xi32>
    launch.collective 4 all_gather(%logits) {site = "lm_head"} : memref<?x96xf32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$id, Launch_CollectiveCall:$call,
                       OptionalAttr<Launch_Reduction>:$reduction, AnyMemRef:$memory, StrAttr:$site);
  let assemblyFormat = "$id $call ($reduction^)? `(` $memory `)` attr-dict `:` type($memory)";
  let hasVerifier = 1;
  let extraClassDeclaration = !strconcat(Launch_CollectiveCall.names, Launch_Reduction.names);
}

def Launch_WaitOp : Launch_Launch<"wait"> {
  let summary = "waits for a collective";
  let description = [{
    Behind it `memory` holds the result of collective number `id`, which was started on it, before in the same step.

    ```mlir
    launch.wait 3(%sums) {site = "model.layers.0.mlp.down_proj"} : memref<?x576xi32>
    ```
  }];
  let arguments = (ins ConfinedAttr<I64Attr, [IntNonNegative]>:$id, AnyMemRef:$memory, StrAttr:$site);
  let assemblyFormat = "$id `(` $memory `)` attr-dict `:` type($memory)";
  let hasVerifier = 1;
}

#endif // EASYQUANT_DIALECT_LAUNCH_IR_LAUNCHOPS
