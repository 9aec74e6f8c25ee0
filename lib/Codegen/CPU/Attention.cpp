//===- Attention.cpp - Causal attention over a key/value cache ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The threads append their shares of a call's tokens to the cache, meet, and share out tiles
// (AttentionTile.h):
//
//   one token     a tile per kv head and stretch of cached tokens ("flash decoding"), whose results
//                 are combined at the end; the stretches depend on the position alone
//   more tokens   a tile per kv head and few tokens, over all that they see; the tiles of a head
//   are
//                 dealt out in turn, for later tokens see more
//
// What a tile computes does not depend on who computes it: the bits are those of one thread.
//
//===----------------------------------------------------------------------===//

#include "AttentionTile.h"
#include "RowKernel.h"

#include "llvm/ADT/bit.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace easyquant::cpu {

using FloatPlan = AttentionPlan<AttentionTile>;

std::string symbolName(const AttentionSpec &spec) {
  std::string name =
      llvm::formatv("attention_{0}of{1}x{2}_scale{3:x-}", spec.heads, spec.kvHeads, spec.headDim,
                    llvm::bit_cast<uint32_t>(static_cast<float>(spec.scale)));
  if (spec.window > 0)
    name += llvm::formatv("_window{0}", spec.window);
  name += spec.halfCache ? "_f16" : "_f32";
  if (const std::optional<KVQuantization> &kv = spec.kv) {
    name += llvm::formatv("_kv{0}_group{1}_residual{2}_sinks{3}", kv->bits, kv->group, kv->residual,
                          kv->sinks);
    if (kv->keysPerToken)
      name += "_token";
    if (kv->ropePositions > 0)
      name += llvm::formatv("_rope{0}", kv->ropePositions);
  }
  return name;
}

int64_t scratchBytes(const AttentionSpec &spec, const Target &target) {
  if (spec.kv)
    return quantizedScratchBytes(spec, target);
  FloatPlan plan(spec, target);
  // Decoding uses the first thread's share for all its tiles.
  return std::max(plan.prefill.bytes, plan.decode.bytes * plan.heads * plan.parts);
}

namespace {

/// Writes tokens of one head to the cache.
class AppendEmitter {
public:
  AppendEmitter(KernelBuilder &b, const AttentionSpec &spec, ValueRange args)
      : b(b), spec(spec), columns(spec.headDim), k(args[0]), v(args[1]), keys(args[2]),
        values(args[3]), position(args[4]) {}
  void emit(Value head, Value begin, Value end);

private:
  /// Tokens whose keys are transposed in registers.
  static constexpr int64_t kTransposed = 8;

  /// Where dimension 0 of the key of a token lies; the others are a block apart.
  Value keyStart(Value token) {
    Value slot = b.add(position, token);
    Value block = b.mul(b.div(slot, kCacheBlock), columns * kCacheBlock);
    return b.add(b.add(headStart, block), b.rem(slot, kCacheBlock));
  }
  void emitKeysOneByOne(Value begin, Value end, int64_t firstDim);
  void emitEightKeys(Value token);

  KernelBuilder &b;
  const AttentionSpec &spec;
  int64_t columns;
  Value k, v, keys, values, position;
  Value headStart, headColumn;
};

} // namespace

void AppendEmitter::emitKeysOneByOne(Value begin, Value end, int64_t firstDim) {
  if (firstDim == columns)
    return;
  b.forLoop(begin, end, 1, [&](Value token) {
    Value start = keyStart(token);
    b.forLoop(firstDim, columns, 1, [&](Value dim) {
      Value element = b.load(k, {token, b.add(headColumn, dim)});
      b.store(toCache(b, spec, element), keys, {b.add(start, b.mul(dim, kCacheBlock))});
    });
  });
}

