//===- AttentionQuantized.cpp - Causal attention over a cache of codes ----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A call of M tokens sees the sinks, the keys and values that are codes, the float window, and its
// own tokens as they come. One token is appended first and then finds itself in the window; more
// attend first, for what they push out of the window they still see in float.
//
// Work is cut up as in Attention.cpp: one token into stretches of codes, and one more item a head
// for the float rows; more tokens into tiles over all that they see.
//
//===----------------------------------------------------------------------===//

#include "AttentionCodes.h"

#include "RowKernel.h"

using namespace mlir;

namespace easyquant::cpu {

namespace {

struct CodesPlan : AttentionPlan<CodesTile> {
  CodesPlan(const AttentionSpec &spec, const Target &target) : AttentionPlan(spec, target) {
    panels = std::max(prefill.tile.bytes, decode.tile.bytes * heads * (parts + 1));
    bytes = panels + std::max(prefill.bytes, decode.bytes);
  }
  int64_t panels; ///< where a thread's panels begin in its scratch
  int64_t bytes;  ///< of scratch, a thread
};

/// The arguments of the kernel.
struct CodesOperands {
  CodesOperands(const AttentionSpec &spec, ValueRange args, const Team &team)
      : q(args[0]), k(args[1]), v(args[2]), place(args.drop_front(3)),
        held(args[3 + CachePlace::kCount]), team(team) {
    args = args.drop_front(4 + CachePlace::kCount);
    if (spec.kv->ropePositions > 0) {
      table = args[0];
      args = args.drop_front();
    }
    position = args[0], y = args[1], scratch = args[2];
  }
  Value q, k, v;
  CachePlace place;
  Value held, table, position, y, scratch;
  Team team;
};

class KernelEmitter {
public:
  KernelEmitter(KernelBuilder &b, ModuleOp module, const AttentionSpec &spec, ValueRange args,
                const Team &team)
      : b(b), module(module), plan(spec, b.target), layout(plan.decode.layout),
        in(spec, args, team) {}
  void emit();

private:
  void emitDecode();
  void emitPrefill(Value tokens);
  void callCache(func::FuncOp function, ValueRange indices) {
    SmallVector<Value> operands = in.place.values();
    llvm::append_range(operands, indices);
    func::CallOp::create(b, function, operands);
  }
  void callAppend(Value begin, Value end) {
    SmallVector<Value> operands = {in.k, in.v};
    llvm::append_range(operands, in.place.values());
    operands.append({in.position, begin, end});
    func::CallOp::create(b, getOrEmitCacheAppend(module, layout, b.target), operands);
  }
  void callTile(func::FuncOp function, Value offset, Value first, Value head,
                ValueRange range = {}) {
    SmallVector<Value> operands = {in.q, in.k, in.v};
    llvm::append_range(operands, in.place.values());
    if (in.table)
      operands.push_back(in.table);
    Value panels = b.add(b.mul(in.team.thread, plan.bytes), plan.panels);
    operands.append({in.position, in.scratch, offset, panels, first, head});
    llvm::append_range(operands, range);
    func::CallOp::create(b, function, operands);
  }
  /// The first token >= begin, a whole number of steps behind it, from which on `oldest` lies in
  /// the same step or later.
  Value stepOf(Value begin, Value oldest) {
    if (layout.spec.window == 0)
      return begin;
    Value past = b.max(begin, oldest);
    Value steps = b.div(b.sub(past, begin), AttentionTile::kStep);
    return b.add(begin, b.mul(steps, AttentionTile::kStep));
  }
  /// The oldest token that the token at `at` sees.
  Value oldestSeen(Value at) {
    if (layout.spec.window == 0)
      return b.index(0);
    Value past = b.max(b.add(at, 1), layout.spec.window);
    return b.sub(past, layout.spec.window);
  }
  /// The sinks, and the window from its first key on, before token `end`.
  void callFloatRows(const CodesTile &tile, Value offset, Value first, Value head, Value oldest,
                     Value end) {
    func::FuncOp rows = getOrEmitAttendRows(module, tile, /*ofCall=*/false, b.target);
    Value none = b.index(0), sinks = b.index(layout.kv.sinks);
    if (layout.kv.sinks > 0)
      callTile(rows, offset, first, head, {stepOf(none, oldest), b.min(sinks, end)});
    callTile(rows, offset, first, head, {stepOf(b.add(sinks, keys), oldest), end});
  }

