//===- AttentionCache.cpp - A layer's cache in device memory --------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionCache.h"

#include <numeric>

using namespace mlir;

namespace easyquant::gpu {

static Value selectIf(KernelBuilder &b, arith::CmpFPredicate predicate, Value x, double bound,
                      Value then, Value otherwise) {
  Value is = b.compare(predicate, x, b.constant(x.getType(), bound));
  return b.select(is, then, otherwise);
}

Value saturateToHalf(KernelBuilder &b, Value x) {
  constexpr double kLargest = 65504.0;
  Value above =
      selectIf(b, arith::CmpFPredicate::OGT, x, kLargest, b.constant(b.f32(), kLargest), x);
  return selectIf(b, arith::CmpFPredicate::OLT, x, -kLargest, b.constant(b.f32(), -kLargest),
                  above);
}

Value finiteHalf(KernelBuilder &b, Value x) {
  Value number = b.compare(arith::CmpFPredicate::ORD, x, x);
  return saturateToHalf(b, b.select(number, x, b.zero(b.f32())));
}

/// The layer's part of page n: pages[n] is in bytes.
static Value pageOf(KernelBuilder &b, Value cache, Value pages, Value n) {
  Value byte = b.load(b.advance(pages, n, b.i64()), b.i64(), /*constant=*/true);
  return b.advance(cache, byte, b.i8());
}

Value pagesOf(KernelBuilder &b, const KernelArguments &arguments, const StepSequence &sequence) {
  return b.advance(arguments["pages"], sequence.firstPage, b.i64());
}

Value FloatCache::page(Value token) {
  return pageOf(b, cache, pages, b.div(token, numerics::kPageTokens));
}

Value FloatCache::row(bool keys, Value page, Value head, Value token) {
  const int64_t ofKeys = floatPageBytes(spec);
  Value part = b.rowOf(page, head, 2 * ofKeys, b.i8());
  if (!keys)
    part = b.advance(part, ofKeys, b.i8());
  return b.rowOf(part, b.rem(token, numerics::kPageTokens), spec.headDim, b.type(Float::F16));
}

//===- Codes --------------------------------------------------------------===//

CodePlaces::CodePlaces(KernelBuilder &b, const AttentionSpec &spec,
                       const KernelArguments &arguments, const StepSequence &sequence)
    : layout(spec), b(b), spec(spec), cache(arguments["cache"]),
      pages(pagesOf(b, arguments, sequence)) {
  window = b.rowOf(arguments["windows"], sequence.window, arguments["window_bytes"], b.i8());
}

Value CodePlaces::floatRow(bool keys, Value head, Value token) {
  const numerics::KVScheme &kv = layout.kv;
  Value row = b.add(b.rem(b.sub(token, kv.sinks), kv.residual), kv.sinks);
  if (kv.sinks > 0)
    row = b.select(b.less(token, kv.sinks), token, row);
  return b.rowOf(b.advance(window, keys ? layout.floatKeys : layout.floatValues, b.i8()),
                 b.add(b.mul(head, layout.floatRows), row), spec.headDim, b.type(Float::F16));
}

Value CodePlaces::page(Value i) { return pageOf(b, cache, pages, b.div(i, layout.pageTokens)); }

Value CodePlaces::place(Value page, Value head, int64_t at) {
  return b.advance(b.rowOf(page, head, layout.headBytes, b.i8()), at, b.i8());
}

Value CodePlaces::codeRow(bool keys, Value page, Value head, Value i) {
  Value codes = place(page, head, keys ? layout.keyCodes : layout.valueCodes);
  return b.rowOf(codes, b.rem(i, layout.pageTokens), layout.codeBytes, b.i8());
}

Value CodePlaces::tokenSlices(bool keys, Value page, Value head, Value i) {
  Value slices = place(page, head, keys ? layout.keySlices : layout.valueSlices);
  return b.rowOf(slices, b.rem(i, layout.pageTokens), 2 * layout.slices, b.type(Float::F16));
}

Value CodePlaces::channelSlices(Value page, Value head, Value i) {
  Value group = b.div(b.rem(i, layout.pageTokens), layout.kv.group);
  return b.rowOf(place(page, head, layout.keySlices), group, 2 * spec.headDim, b.type(Float::F16));
}

Value CodePlaces::firstFloat(bool keys, Value position) {
  const numerics::KVScheme &kv = layout.kv;
  if (!keys)
    return b.max(b.add(position, 1 - kv.residual), kv.sinks);
  Value behind = b.max(b.sub(position, kv.sinks), 0);
  return b.add(b.mul(b.div(behind, kv.residual), kv.residual), kv.sinks);
}

KernelBuilder::Values CodePlaces::biasedCodes(Value row, Value dim, bool constant) {
  // 0x6400 is 1024, whose last bits count ones.
  constexpr int64_t kBias = 0x64006400, kBiasBytes = 0x64646464;
  const int64_t bits = layout.kv.bits;
  KernelBuilder::Values pairs;
  Value at = b.advance(row, b.mul(b.div(dim, 8), bits), b.i8());
  if (bits == 8) {
    Value words = b.load(at, b.vec(2, b.i32()), constant);
    for (int64_t i = 0; i < 4; ++i)
      pairs.push_back(
          b.permute(b.extract(words, i / 2), b.i32(kBiasBytes), i % 2 == 0 ? 0x4140 : 0x4342));
    return pairs;
  }
  Value word;
  if (bits == 4) {
    word = b.load(at, b.i32(), constant);
  } else {
    Value two = arith::ExtUIOp::create(b, b.i32(), b.load(at, b.getI16Type(), constant));
    word = b.permute(two, b.i32(0), 0x4140); // a byte to each half
  }
  int64_t field = (1 << bits) - 1;
  for (int64_t i = 0; i < 4; ++i)
    pairs.push_back(b.ori(b.andi(b.shr(word, i * bits), field << 16 | field), kBias));
  return pairs;
}

CodePlaces::Slices CodePlaces::slicesAt(bool keys, Value first, Value dim, bool constant) {
  Type half = b.type(Float::F16), pair = b.vec(2, half), eight = b.vec(4, b.i32());
  Slices slices;
  if (slicesPerToken(keys)) {
    Value both = b.load(b.advance(first, b.div(dim, layout.width), b.i32()), b.i32(), constant);
    auto splat = [&](int64_t selector) {
      return b.bitcast(b.permute(both, b.i32(0), selector), pair);
    };
    slices.minima.assign(4, splat(0x1010));
    slices.scales.assign(4, splat(0x3232));
    return slices;
  }
  Value from = b.advance(first, dim, half);
  Value minimum = b.load(from, eight, constant);
  Value scale = b.load(b.advance(from, spec.headDim, half), eight, constant);
  for (int64_t j = 0; j < 4; ++j) {
    slices.minima.push_back(b.bitcast(b.extract(minimum, j), pair));
    slices.scales.push_back(b.bitcast(b.extract(scale, j), pair));
  }
  return slices;
}

Value CodePlaces::dequantize(Value codeRow, Value dim, const Slices &slices, bool constant) {
  Type pair = b.vec(2, b.type(Float::F16));
  // Rounding the scale may have lifted the largest code beyond the range.
  Value bias = b.constant(pair, 1024.0), largest = b.constant(pair, 65504.0);
  KernelBuilder::Values words;
  for (auto [j, biased] : llvm::enumerate(biasedCodes(codeRow, dim, constant))) {
    Value code = b.subf(b.bitcast(biased, pair), bias); // exact
    Value x = b.fma(slices.scales[j], code, slices.minima[j]);
    words.push_back(b.bitcast(b.minf(x, largest), b.i32()));
  }
  return b.join(words);
}

//===- Reading ------------------------------------------------------------===//

Value rowOfToken(KernelBuilder &b, const StepSequence &sequence, Value token) {
  return b.add(b.sub(token, sequence.position), sequence.firstRow);
}

Value readStepRow(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments,
                  bool keys, Value head, Value row, Value dim, int64_t count) {
  std::string name = keys ? "k" : "v";
  Value from = b.rowOf(arguments[name], row, arguments[name + "_stride"], b.f32());
  from = b.advance(from, b.add(b.mul(head, spec.headDim), dim), b.f32());
  KernelBuilder::Values values;
  int64_t width = std::min<int64_t>(count, 4);
  Type type = width == 1 ? b.f32() : Type(b.vec(width, b.f32()));
  for (int64_t i = 0; i < count; i += width) {
    Value x = b.load(b.advance(from, i, b.f32()), type, /*constant=*/true);
    for (int64_t j = 0; j < width; ++j) {
      Value element = b.extract(x, j);
      values.push_back(spec.kv ? finiteHalf(b, element) : saturateToHalf(b, element));
    }
  }
  return b.fromF32(b.join(values), Float::F16);
}

CacheReader::CacheReader(KernelBuilder &b, const AttentionSpec &spec,
                         const KernelArguments &arguments, Value head, const StepSequence &sequence)
    : b(b), spec(spec), arguments(arguments), head(head), sequence(sequence),
      floats(b, spec, arguments, sequence) {
  if (!spec.kv)
    return;
  codes.emplace(b, spec, arguments, sequence);
  for (bool keys : {false, true})
    firstFloat[keys] = codes->firstFloat(keys, sequence.position);
}

Value CacheReader::page(Value first) {
  if (!spec.kv)
    return floats.page(first);
  // Tokens before the codes are sinks.
  return codes->page(b.max(b.sub(first, spec.kv->sinks), 0));
}

Value CacheReader::readCodes(bool keys, Value page, Value token, Value dim) {
  int64_t sinks = spec.kv->sinks;
  Type words = b.vec(4, b.i32());
  // One of three: what comes, float rows, codes.
  const Value position = sequence.position;
  Value old = b.less(token, position), coded = b.less(token, firstFloat[keys]);
  if (sinks > 0)
    coded = b.both(coded, b.less(sinks - 1, token));
  Value x = b.guarded(b.less(b.sub(position, 1), token), b.zero(words), [&] {
    Value row = rowOfToken(b, sequence, token);
    return b.bitcast(readStepRow(b, spec, arguments, keys, head, row, dim, 8), words);
  });
  Value isFloat = b.both(old, b.equal(coded, b.zero(coded.getType())));
  x = b.guarded(isFloat, x, [&] {
    Value row = codes->floatRow(keys, head, token);
    return b.load(b.advance(row, dim, b.type(Float::F16)), words, /*constant=*/true);
  });
  x = b.guarded(coded, x, [&] {
    Value i = b.sub(token, sinks);
    return codes->dequantize(codes->codeRow(keys, page, head, i), dim,
                             codes->slices(keys, page, head, i, dim));
  });
  return b.bitcast(x, b.vec(8, b.type(Float::F16)));
}

Value CacheReader::allCodes(bool keys, Value first, int64_t count) {
  return b.both(b.less(spec.kv->sinks - 1, first),
                b.less(b.add(first, count - 1), firstFloat[keys]));
}

Value CacheReader::read(bool keys, Value page, Value token, Value dim, int64_t count) {
  if (spec.kv)
    return readCodes(keys, page, token, dim);
  Type half = b.type(Float::F16), type = count == 1 ? half : Type(b.vec(count, half));
  return b.load(b.advance(row(keys, page, token), dim, half), type, /*constant=*/true);
}

//===- Filling ------------------------------------------------------------===//

void emitAppend(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments) {
  Value row = b.block(0);
  const PlaceOfRow place(b, arguments, row);
  const StepSequence sequence(b, arguments, place.sequence);
  FloatCache floats(b, spec, arguments, sequence);
  Value page = floats.page(place.position);
  int64_t width = std::gcd<int64_t>(spec.headDim, 4);
  b.forLoop(b.mul(b.thread(), width), spec.kvHeads * spec.headDim, kCacheThreads * width,
            [&](Value column) {
              Value head = b.div(column, spec.headDim), dim = b.rem(column, spec.headDim);
              for (bool keys : {true, false}) {
                Value x = readStepRow(b, spec, arguments, keys, head, row, dim, width);
                Value to = floats.row(keys, page, head, place.position);
                b.store(x, b.advance(to, dim, b.type(Float::F16)));
              }
            });
}

void emitRestore(KernelBuilder &b, const AttentionSpec &spec, const KernelArguments &arguments) {
  const numerics::KVScheme &kv = *spec.kv;
  // Blocks of a sequence's first row have a token each, those of its other rows nothing to do.
  Value row = b.div(b.block(0), kv.residual), head = b.block(1);
  const StepSequence sequence(b, arguments, PlaceOfRow(b, arguments, row).sequence);
  CodePlaces codes(b, spec, arguments, sequence);
  // Token j lost its row when j + R came.
  Value position = sequence.position;
  Value first = b.max(b.sub(position, kv.residual), kv.sinks);
  Value token = b.add(first, b.rem(b.block(0), kv.residual));
  Value end = b.min(position, b.sub(sequence.held, kv.residual));
  int64_t runs = spec.headDim / 8;
  b.ifThen(b.both(b.equal(row, sequence.firstRow), b.less(token, end)), [&] {
    Value i = b.sub(token, kv.sinks), page = codes.page(i);
    for (bool keys : {true, false})
      b.forLoop(b.thread(), runs, kCacheThreads, [&](Value run) {
        Value dim = b.mul(run, 8);
        Value x = codes.dequantize(codes.codeRow(keys, page, head, i), dim,
                                   codes.slices(keys, page, head, i, dim));
        b.store(x, b.advance(codes.floatRow(keys, head, token), dim, b.type(Float::F16)));
      });
  });
}

} // namespace easyquant::gpu