/// Half a block of the cache, as many dimensions at a time as there are tokens.
void AppendEmitter::emitEightKeys(Value token) {
  Value start = keyStart(token);
  int64_t dims = columns / kTransposed * kTransposed;
  b.forLoop(0, dims, kTransposed, [&](Value dim) {
    SmallVector<Value> rows;
    for (int64_t i = 0; i < kTransposed; ++i)
      rows.push_back(b.loadVector(kTransposed, k, {b.add(token, i), b.add(headColumn, dim)}));
    for (auto [i, row] : llvm::enumerate(b.transpose8(rows)))
      b.storeVector(toCache(b, spec, row), keys,
                    {b.add(start, b.mul(b.add(dim, static_cast<int64_t>(i)), kCacheBlock))});
  });
  emitKeysOneByOne(token, b.add(token, kTransposed), dims);
}

void AppendEmitter::emit(Value head, Value begin, Value end) {
  Value capacity = b.div(b.size(keys, 0), spec.kvHeads * columns);
  headStart = b.mul(b.mul(head, capacity), columns);
  headColumn = b.mul(head, columns);
  // Eight at a time from the first that starts half a block of the cache.
  Value into = b.rem(b.add(position, begin), kTransposed);
  Value aligned = b.min(b.add(begin, b.rem(b.sub(kTransposed, into), kTransposed)), end);
  Value left = b.sub(end, aligned);
  Value alignedEnd = b.add(aligned, b.sub(left, b.rem(left, kTransposed)));
  emitKeysOneByOne(begin, aligned, 0);
  b.forLoop(aligned, alignedEnd, kTransposed, [&](Value token) { emitEightKeys(token); });
  emitKeysOneByOne(alignedEnd, end, 0);
  b.forLoop(begin, end, 1, [&](Value token) {
    Value start = b.add(headStart, b.mul(b.add(position, token), columns));
    forColumns(b, 0, columns, b.target.lanes(), [&](Value dim, int64_t lanes) {
      Value elements = b.loadVector(lanes, v, {token, b.add(headColumn, dim)});
      b.storeVector(toCache(b, spec, elements), values, {b.add(start, dim)});
    });
  });
}

/// append(k, v, keys, values, position, begin, end): writes the tokens [begin, end) of the call.
static func::FuncOp getOrEmitAppend(ModuleOp module, const AttentionSpec &spec,
                                    const Target &target) {
  auto arguments = [&](KernelBuilder &b) {
    Type rows = b.rows(spec.kvHeads * spec.headDim), index = b.getIndexType();
    Type cache = b.memref({ShapedType::kDynamic}, cacheElement(b, spec));
    return SmallVector<Type>{rows, rows, cache, cache, index, index, index};
  };
  return getOrEmitFunction(module, symbolName(spec) + "_append", target, arguments,
                           [&](KernelBuilder &b, ValueRange args) {
                             AppendEmitter append(b, spec, args);
                             b.forLoop(0, spec.kvHeads, 1,
                                       [&](Value head) { append.emit(head, args[5], args[6]); });
                           });
}

namespace {

/// The arguments of the kernel that its parts pass on.
struct FloatOperands {
  Value q, keys, values, position, y, scratch;
  Team team;
};

} // namespace

/// position - window + 1 rounded down to a block: the first cached token that the token at
/// `position` sees.
static Value firstSeen(KernelBuilder &b, const AttentionSpec &spec, Value position) {
  if (spec.window == 0)
    return b.index(0);
  Value past = b.max(b.add(position, 1), spec.window);
  return b.mul(b.div(b.sub(past, spec.window), kCacheBlock), kCacheBlock);
}

