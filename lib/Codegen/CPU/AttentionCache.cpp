//===- AttentionCache.cpp - A layer's cache of codes ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionCache.h"

#include "AttentionTile.h"
#include "RowKernel.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "llvm/Support/MathExtras.h"

#include <limits>

using namespace mlir;

namespace easyquant::cpu {

//===----------------------------------------------------------------------===//
// Places
//===----------------------------------------------------------------------===//

CacheLayout::CacheLayout(const AttentionSpec &spec)
    : spec(spec), kv(*spec.kv), fields(32 / kv.bits),
      keyWords(llvm::divideCeil(spec.headDim, fields)), valueWords(kCacheBlock / fields),
      width(std::min(kv.group, spec.headDim)), slices(spec.headDim / width),
      floatRows(kv.sinks + kv.residual), levels((1 << kv.bits) - 1) {}

int64_t CacheLayout::floatBytes() const {
  return llvm::alignTo(spec.kvHeads * floatRows * spec.headDim * elementBytes(), 64);
}

CacheBytes CacheLayout::bytes() const {
  // The slices of a group of keys that capacity cuts off, and what dividing them among tokens
  // loses, are part of the fixed bytes.
  int64_t channels = 2 * spec.headDim * elementBytes() * spec.kvHeads;
  int64_t tokenSlices = 2 * slices * elementBytes() * spec.kvHeads;
  int64_t codes = (keyWords * 4 + spec.headDim * kv.bits / 8) * spec.kvHeads;
  CacheBytes bytes{64 + 2 * floatBytes(), codes + tokenSlices};
  if (kv.keysPerToken)
    return {bytes.fixed, bytes.perToken + tokenSlices};
  return {bytes.fixed + static_cast<int64_t>(llvm::alignTo(channels, 64)),
          bytes.perToken + static_cast<int64_t>(llvm::divideCeil(channels, kv.group))};
}

CacheBytes cacheBytes(const AttentionSpec &spec) {
  if (spec.kv)
    return CacheLayout(spec).bytes();
  return {0, 2 * spec.kvHeads * spec.headDim * (spec.halfCache ? 2 : 4)};
}

CacheViews::CacheViews(KernelBuilder &b, const CacheLayout &layout, Value cache, Value capacity)
    : b(b), layout(layout), capacity(capacity) {
  Value at = b.index(0), size = b.size(cache, 0);
  auto place = [&](Type element, Index bytes) -> Value {
    int64_t elementBytes = element.getIntOrFloatBitWidth() / 8;
    // What follows belongs to it as far as its type goes: no size is kept.
    Value elements = b.div(b.sub(size, at), elementBytes);
    Value view = memref::ViewOp::create(b, b.memref({ShapedType::kDynamic}, element), cache, at,
                                        ValueRange{elements});
    at = b.add(at, bytes);
    return view;
  };
  const AttentionSpec &spec = layout.spec;
  Type element = cacheElement(b, spec);
  Value heads = b.mul(capacity, spec.kvHeads);
  held = place(b.i64(), 64);
  floatKeys = place(element, layout.floatBytes());
  floatValues = place(element, layout.floatBytes());
  keyCodes = place(b.i32(), b.mul(heads, layout.keyWords * 4));
  valueCodes = place(b.i32(), b.mul(heads, spec.headDim * layout.kv.bits / 8));
  valueSlices = place(element, b.mul(heads, 2 * layout.slices * layout.elementBytes()));
  keySlices = place(element, 0);
}

Value CacheViews::floatRow(Value head, Value token) {
  Value window = b.add(b.rem(number(token), layout.kv.residual), layout.kv.sinks);
  Value row = arith::SelectOp::create(b, b.less(token, layout.kv.sinks), token, window);
  return b.mul(b.add(b.mul(head, layout.floatRows), row), layout.spec.headDim);
}

Value CacheViews::keyBlock(Value head, Value i) {
  Value block = b.add(b.mul(head, b.div(capacity, kCacheBlock)), b.div(i, kCacheBlock));
  return b.mul(block, layout.keyWords * kCacheBlock);
}

Value CacheViews::valueRow(Value head, Value i) {
  Value block = b.add(b.mul(head, b.div(capacity, kCacheBlock)), b.div(i, kCacheBlock));
  Value row = b.add(b.mul(block, layout.valueWords), b.div(b.rem(i, kCacheBlock), layout.fields));
  return b.mul(row, layout.spec.headDim);
}

Value CacheViews::channelSlice(Value head, Value i) {
  Value groups = b.div(b.add(capacity, layout.kv.group - 1), layout.kv.group);
  Value group = b.add(b.mul(head, groups), b.div(i, layout.kv.group));
  return b.mul(group, 2 * layout.spec.headDim);
}

Value CacheViews::tokenSlice(Value head, Value slice, Value i) {
  return b.add(b.mul(b.add(b.mul(head, 2 * layout.slices), slice), capacity), i);
}

//===----------------------------------------------------------------------===//
// Quantization
//===----------------------------------------------------------------------===//

namespace {

/// The steps of easyquant/Numerics/KVCache.h, on vectors.
class SliceQuantizer {
public:
  SliceQuantizer(KernelBuilder &b, const CacheLayout &layout) : b(b), layout(layout) {}

