//===- AttentionCache.cpp - A layer's cache of codes ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionCache.h"

#include "AttentionTile.h"
#include "Hadamard.h"
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
      keyWords(llvm::divideCeil(spec.headDim, fields)), width(std::min(kv.group, spec.headDim)),
      slices(spec.headDim / width), floatRows(kv.sinks + kv.residual), levels((1 << kv.bits) - 1),
      pageTokens(numerics::pageTokens(kv.group)) {
  int64_t end = 0;
  auto place = [&](int64_t count, int64_t size) { // in elements of `size` bytes
    int64_t at = end / size;
    end += static_cast<int64_t>(llvm::alignTo(count * size, 64));
    return at;
  };
  int64_t tokenSlices = 2 * slices * pageTokens;
  int64_t channelSlices = pageTokens / kv.group * 2 * spec.headDim;
  keyCodes = place(pageTokens * keyWords, 4);
  valueCodes = place(pageTokens / fields * spec.headDim, 4);
  valueSlices = place(tokenSlices, elementBytes());
  keySlices = place(kv.keysPerToken ? tokenSlices : channelSlices, elementBytes());
  headBytes = end;
  bytes = {pageTokens, spec.kvHeads * headBytes, 2 * floatBytes()};
}

int64_t CacheLayout::floatBytes() const {
  return llvm::alignTo(spec.kvHeads * floatRows * spec.headDim * elementBytes(), 64);
}

CacheBytes cacheBytes(const AttentionSpec &spec) {
  if (spec.kv)
    return CacheLayout(spec).bytes;
  constexpr int64_t tokens = numerics::kPageTokens;
  return {tokens, 2 * tokens * spec.kvHeads * spec.headDim * (spec.halfCache ? 2 : 4), 0};
}

CacheViews::CacheViews(KernelBuilder &b, const CacheLayout &layout, const CachePlace &place)
    : b(b), layout(layout), place(place) {
  Type element = cacheElement(b, layout.spec);
  floatKeys = typedCache(b, place.cache, place.window, element);
  floatValues = typedCache(b, place.cache, b.add(place.window, layout.floatBytes()), element);
  words = typedCache(b, place.cache, 0, b.i32());
  elements = typedCache(b, place.cache, 0, element);
}

Value CacheViews::floatRow(Value head, Value token) {
  Value window = b.add(b.rem(number(token), layout.kv.residual), layout.kv.sinks);
  Value row = b.select(b.less(token, layout.kv.sinks), token, window);
  return b.mul(b.add(b.mul(head, layout.floatRows), row), layout.spec.headDim);
}

CodesPage CacheViews::page(Value head, Value i) {
  Value start = pageStart(b, place.pages, place.layer, b.div(i, layout.pageTokens));
  return CodesPage(b, layout, b.add(start, b.mul(head, layout.headBytes)));
}

Value CodesPage::keyBlock(Value i) {
  Value block = b.div(inPage(i), kCacheBlock);
  return b.add(words(layout.keyCodes), b.mul(block, layout.keyWords * kCacheBlock));
}

Value CodesPage::valueRow(Value i) {
  return b.add(words(layout.valueCodes),
               b.mul(b.div(inPage(i), layout.fields), layout.spec.headDim));
}

Value CodesPage::channelSlice(Value i) {
  Value group = b.div(inPage(i), layout.kv.group);
  return b.add(elements(layout.keySlices), b.mul(group, 2 * layout.spec.headDim));
}

Value CodesPage::tokenSlice(int64_t part, Value slice, Value i) {
  return b.add(b.add(elements(part), b.mul(slice, layout.pageTokens)), inPage(i));
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
    return {b.smaller(x.first, extrema.first), b.larger(x.second, extrema.second)};
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
    scale = b.larger(scale, least);
    Value constant = b.compare(arith::CmpFPredicate::OEQ, x.first, x.second);
    return {x.first, b.select(constant, b.constant(type, 1.0), scale)};
  }
  /// i32 codes.
  Value quantize(Value x, Extrema slice) {
    Type type = x.getType();
    int64_t lanes = cast<VectorType>(type).getNumElements();
    Value steps = b.divf(b.subf(x, slice.first), slice.second);
    steps = b.smaller(steps, b.constant(type, double(layout.levels)));
    // At 1.5 * 2^23 the last bit of a float weighs 1: the addition rounds.
    Value magic = b.constant(type, 0x1.8p23);
    VectorType ints = b.vec(lanes, b.i32());
    return b.subi(b.bitcast(b.addf(steps, magic), ints), b.bitcast(magic, ints));
  }