static void emitDecode(KernelBuilder &b, ModuleOp module, const FloatPlan &plan,
                       const FloatOperands &in) {
  const AttentionTile &tile = plan.decode;
  func::FuncOp attend = getOrEmitAttendTile(module, tile, b.target);
  func::FuncOp finish = getOrEmitFinishTile(module, tile, b.target);
  Value begin = firstSeen(b, tile.spec, in.position), end = b.add(in.position, 1);
  Value count = b.sub(end, begin);
  // At most plan.parts parts, a whole number of steps each but the last.
  constexpr int64_t step = AttentionTile::kStep;
  Value steps = b.div(b.add(count, plan.parts * step - 1), plan.parts * step);
  Value part = b.max(b.mul(steps, step), kShortestPart);
  Value one = b.index(1);
  Value parts = b.add(arith::DivUIOp::create(b, b.sub(count, one), part).getResult(), one);

  auto [from, to] = shareOf(b, b.mul(parts, plan.heads), in.team);
  b.forLoop(from, to, 1, [&](Value item) {
    Value head = arith::DivUIOp::create(b, item, parts);
    Value start = b.add(begin, b.mul(b.sub(item, b.mul(head, parts)), part));
    Value stop = b.min(b.add(start, part), end);
    func::CallOp::create(b, attend,
                         ValueRange{in.q, in.keys, in.values, in.position, in.scratch,
                                    b.mul(item, tile.bytes), b.index(0), head, start, stop});
  });
  // A head in one part is finished by the thread that attended.
  b.ifThen(b.less(1, parts), [&] { emitBarrier(b, module, in.team); });
  auto [first, last] = shareOf(b, plan.heads, in.team);
  b.forLoop(first, last, 1, [&](Value head) {
    Value offset = b.mul(b.mul(head, parts), tile.bytes);
    func::CallOp::create(b, finish, ValueRange{in.y, in.scratch, offset, parts, b.index(0), head});
  });
}

static void emitPrefill(KernelBuilder &b, ModuleOp module, const FloatPlan &plan,
                        const FloatOperands &in) {
  const AttentionTile &tile = plan.prefill;
  func::FuncOp attend = getOrEmitAttendTile(module, tile, b.target);
  func::FuncOp finish = getOrEmitFinishTile(module, tile, b.target);
  Value queries = b.size(in.q, 0);
  Value tiles = b.div(b.add(queries, tile.tokens - 1), tile.tokens);
  Value offset = b.mul(in.team.thread, tile.bytes);
  b.forLoop(in.team.thread, b.mul(tiles, plan.heads), in.team.threads, [&](Value item) {
    Value head = arith::DivUIOp::create(b, item, tiles);
    Value first = b.mul(b.sub(item, b.mul(head, tiles)), tile.tokens);
    Value begin = firstSeen(b, tile.spec, b.add(in.position, first));
    Value end = b.add(in.position, b.min(b.add(first, tile.tokens), queries));
    func::CallOp::create(b, attend,
                         ValueRange{in.q, in.keys, in.values, in.position, in.scratch, offset,
                                    first, head, begin, end});
    func::CallOp::create(b, finish, ValueRange{in.y, in.scratch, offset, b.index(1), first, head});
  });
}

func::FuncOp getOrEmitAttention(ModuleOp module, const AttentionSpec &spec, const Target &target) {
  std::string name = symbolName(spec);
  if (auto existing = module.lookupSymbol<func::FuncOp>(name))
    return existing;
  if (spec.kv)
    return getOrEmitQuantizedAttention(module, spec, target);
  func::FuncOp append = getOrEmitAppend(module, spec, target);
  FloatPlan plan(spec, target);
  auto arguments = [&](KernelBuilder &b) {
    Type queries = b.rows(spec.heads * spec.headDim), kv = b.rows(spec.kvHeads * spec.headDim);
    Type cache = b.memref({ShapedType::kDynamic}, cacheElement(b, spec)), index = b.getIndexType();
    Type scratch = b.memref({ShapedType::kDynamic}, b.i8());
    return SmallVector<Type>{queries, kv, kv, cache, cache, index, queries, scratch};
  };
  auto build = [&](KernelBuilder &b, ValueRange args, const Team &team) {
    Value k = args[1], v = args[2];
    FloatOperands in{args[0], args[3], args[4], args[5], args[6], args[7], team};
    Value tokens = b.size(in.q, 0);
    auto [begin, end] = shareOf(b, tokens, team);
    func::CallOp::create(b, append, ValueRange{k, v, in.keys, in.values, in.position, begin, end});
    emitBarrier(b, module, team);
    b.ifThenElse(
        b.less(tokens, 2), [&] { emitDecode(b, module, plan, in); },
        [&] { emitPrefill(b, module, plan, in); });
  };
  return getOrEmitKernel(module, name, target, arguments, build);
}

} // namespace easyquant::cpu
