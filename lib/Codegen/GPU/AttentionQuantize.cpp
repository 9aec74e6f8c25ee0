//===- AttentionQuantize.cpp - Codes of keys and values -------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The steps of easyquant/Numerics/KVCache.h, to the bit. Behind every row of the step one token of
// its sequence is too old for values that are floats, and behind every R rows as many for keys: a
// block has the values of one token, or the keys of a group of them, of one head. They come from
// the float window, or from the step itself.
//
// The places that they leave in the window are those of the tokens that come R later. The block
// that has read a place writes what is there in the end, and no other block touches it.
//
//===----------------------------------------------------------------------===//

#include "AttentionCache.h"

#include <limits>
#include <numeric>

using namespace mlir;

namespace easyquant::gpu {
namespace {

class QuantizeEmitter {
public:
  QuantizeEmitter(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments)
      : b(b), spec(spec), arguments(arguments), place(b, arguments, b.block(0)),
        sequence(b, arguments, place.sequence), codes(b, spec, arguments, sequence),
        kv(codes.layout.kv), runs(codes.layout.width / kRun), head(b.block(1)),
        position(sequence.position), end(b.add(position, sequence.rows)) {}

  void emit();

private:
  using Values = KernelBuilder::Values;
  static constexpr int64_t kRun = 8; ///< dimensions that a thread has at once
  struct Slice {
    Value minimum, scale;
  };

  /// Elements of a token as f32.
  Values read(bool keys, Value token, Value dim, int64_t count);
  Slice slice(Value minimum, Value maximum);
  /// Quantizes a run and writes its codes.
  void store(bool keys, Value page, Value token, Value dim, const Values &x,
             llvm::function_ref<Slice(int64_t)> sliceOf);
  void emitTokens(bool keys, Value first, int64_t tokens);
  void emitChannels(Value first);
  /// Brings to the places of the step's tokens from `first` on, below `limit`, those that are there
  /// in the end: every R tokens later another one takes a place, but for those of sinks.
  void append(bool keys, Value first, int64_t tokens, Value limit);