  using Extrema = std::pair<Value, Value>; ///< minima, maxima; or minima, scales
  Extrema none(VectorType type) {
    double infinity = std::numeric_limits<double>::infinity();
    return {b.constant(type, infinity), b.constant(type, -infinity)};
  }
  Extrema join(Extrema extrema, Extrema x) {
    return {select(arith::CmpFPredicate::OLT, x.first, extrema.first),
            select(arith::CmpFPredicate::OGT, x.second, extrema.second)};
  }
  /// The extrema of all lanes, in each lane.
  Extrema joinLanes(Extrema x) {
    int64_t lanes = cast<VectorType>(x.first.getType()).getNumElements(), width = lanes;
    for (int64_t n = lanes / 2; n > 0; n /= 2, width /= 2)
      x = join({b.slice(x.first, 0, n), b.slice(x.second, 0, n)},
               {b.slice(x.first, n, n), b.slice(x.second, n, n)});
    return {b.broadcast(b.extract(x.first, 0), lanes), b.broadcast(b.extract(x.second, 0), lanes)};
  }
  /// Minima and scales.
  Extrema choose(Extrema x) {
    Type type = x.first.getType();
    Value levels = b.constant(type, double(layout.levels));
    Value scale = b.subf(b.divf(x.second, levels), b.divf(x.first, levels));
    scale = fromCache(b, toCache(b, layout.spec, scale));
    Value least = b.constant(type, layout.spec.halfCache ? 0x1p-14 : 0x1p-100);
    scale = select(arith::CmpFPredicate::OGT, scale, least);
    Value constant = arith::CmpFOp::create(b, arith::CmpFPredicate::OEQ, x.first, x.second);
    return {x.first, arith::SelectOp::create(b, constant, b.constant(type, 1.0), scale)};
  }
  /// i32 codes.
  Value quantize(Value x, Extrema slice) {
    Type type = x.getType();
    int64_t lanes = cast<VectorType>(type).getNumElements();
    Value steps = b.divf(b.subf(x, slice.first), slice.second);
    steps = select(arith::CmpFPredicate::OLT, steps, b.constant(type, double(layout.levels)));
    // At 1.5 * 2^23 the last bit of a float weighs 1: the addition rounds.
    Value magic = b.constant(type, 0x1.8p23);
    VectorType ints = b.vec(lanes, b.i32());
    return b.subi(b.bitcast(b.addf(steps, magic), ints), b.bitcast(magic, ints));
  }

private:
  Value select(arith::CmpFPredicate predicate, Value x, Value y) {
    return arith::SelectOp::create(b, arith::CmpFOp::create(b, predicate, x, y), x, y);
  }
  KernelBuilder &b;
  const CacheLayout &layout;
};

/// Fills and empties the float window of one head.
class WindowEmitter {
public:
  WindowEmitter(KernelBuilder &b, const CacheLayout &layout, Value cache, Value capacity,
                Value head)
      : b(b), layout(layout), columns(layout.spec.headDim), views(b, layout, cache, capacity),
        quantizer(b, layout), vector(b.vec(kBlock, b.f32())), head(head) {}

  void emitMakeRoom(Value token);
  void emitWrite(Value rows, Value row, Value to, Value start);
  void emitRestore(Value token);

  CacheViews &cache() { return views; }

private:
  using Extrema = SliceQuantizer::Extrema;