  KernelBuilder &b;
  ModuleOp module;
  CodesPlan plan;
  const CacheLayout &layout;
  CodesOperands in;
  Value keys; ///< that are codes
};

} // namespace

void KernelEmitter::emit() {
  int64_t sinks = layout.kv.sinks, residual = layout.kv.residual;
  Value tokens = b.size(in.q, 0);
  // A thread fills the cache of its heads, which the others read behind a barrier.
  auto [begin, end] = shareOf(b, layout.spec.kvHeads, in.team);
  b.ifThen(b.less(in.position, in.held), [&, begin = begin, end = end] {
    callCache(getOrEmitRestore(module, layout, b.target), {in.position, in.held, begin, end});
  });

  Value behind = b.sub(b.max(in.position, sinks), sinks);
  keys = b.mul(b.div(behind, residual), residual);
  b.ifThenElse(
      b.less(tokens, 2),
      [&, begin = begin, end = end] {
        callAppend(begin, end);
        emitBarrier(b, module, in.team);
        emitDecode();
      },
      [&, begin = begin, end = end] {
        callCache(getOrEmitMakeRoom(module, layout, b.target), {in.position, begin, end});
        emitBarrier(b, module, in.team);
        emitPrefill(tokens);
        emitBarrier(b, module, in.team);
        callAppend(begin, end);
      });
}

void KernelEmitter::emitDecode() {
  const CodesTile &tile = plan.decode;
  func::FuncOp start = getOrEmitStartTile(module, tile, b.target);
  func::FuncOp codes = getOrEmitAttendCodes(module, tile, b.target);
  func::FuncOp finish = getOrEmitFinishTile(module, tile.tile, b.target);
  Value none = b.index(0), one = b.index(1), oldest = oldestSeen(in.position);
  Value oldestNumber = b.sub(b.max(oldest, layout.kv.sinks), layout.kv.sinks);
  Value begin = stepOf(none, oldestNumber);
  Value count = b.sub(b.max(keys, begin), begin);
  // At most plan.parts parts, a whole number of steps each but the last.
  constexpr int64_t step = AttentionTile::kStep;
  Value steps = b.div(b.add(count, plan.parts * step - 1), plan.parts * step);
  Value part = b.max(b.mul(steps, step), kShortestPart);
  Value parts = arith::DivUIOp::create(b, b.sub(b.add(count, part), one), part);
  Value items = b.add(parts, 1); // the last one being the float rows

  auto [from, to] = shareOf(b, b.mul(items, plan.heads), in.team);
  b.forLoop(from, to, 1, [&](Value item) {
    Value head = arith::DivUIOp::create(b, item, items);
    Value index = b.sub(item, b.mul(head, items)), offset = b.mul(item, tile.tile.bytes);
    callTile(start, offset, none, head);
    b.ifThenElse(
        b.less(index, parts),
        [&] {
          Value first = b.add(begin, b.mul(index, part));
          callTile(codes, offset, none, head, {first, b.min(b.add(first, part), keys)});
        },
        [&] { callFloatRows(tile, offset, none, head, oldest, b.add(in.position, 1)); });
  });
  // A head in one item is finished by the thread that attended.
  b.ifThen(b.less(1, items), [&] { emitBarrier(b, module, in.team); });
  auto [firstHead, lastHead] = shareOf(b, plan.heads, in.team);
  b.forLoop(firstHead, lastHead, 1, [&](Value head) {
    Value offset = b.mul(b.mul(head, items), tile.tile.bytes);
    func::CallOp::create(b, finish, ValueRange{in.y, in.scratch, offset, items, none, head});
  });
}

void KernelEmitter::emitPrefill(Value queries) {
  const CodesTile &tile = plan.prefill;
  func::FuncOp start = getOrEmitStartTile(module, tile, b.target);
  func::FuncOp codes = getOrEmitAttendCodes(module, tile, b.target);
  func::FuncOp call = getOrEmitAttendRows(module, tile, /*ofCall=*/true, b.target);
  func::FuncOp finish = getOrEmitFinishTile(module, tile.tile, b.target);
  Value none = b.index(0), one = b.index(1);
  Value tiles = b.div(b.add(queries, tile.tile.tokens - 1), tile.tile.tokens);
  Value offset = b.mul(in.team.thread, plan.bytes);
  b.forLoop(in.team.thread, b.mul(tiles, plan.heads), in.team.threads, [&](Value item) {
    Value head = arith::DivUIOp::create(b, item, tiles);
    Value first = b.mul(b.sub(item, b.mul(head, tiles)), tile.tile.tokens);
    Value oldest = oldestSeen(b.add(in.position, first));
    Value oldestNumber = b.sub(b.max(oldest, layout.kv.sinks), layout.kv.sinks);
    Value end = b.add(in.position, b.min(b.add(first, tile.tile.tokens), queries));
    callTile(start, offset, first, head);
    callFloatRows(tile, offset, first, head, oldest, in.position);
    callTile(codes, offset, first, head, {stepOf(none, oldestNumber), keys});
    callTile(call, offset, first, head, {stepOf(in.position, oldest), end});
    func::CallOp::create(b, finish, ValueRange{in.y, in.scratch, offset, one, first, head});
  });
}

int64_t quantizedScratchBytes(const AttentionSpec &spec, const Target &target) {
  return CodesPlan(spec, target).bytes;
}

func::FuncOp getOrEmitQuantizedAttention(ModuleOp module, const AttentionSpec &spec,
                                         const Target &target) {
  auto arguments = [&](KernelBuilder &b) {
    Type queries = b.rows(spec.heads * spec.headDim), kv = b.rows(spec.kvHeads * spec.headDim);
    Type bytes = b.memref({ShapedType::kDynamic}, b.i8()), index = b.getIndexType();
    SmallVector<Type> types = {queries, kv, kv};
    llvm::append_range(types, CachePlace::types(b));
    types.push_back(index); // held
    if (int64_t positions = spec.kv->ropePositions)
      types.push_back(b.memref({positions, spec.headDim / 2, 2}, b.f32()));
    types.append({index, queries, bytes});
    return types;
  };
  return getOrEmitKernel(module, symbolName(spec), target, arguments,
                         [&](KernelBuilder &b, ValueRange args, const Team &team) {
                           KernelEmitter(b, module, spec, args, team).emit();
                         });
}

} // namespace easyquant::cpu