  KernelBuilder &b;
  const AttentionSpec &spec;
  const KernelArguments &arguments;
  const PlaceOfRow place;
  const StepSequence sequence;
  CodePlaces codes;
  const numerics::KVScheme &kv;
  const int64_t runs;        ///< of a token's slice
  Value head, position, end; ///< tokens of the step are [position, end)
};

} // namespace

QuantizeEmitter::Values QuantizeEmitter::read(bool keys, Value token, Value dim, int64_t count) {
  Type half = b.type(Float::F16), type = count == 1 ? half : Type(b.vec(count, half));
  Value x = b.guarded(b.less(token, position), b.zero(type), [&] {
    return b.load(b.advance(codes.floatRow(keys, head, token), dim, half), type);
  });
  x = b.guarded(b.less(b.sub(position, 1), token), x, [&] {
    return readStepRow(b, spec, arguments, keys, head, rowOfToken(b, sequence, token), dim, count);
  });
  Values values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(b.toF32(b.extract(x, i)));
  return values;
}

QuantizeEmitter::Slice QuantizeEmitter::slice(Value minimum, Value maximum) {
  Value levels = b.constant(b.f32(), static_cast<double>((1 << kv.bits) - 1));
  Value scale = b.subf(b.divf(maximum, levels), b.divf(minimum, levels));
  scale = b.toF32(b.fromF32(saturateToHalf(b, scale), Float::F16));
  scale = b.larger(scale, b.constant(b.f32(), numerics::kvLeastScale(numerics::CacheFloat::F16)));
  Value constant = b.compare(arith::CmpFPredicate::OEQ, minimum, maximum);
  return {minimum, b.select(constant, b.constant(b.f32(), 1.0), scale)};
}

void QuantizeEmitter::store(bool keys, Value page, Value token, Value dim, const Values &x,
                            llvm::function_ref<Slice(int64_t)> sliceOf) {
  const int64_t bits = kv.bits;
  Value levels = b.constant(b.f32(), static_cast<double>((1 << bits) - 1));
  // At 1.5 * 2^23 the last bit of a float weighs 1: the addition rounds.
  Value magic = b.constant(b.f32(), 0x1.8p23);
  Value words[2] = {b.i32(0), b.i32(0)};
  for (auto [i, value] : llvm::enumerate(x)) {
    Slice s = sliceOf(static_cast<int64_t>(i));
    Value steps = b.smaller(b.divf(b.subf(value, s.minimum), s.scale), levels);
    Value code = b.sub(b.bitcast(b.addf(steps, magic), b.i32()), b.bitcast(magic, b.i32()));
    int64_t bit = bits == 8 ? 8 * i : 4 * bits * (i % 2) + bits * (i / 2);
    Value &word = words[bit / 32];
    word = b.ori(word, b.shl(code, bit % 32));
  }
  Value to = b.advance(codes.codeRow(keys, page, head, b.sub(token, kv.sinks)),
                       b.mul(b.div(dim, kRun), bits), b.i8());
  if (bits == 8)
    b.store(b.join({words[0], words[1]}), to);
  else if (bits == 4)
    b.store(words[0], to);
  else
    b.store(arith::TruncIOp::create(b, b.getI16Type(), words[0]), to);
}

/// A slice belongs to a warp.
void QuantizeEmitter::emitTokens(bool keys, Value first, int64_t tokens) {
  const CodeCache &layout = codes.layout;
  const int64_t warps = kCacheThreads / 32, passes = divideCeil(runs, 32);
  Value lane = b.rem(b.thread(), 32), warp = b.div(b.thread(), 32);
  b.forLoop(warp, tokens * layout.slices, warps, [&](Value unit) {
    Value token = b.add(first, b.div(unit, layout.slices)), part = b.rem(unit, layout.slices);
    Value start = b.mul(part, layout.width), page = codes.page(b.sub(token, kv.sinks));
    auto runOf = [&](int64_t pass) { return b.add(lane, pass * 32); };
    auto inside = [&](int64_t pass) {
      return (pass + 1) * 32 > runs ? b.less(runOf(pass), runs) : Value();
    };
    auto dimOf = [&](Value run) { return b.add(start, b.mul(run, kRun)); };
    Value minimum, maximum;
    SmallVector<Values> kept;
    for (int64_t pass = 0; pass < passes; ++pass) {
      // Behind the end, the last run once more.
      Value run = b.min(runOf(pass), runs - 1);
      kept.push_back(read(keys, token, dimOf(run), kRun));
      for (Value x : kept.back()) {
        minimum = minimum ? b.smaller(x, minimum) : x;
        maximum = maximum ? b.larger(x, maximum) : x;
      }
    }
    for (int64_t mask = 16; mask > 0; mask /= 2) {
      minimum = b.smaller(b.shuffleXor(minimum, mask), minimum);
      maximum = b.larger(b.shuffleXor(maximum, mask), maximum);
    }
    Slice own = slice(minimum, maximum);
    for (int64_t pass = 0; pass < passes; ++pass)
      b.ifThen(inside(pass), [&] {
        store(keys, page, token, dimOf(runOf(pass)), kept[pass], [&](int64_t) { return own; });
      });
    b.ifThen(b.equal(lane, 0), [&] {
      Value both = b.fromF32(b.join({own.minimum, own.scale}), Float::F16);
      Value slices = codes.tokenSlices(keys, page, head, b.sub(token, kv.sinks));
      b.store(both, b.advance(slices, b.mul(part, 2), b.type(Float::F16)));
    });
  });
}

/// The codes of the group of keys that begins with token `first`.
void QuantizeEmitter::emitChannels(Value first) {
  const int64_t headDim = spec.headDim;
  Type half = b.type(Float::F16);
  Value shared = b.sharedMemory(2 * headDim * 4);
  Value minima = shared, scales = b.advance(shared, headDim, b.f32());
  Value number = b.sub(first, kv.sinks), page = codes.page(number);
  Value slices = codes.channelSlices(page, head, number);
  b.forLoop(b.thread(), headDim, kCacheThreads, [&](Value dim) {
    double infinity = std::numeric_limits<double>::infinity();
    Values extrema = {b.constant(b.f32(), infinity), b.constant(b.f32(), -infinity)};
    extrema =
        b.forLoop(first, b.add(first, kv.group), 1, extrema, [&](Value token, ValueRange carried) {
          Value x = read(/*keys=*/true, token, dim, 1).front();
          return Values{b.smaller(x, carried[0]), b.larger(x, carried[1])};
        });
    Slice own = slice(extrema[0], extrema[1]);
    b.store(own.minimum, b.advance(minima, dim, b.f32()));
    b.store(own.scale, b.advance(scales, dim, b.f32()));
    b.store(b.fromF32(own.minimum, Float::F16), b.advance(slices, dim, half));
    b.store(b.fromF32(own.scale, Float::F16), b.advance(slices, b.add(dim, headDim), half));
  });
  b.barrier();
  int64_t perToken = headDim / kRun;
  b.forLoop(b.thread(), kv.group * perToken, kCacheThreads, [&](Value unit) {
    Value token = b.add(first, b.div(unit, perToken));
    Value dim = b.mul(b.rem(unit, perToken), kRun);
    Values x = read(/*keys=*/true, token, dim, kRun);
    store(/*keys=*/true, page, token, dim, x, [&](int64_t i) {
      Value at = b.add(dim, i);
      return Slice{b.load(b.advance(minima, at, b.f32()), b.f32()),
                   b.load(b.advance(scales, at, b.f32()), b.f32())};
    });
  });
}

void QuantizeEmitter::append(bool keys, Value first, int64_t tokens, Value limit) {
  const int64_t width = std::gcd<int64_t>(spec.headDim, 4), perToken = spec.headDim / width;
  b.forLoop(b.thread(), tokens * perToken, kCacheThreads, [&](Value unit) {
    Value token = b.add(first, b.div(unit, perToken)), dim = b.mul(b.rem(unit, perToken), width);
    b.ifThen(b.both(b.less(token, end), b.less(token, limit)), [&] {
      Value behind = b.mul(b.div(b.sub(b.sub(end, 1), token), kv.residual), kv.residual);
      Value last = b.select(b.less(token, kv.sinks), token, b.add(token, behind));
      Value x =
          readStepRow(b, spec, arguments, keys, head, rowOfToken(b, sequence, last), dim, width);
      b.store(x, b.advance(codes.floatRow(keys, head, token), dim, b.type(Float::F16)));
    });
  });
}

void QuantizeEmitter::emit() {
  // All conditions are the same for all threads of a block.
  Value token = place.position, next = b.add(token, 1), oldest = b.sub(next, kv.residual);
  // Places are numbered by the first of the step's tokens that goes there, [start, start + R).
  Value start = b.max(position, kv.sinks);
  b.ifThen(b.equal(b.block(2), 0), [&] {
    b.ifThen(b.less(kv.sinks - 1, oldest), [&] { emitTokens(/*keys=*/false, oldest, 1); });
    b.barrier();
    append(/*keys=*/false, next, 1, b.add(start, kv.residual));
    // The place of the first token has been left before.
    b.ifThen(b.equal(token, position), [&] { append(/*keys=*/false, token, 1, next); });
    // So have those of keys up to the first ones that leave.
    Value full = b.mul(b.div(b.max(b.sub(token, kv.sinks), 0), kv.residual), kv.residual);
    Value isFree = b.either(b.less(b.add(full, kv.sinks - 1), start), b.less(token, kv.sinks));
    b.ifThen(isFree, [&] { append(/*keys=*/true, token, 1, next); });
  });
  Value behind = b.sub(next, kv.sinks);
  Value leave = b.both(b.less(kv.residual - 1, behind), b.equal(b.rem(behind, kv.residual), 0));
  b.ifThen(b.both(b.less(0, b.block(2)), leave), [&] {
    Value first = b.add(oldest, b.mul(b.sub(b.block(2), 1), kv.group));
    if (codes.slicesPerToken(/*keys=*/true))
      emitTokens(/*keys=*/true, first, kv.group);
    else
      emitChannels(first);
    b.barrier();
    // Keys of the step that leave have places of their own, those that were there before give them.
    append(/*keys=*/true, b.add(first, kv.residual), kv.group, b.add(position, kv.residual));
  });
}

void emitQuantize(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments) {
  QuantizeEmitter(b, spec, arguments).emit();
}

} // namespace easyquant::gpu