  Value load(Value elements, Value at) {
    return fromCache(b, b.loadVector(kBlock, elements, {at}));
  }
  void storeSlice(Value elements, Value at, Value distance, Extrema slice) {
    b.storeVector(toCache(b, layout.spec, slice.first), elements, {at});
    b.storeVector(toCache(b, layout.spec, slice.second), elements, {b.add(at, distance)});
  }
  void storeTokenSlice(Value elements, Value at, Extrema slice) {
    auto scalar = [&](Value x) { return toCache(b, layout.spec, b.extract(x, 0)); };
    b.store(scalar(slice.first), elements, {at});
    b.store(scalar(slice.second), elements, {b.add(at, views.tokenScales())});
  }
  /// The slice of `width` dimensions of a float row.
  Extrema chooseTokenSlice(Value elements, Value start);
  void emitChannelSlices(Value i, Value start);
  void emitPackKeys(Value i, Value start, Value dim, int64_t dims);
  void emitFlushKeys(Value i, Value start);
  void emitQuantizeValue(Value i, Value start);
  Value dequantize(Value word, Value shift, Value minimum, Value scale);

  KernelBuilder &b;
  const CacheLayout &layout;
  int64_t columns;
  CacheViews views;
  SliceQuantizer quantizer;
  VectorType vector;
  Value head;
};

} // namespace

WindowEmitter::Extrema WindowEmitter::chooseTokenSlice(Value elements, Value start) {
  Extrema none = quantizer.none(vector);
  auto found = b.forLoop(0, layout.width, kBlock, ValueRange{none.first, none.second},
                         [&](Value dim, ValueRange carried) {
                           Value x = load(elements, b.add(start, dim));
                           Extrema joined = quantizer.join({carried[0], carried[1]}, {x, x});
                           return KernelBuilder::Values{joined.first, joined.second};
                         });
  return quantizer.choose(quantizer.joinLanes({found[0], found[1]}));
}

/// Of the group of keys i .., which lie in float rows from `start` on.
void WindowEmitter::emitChannelSlices(Value i, Value start) {
  Value to = views.channelSlice(head, i);
  b.forLoop(0, columns, kBlock, [&](Value dim) {
    Extrema none = quantizer.none(vector);
    auto found = b.forLoop(0, layout.kv.group, 1, ValueRange{none.first, none.second},
                           [&](Value token, ValueRange carried) {
                             Value at = b.add(b.add(start, b.mul(token, columns)), dim);
                             Value x = load(views.floatKeys, at);
                             Extrema joined = quantizer.join({carried[0], carried[1]}, {x, x});
                             return KernelBuilder::Values{joined.first, joined.second};
                           });
    storeSlice(views.keySlices, b.add(to, dim), b.index(columns),
               quantizer.choose({found[0], found[1]}));
  });
}

/// The words of dimensions dim .. (`dims` of them: whole words, or the last one) of 8 keys.
void WindowEmitter::emitPackKeys(Value i, Value start, Value dim, int64_t dims) {
  VectorType ints = b.vec(kBlock, b.i32());
  SmallVector<Value> codes; // [dim], lanes are tokens
  for (int64_t d = 0; d < dims; d += kBlock) {
    Value first = b.add(dim, d);
    Value channels = views.channelSlice(head, i);
    Extrema channel;
    if (!layout.kv.keysPerToken)
      channel = {load(views.keySlices, b.add(channels, first)),
                 load(views.keySlices, b.add(b.add(channels, columns), first))};
    SmallVector<Value> rows;
    for (int64_t t = 0; t < kBlock; ++t) {
      Extrema slice = channel;
      if (layout.kv.keysPerToken) {
        Value at = views.tokenSlice(head, b.div(first, layout.width), b.add(i, t));
        auto scalar = [&](Value at) {
          return b.broadcast(fromCache(b, b.load(views.keySlices, {at})), kBlock);
        };
        slice = {scalar(at), scalar(b.add(at, views.tokenScales()))};
      }
      Value x = load(views.floatKeys, b.add(b.add(start, t * columns), first));
      rows.push_back(quantizer.quantize(x, slice));
    }
    llvm::append_range(codes, b.transpose8(rows));
  }
  Value block = b.add(views.keyBlock(head, i), b.rem(i, kCacheBlock));
  Value firstWord = b.div(dim, layout.fields);
  for (int64_t d = 0; d < dims; d += layout.fields) {
    Value word = b.zero(ints);
    for (int64_t k = 0; k < std::min(layout.fields, dims - d); ++k)
      word = arith::OrIOp::create(b, word, b.shl(codes[d + k], k * layout.kv.bits));
    Value at = b.add(block, b.mul(b.add(firstWord, d / layout.fields), kCacheBlock));
    b.storeVector(word, views.keyCodes, {at});
  }
}

/// Of the block of keys i .., which fills the window.
void WindowEmitter::emitFlushKeys(Value i, Value start) {
  b.forLoop(0, layout.kv.residual, layout.kv.group, [&](Value group) {
    Value first = b.add(i, group), from = b.add(start, b.mul(group, columns));
    if (!layout.kv.keysPerToken)
      emitChannelSlices(first, from);
    else
      b.forLoop(0, layout.kv.group, 1, [&](Value token) {
        b.forLoop(0, layout.slices, 1, [&](Value slice) {
          Value row = b.add(b.add(from, b.mul(token, columns)), b.mul(slice, layout.width));
          storeTokenSlice(views.keySlices, views.tokenSlice(head, slice, b.add(first, token)),
                          chooseTokenSlice(views.floatKeys, row));
        });
      });
    b.forLoop(0, layout.kv.group, kBlock, [&](Value token) {
      Value at = b.add(first, token), row = b.add(from, b.mul(token, columns));
      int64_t span = std::max(kBlock, layout.fields), whole = columns / span * span;
      b.forLoop(0, whole, span, [&](Value dim) { emitPackKeys(at, row, dim, span); });
      if (whole < columns)
        emitPackKeys(at, row, b.index(whole), columns - whole);
    });
  });
}

void WindowEmitter::emitQuantizeValue(Value i, Value start) {
  Value words = views.valueRow(head, i);
  VectorType ints = b.vec(kBlock, b.i32());
  Value field = b.rem(i, layout.fields);
  Value shift =
      b.broadcast(arith::IndexCastOp::create(b, b.i32(), b.mul(field, layout.kv.bits)), kBlock);
  Value mask = arith::ShLIOp::create(b, b.constant(ints, layout.levels), shift);
  Value others = b.xori(mask, -1);
  b.forLoop(0, layout.slices, 1, [&](Value slice) {
    Value first = b.mul(slice, layout.width);
    Extrema chosen = chooseTokenSlice(views.floatValues, b.add(start, first));
    storeTokenSlice(views.valueSlices, views.tokenSlice(head, slice, i), chosen);
    b.forLoop(first, b.add(first, layout.width), kBlock, [&](Value dim) {
      Value x = load(views.floatValues, b.add(start, dim));
      Value code = arith::ShLIOp::create(b, quantizer.quantize(x, chosen), shift);
      Value at = b.add(words, dim);
      Value kept = arith::AndIOp::create(b, b.loadVector(kBlock, views.valueCodes, {at}), others);
      b.storeVector(arith::OrIOp::create(b, kept, code), views.valueCodes, {at});
    });
  });
}

void WindowEmitter::emitMakeRoom(Value token) {
  Value full = b.less(layout.kv.sinks + layout.kv.residual - 1, token);
  b.ifThen(full, [&] {
    Value start = views.floatRow(head, token);
    Value i = b.sub(views.number(token), layout.kv.residual);
    b.ifThen(b.equal(b.rem(i, layout.kv.residual), 0), [&] { emitFlushKeys(i, start); });
    emitQuantizeValue(i, start);
  });
}

/// Row `row` of `rows`, columns of this head. What is not finite becomes finite: it must not spoil
/// the codes of its neighbours, should the session go on without it.
void WindowEmitter::emitWrite(Value rows, Value row, Value to, Value start) {
  constexpr double largest = std::numeric_limits<float>::max();
  forColumns(b, 0, columns, b.target.lanes(), [&](Value dim, int64_t lanes) {
    Value x = b.loadVector(lanes, rows, {row, b.add(b.mul(head, columns), dim)});
    auto unless = [&](arith::CmpFPredicate predicate, double bound, double other) {
      Value is = arith::CmpFOp::create(b, predicate, x, b.constant(x.getType(), bound));
      x = arith::SelectOp::create(b, is, b.constant(x.getType(), other), x);
    };
    unless(arith::CmpFPredicate::UNO, 0.0, 0.0);
    unless(arith::CmpFPredicate::OGT, largest, largest);
    unless(arith::CmpFPredicate::OLT, -largest, -largest);
    b.storeVector(toCache(b, layout.spec, x), to, {b.add(start, dim)});
  });
}

Value WindowEmitter::dequantize(Value word, Value shift, Value minimum, Value scale) {
  Value bits = arith::IndexCastOp::create(b, b.i32(), shift);
  Value code = b.andi(arith::ShRUIOp::create(b, word, bits), layout.levels);
  auto one = [&](Value x) { return b.broadcast(fromCache(b, x), 1); };
  Value x = b.fma(one(scale), b.broadcast(b.toFloat(code), 1), one(minimum));
  return toCache(b, layout.spec, b.extract(x, 0));
}

void WindowEmitter::emitRestore(Value token) {
  Value i = views.number(token), row = views.floatRow(head, token);
  Value keyBlock = b.add(views.keyBlock(head, i), b.rem(i, kCacheBlock));
  Value valueRow = views.valueRow(head, i), channels = views.channelSlice(head, i);
  b.forLoop(0, columns, 1, [&](Value dim) {
    Value slice = views.tokenSlice(head, b.div(dim, layout.width), i);
    Value scale = b.add(slice, views.tokenScales());
    Value value =
        dequantize(b.load(views.valueCodes, {b.add(valueRow, dim)}),
                   b.mul(b.rem(i, layout.fields), layout.kv.bits),
                   b.load(views.valueSlices, {slice}), b.load(views.valueSlices, {scale}));
    b.store(value, views.floatValues, {b.add(row, dim)});
    if (!layout.kv.keysPerToken) {
      slice = b.add(channels, dim);
      scale = b.add(slice, columns);
    }
    Value word = b.add(keyBlock, b.mul(b.div(dim, layout.fields), kCacheBlock));
    Value key =
        dequantize(b.load(views.keyCodes, {word}), b.mul(b.rem(dim, layout.fields), layout.kv.bits),
                   b.load(views.keySlices, {slice}), b.load(views.keySlices, {scale}));
    b.store(key, views.floatKeys, {b.add(row, dim)});
  });
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static SmallVector<Type> cacheArguments(KernelBuilder &b) {
  Type index = b.getIndexType();
  return {b.memref({ShapedType::kDynamic}, b.i8()), index, index, index, index};
}

func::FuncOp getOrEmitMakeRoom(ModuleOp module, const CacheLayout &layout, const Target &target) {
  return getOrEmitFunction(
      module, symbolName(layout.spec) + "_make_room", target, cacheArguments,
      [&](KernelBuilder &b, ValueRange args) {
        b.forLoop(args[3], args[4], 1, [&](Value head) {
          WindowEmitter(b, layout, args[0], args[1], head).emitMakeRoom(args[2]);
        });
      });
}

func::FuncOp getOrEmitCacheAppend(ModuleOp module, const CacheLayout &layout,
                                  const Target &target) {
  func::FuncOp makeRoom = getOrEmitMakeRoom(module, layout, target);
  auto arguments = [&](KernelBuilder &b) {
    Type rows = b.rows(layout.spec.kvHeads * layout.spec.headDim);
    SmallVector<Type> types = {rows, rows};
    llvm::append_range(types, cacheArguments(b));
    return types;
  };
  return getOrEmitFunction(
      module, symbolName(layout.spec) + "_append", target, arguments,
      [&](KernelBuilder &b, ValueRange args) {
        Value k = args[0], v = args[1], cache = args[2], capacity = args[3], position = args[4];
        b.forLoop(args[5], args[6], 1, [&](Value head) {
          WindowEmitter window(b, layout, cache, capacity, head);
          b.forLoop(0, b.size(k, 0), 1, [&](Value row) {
            Value token = b.add(position, row);
            func::CallOp::create(b, makeRoom,
                                 ValueRange{cache, capacity, token, head, b.add(head, 1)});
            Value start = window.cache().floatRow(head, token);
            window.emitWrite(k, row, window.cache().floatKeys, start);
            window.emitWrite(v, row, window.cache().floatValues, start);
          });
        });
      });
}

func::FuncOp getOrEmitRestore(ModuleOp module, const CacheLayout &layout, const Target &target) {
  return getOrEmitFunction(module, symbolName(layout.spec) + "_restore", target, cacheArguments,
                           [&](KernelBuilder &b, ValueRange args) {
                             Value position = args[2];
                             int64_t residual = layout.kv.residual;
                             auto past = [&](Value token) { // token - residual, at least 0
                               return b.sub(b.max(token, residual), residual);
                             };
                             b.forLoop(args[3], args[4], 1, [&](Value head) {
                               WindowEmitter window(b, layout, args[0], args[1], head);
                               Value held = arith::IndexCastOp::create(
                                   b, b.getIndexType(), b.load(window.cache().held, {0}));
                               // Token j lost its row when j + R came.
                               Value begin = b.max(past(position), layout.kv.sinks);
                               b.forLoop(begin, b.min(position, past(held)), 1,
                                         [&](Value token) { window.emitRestore(token); });
                             });
                           });
}

} // namespace easyquant::cpu