private:
  KernelBuilder &b;
  const CacheLayout &layout;
};

/// Fills and empties the float window of one head.
class WindowEmitter {
public:
  WindowEmitter(KernelBuilder &b, const CacheLayout &layout, const CachePlace &place, Value head)
      : b(b), layout(layout), columns(layout.spec.headDim), views(b, layout, place),
        quantizer(b, layout), vector(b.vec(kBlock, b.f32())), head(head) {}

  void emitMakeRoom(Value token);
  void emitWrite(Value rows, Value row, Value to, Value start);
  /// The same of a key, which is rotated in `buffer` where the scheme has a basis.
  void emitWriteKey(Value rows, Value row, Value buffer, Value start);
  void emitRestore(Value token);

  CacheViews &cache() { return views; }

private:
  using Extrema = SliceQuantizer::Extrema;

  Value load(Value elements, Value at) {
    return fromCache(b, b.loadVector(kBlock, elements, {at}));
  }
  void emitWrite(Value to, Value start, llvm::function_ref<Value(Value dim, int64_t lanes)> load);
  void storeTokenSlice(Value at, Extrema slice) {
    auto scalar = [&](Value x) { return toCache(b, layout.spec, b.extract(x, 0)); };
    b.store(scalar(slice.first), views.elements, {at});
    b.store(scalar(slice.second), views.elements, {b.add(at, layout.tokenScales())});
  }
  /// The slice of `width` dimensions of a float row.
  Extrema chooseTokenSlice(Value elements, Value start);
  void emitChannelSlices(CodesPage &page, Value i, Value start);
  void emitPackKeys(CodesPage &page, Value i, Value start, Value dim, int64_t dims);
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

/// The slices of the group of keys i .., which lie in float rows from `start` on.
void WindowEmitter::emitChannelSlices(CodesPage &page, Value i, Value start) {
  Value to = page.channelSlice(i);
  b.forLoop(0, columns, kBlock, [&](Value dim) {
    Extrema none = quantizer.none(vector);
    auto found = b.forLoop(0, layout.kv.group, 1, ValueRange{none.first, none.second},
                           [&](Value token, ValueRange carried) {
                             Value at = b.add(b.add(start, b.mul(token, columns)), dim);
                             Value x = load(views.floatKeys, at);
                             Extrema joined = quantizer.join({carried[0], carried[1]}, {x, x});
                             return KernelBuilder::Values{joined.first, joined.second};
                           });
    Extrema slice = quantizer.choose({found[0], found[1]});
    Value at = b.add(to, dim);
    b.storeVector(toCache(b, layout.spec, slice.first), views.elements, {at});
    b.storeVector(toCache(b, layout.spec, slice.second), views.elements, {b.add(at, columns)});
  });
}

/// The words of dimensions dim .. (`dims` of them: whole words, or the last one) of 8 keys.
void WindowEmitter::emitPackKeys(CodesPage &page, Value i, Value start, Value dim, int64_t dims) {
  VectorType ints = b.vec(kBlock, b.i32());
  SmallVector<Value> codes; // [dim], lanes are tokens
  for (int64_t d = 0; d < dims; d += kBlock) {
    Value first = b.add(dim, d);
    Value channels = page.channelSlice(i);
    Extrema channel;
    if (!layout.kv.keysPerToken)
      channel = {load(views.elements, b.add(channels, first)),
                 load(views.elements, b.add(b.add(channels, columns), first))};
    SmallVector<Value> rows;
    for (int64_t t = 0; t < kBlock; ++t) {
      Extrema slice = channel;
      if (layout.kv.keysPerToken) {
        Value at = page.keySlice(b.div(first, layout.width), b.add(i, t));
        auto scalar = [&](Value at) {
          return b.broadcast(fromCache(b, b.load(views.elements, {at})), kBlock);
        };
        slice = {scalar(at), scalar(b.add(at, layout.tokenScales()))};
      }
      Value x = load(views.floatKeys, b.add(b.add(start, t * columns), first));
      rows.push_back(quantizer.quantize(x, slice));
    }
    llvm::append_range(codes, b.transpose8(rows));
  }
  Value block = b.add(page.keyBlock(i), b.rem(i, kCacheBlock));
  Value firstWord = b.div(dim, layout.fields);
  for (int64_t d = 0; d < dims; d += layout.fields) {
    Value word = b.zero(ints);
    for (int64_t k = 0; k < std::min(layout.fields, dims - d); ++k)
      word = arith::OrIOp::create(b, word, b.shl(codes[d + k], k * layout.kv.bits));
    Value at = b.add(block, b.mul(b.add(firstWord, d / layout.fields), kCacheBlock));
    b.storeVector(word, views.words, {at});
  }
}

/// Makes codes of the block of keys i .., which fills the window.
void WindowEmitter::emitFlushKeys(Value i, Value start) {
  b.forLoop(0, layout.kv.residual, layout.kv.group, [&](Value group) {
    Value first = b.add(i, group), from = b.add(start, b.mul(group, columns));
    CodesPage page = views.page(head, first);
    if (!layout.kv.keysPerToken)
      emitChannelSlices(page, first, from);
    else
      b.forLoop(0, layout.kv.group, 1, [&](Value token) {
        b.forLoop(0, layout.slices, 1, [&](Value slice) {
          Value row = b.add(b.add(from, b.mul(token, columns)), b.mul(slice, layout.width));
          storeTokenSlice(page.keySlice(slice, b.add(first, token)),
                          chooseTokenSlice(views.floatKeys, row));
        });
      });
    b.forLoop(0, layout.kv.group, kBlock, [&](Value token) {
      Value at = b.add(first, token), row = b.add(from, b.mul(token, columns));
      int64_t span = std::max(kBlock, layout.fields), whole = columns / span * span;
      b.forLoop(0, whole, span, [&](Value dim) { emitPackKeys(page, at, row, dim, span); });
      if (whole < columns)
        emitPackKeys(page, at, row, b.index(whole), columns - whole);
    });
  });
}

void WindowEmitter::emitQuantizeValue(Value i, Value start) {
  CodesPage page = views.page(head, i);
  Value words = page.valueRow(i);
  VectorType ints = b.vec(kBlock, b.i32());
  Value field = b.rem(i, layout.fields);
  Value shift =
      b.broadcast(arith::IndexCastOp::create(b, b.i32(), b.mul(field, layout.kv.bits)), kBlock);
  Value mask = arith::ShLIOp::create(b, b.constant(ints, layout.levels), shift);
  Value others = b.xori(mask, -1);
  b.forLoop(0, layout.slices, 1, [&](Value slice) {
    Value first = b.mul(slice, layout.width);
    Extrema chosen = chooseTokenSlice(views.floatValues, b.add(start, first));
    storeTokenSlice(page.valueSlice(slice, i), chosen);
    b.forLoop(first, b.add(first, layout.width), kBlock, [&](Value dim) {
      Value x = load(views.floatValues, b.add(start, dim));
      Value code = arith::ShLIOp::create(b, quantizer.quantize(x, chosen), shift);
      Value at = b.add(words, dim);
      Value kept = arith::AndIOp::create(b, b.loadVector(kBlock, views.words, {at}), others);
      b.storeVector(arith::OrIOp::create(b, kept, code), views.words, {at});
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

/// Row `row` of `rows`, columns of this head.
void WindowEmitter::emitWrite(Value rows, Value row, Value to, Value start) {
  emitWrite(to, start, [&](Value dim, int64_t lanes) {
    return b.loadVector(lanes, rows, {row, b.add(b.mul(head, columns), dim)});
  });
}

void WindowEmitter::emitWriteKey(Value rows, Value row, Value buffer, Value start) {
  if (!buffer)
    return emitWrite(rows, row, views.floatKeys, start);
  const int64_t lanes = b.target.lanes(), block = layout.kv.hadamard;
  auto load = [&](Value dim) {
    return b.loadVector(lanes, rows, {row, b.add(b.mul(head, columns), dim)});
  };
  emitHadamard(b, {columns, block, std::min(4 * lanes, block), load, buffer,
                   [](Value dim) { return SmallVector<Index>{dim}; }});
  emitWrite(views.floatKeys, start,
            [&](Value dim, int64_t lanes) { return b.loadVector(lanes, buffer, {dim}); });
}

/// What is not finite becomes finite: it must not spoil the codes of its neighbours, should the
/// session go on without it.
void WindowEmitter::emitWrite(Value to, Value start,
                              llvm::function_ref<Value(Value dim, int64_t lanes)> load) {
  constexpr double largest = std::numeric_limits<float>::max();
  forColumns(b, 0, columns, b.target.lanes(), [&](Value dim, int64_t lanes) {
    Value x = load(dim, lanes);
    auto unless = [&](arith::CmpFPredicate predicate, double bound, double other) {
      Value is = b.compare(predicate, x, b.constant(x.getType(), bound));
      x = b.select(is, b.constant(x.getType(), other), x);
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
  CodesPage page = views.page(head, i);
  Value keyBlock = b.add(page.keyBlock(i), b.rem(i, kCacheBlock));
  Value valueRow = page.valueRow(i), channels = page.channelSlice(i);
  b.forLoop(0, columns, 1, [&](Value dim) {
    Value part = b.div(dim, layout.width), slice = page.valueSlice(part, i);
    Value scale = b.add(slice, layout.tokenScales());
    Value value = dequantize(b.load(views.words, {b.add(valueRow, dim)}),
                             b.mul(b.rem(i, layout.fields), layout.kv.bits),
                             b.load(views.elements, {slice}), b.load(views.elements, {scale}));
    b.store(value, views.floatValues, {b.add(row, dim)});
    if (layout.kv.keysPerToken) {
      slice = page.keySlice(part, i);
      scale = b.add(slice, layout.tokenScales());
    } else {
      slice = b.add(channels, dim);
      scale = b.add(slice, columns);
    }
    Value word = b.add(keyBlock, b.mul(b.div(dim, layout.fields), kCacheBlock));
    Value key =
        dequantize(b.load(views.words, {word}), b.mul(b.rem(dim, layout.fields), layout.kv.bits),
                   b.load(views.elements, {slice}), b.load(views.elements, {scale}));
    b.store(key, views.floatKeys, {b.add(row, dim)});
  });
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

static func::FuncOp getOrEmitMakeRoom(ModuleOp module, const CacheLayout &layout,
                                      const Target &target, TypeRange arguments) {
  return getOrEmitFunction(module, symbolName(layout.spec) + "_make_room", target, arguments,
                           [&](KernelBuilder &b, ValueRange args) {
                             CachePlace place(args);
                             ValueRange indices = args.drop_front(CachePlace::kCount);
                             b.forLoop(indices[1], indices[2], 1, [&](Value head) {
                               WindowEmitter(b, layout, place, head).emitMakeRoom(indices[0]);
                             });
                           });
}

void emitMakeRoom(KernelBuilder &b, ModuleOp module, const CacheLayout &layout,
                  ValueRange operands) {
  func::CallOp::create(b, getOrEmitMakeRoom(module, layout, b.target, operands.getTypes()),
                       operands);
}

void emitCacheAppend(KernelBuilder &b, ModuleOp module, const CacheLayout &layout,
                     ValueRange operands) {
  func::FuncOp makeRoom =
      getOrEmitMakeRoom(module, layout, b.target, operands.drop_front(2).getTypes());
  auto build = [&](KernelBuilder &b, ValueRange args) {
    Value k = args[0], v = args[1];
    CachePlace place(args.drop_front(2));
    ValueRange indices = args.drop_front(2 + CachePlace::kCount);
    Value rotated; // a head's key
    if (layout.kv.hadamard > 0)
      rotated = memref::AllocaOp::create(b, b.memref({layout.spec.headDim}, b.f32()),
                                         b.getI64IntegerAttr(64));
    b.forLoop(indices[1], indices[2], 1, [&](Value head) {
      WindowEmitter window(b, layout, place, head);
      b.forLoop(0, b.size(k, 0), 1, [&](Value row) {
        Value token = b.add(indices[0], row);
        SmallVector<Value> operands = place.values();
        operands.append({token, head, b.add(head, 1)});
        func::CallOp::create(b, makeRoom, operands);
        Value start = window.cache().floatRow(head, token);
        window.emitWriteKey(k, row, rotated, start);
        window.emitWrite(v, row, window.cache().floatValues, start);
      });
    });
  };
  func::CallOp::create(b,
                       getOrEmitFunction(module, symbolName(layout.spec) + "_append", b.target,
                                         operands.getTypes(), build),
                       operands);
}

void emitRestore(KernelBuilder &b, ModuleOp module, const CacheLayout &layout,
                 ValueRange operands) {
  auto build = [&](KernelBuilder &b, ValueRange args) {
    CachePlace place(args);
    ValueRange indices = args.drop_front(CachePlace::kCount);
    Value position = indices[0], held = indices[1];
    int64_t residual = layout.kv.residual;
    auto past = [&](Value token) { // token - residual, at least 0
      return b.sub(b.max(token, residual), residual);
    };
    b.forLoop(indices[2], indices[3], 1, [&](Value head) {
      WindowEmitter window(b, layout, place, head);
      // Token j lost its row when j + R came.
      Value begin = b.max(past(position), layout.kv.sinks);
      b.forLoop(begin, b.min(position, past(held)), 1,
                [&](Value token) { window.emitRestore(token); });
    });
  };
  func::CallOp::create(b,
                       getOrEmitFunction(module, symbolName(layout.spec) + "_restore", b.target,
                                         operands.getTypes(), build),
                       operands);
}

} // namespace easyquant::cpu
