//===- AttentionPages.cpp - Where a sequence's tokens lie -----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttentionPages.h"

#include "AttentionTile.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace easyquant::cpu {

Type allPagesType(Builder &b) { return MemRefType::get({ShapedType::kDynamic}, b.getI64Type()); }

Value pagesOf(KernelBuilder &b, Value allPages, const Sequence &sequence) {
  OpFoldResult count = b.sub(b.size(allPages, 0), sequence.firstPage);
  return memref::SubViewOp::create(b, allPages, ArrayRef<OpFoldResult>{sequence.firstPage},
                                   ArrayRef<OpFoldResult>{count},
                                   ArrayRef<OpFoldResult>{b.getIndexAttr(1)});
}

Value pageStart(KernelBuilder &b, Value pages, Value layer, Value n) {
  Value byte = arith::IndexCastOp::create(b, b.getIndexType(), b.load(pages, {n}));
  return b.add(byte, layer);
}

Value typedCache(KernelBuilder &b, Value cache, Index byte, Type element) {
  Value at = b.index(byte);
  Value count = b.div(b.sub(b.size(cache, 0), at), element.getIntOrFloatBitWidth() / 8);
  return memref::ViewOp::create(b, b.memref({ShapedType::kDynamic}, element), cache, at, count);
}

void touch(KernelBuilder &b, Value elements, Value first, int64_t bytes) {
  constexpr int64_t kMemoryPage = 4096;
  int64_t size = cast<MemRefType>(elements.getType()).getElementTypeBitWidth() / 8;
  for (int64_t at = 0; at < bytes; at += kMemoryPage)
    b.prefetch(elements, {b.add(first, at / size)});
}

FloatPages::FloatPages(KernelBuilder &b, const AttentionSpec &spec, Value cache, Value pages,
                       Value layer)
    : elements(typedCache(b, cache, 0, cacheElement(b, spec))), b(b), spec(spec), pages(pages),
      layer(layer) {}

Value FloatPages::start(Value head, Value token) {
  Value page = pageStart(b, pages, layer, b.div(token, numerics::kPageTokens));
  return b.add(b.div(page, elementBytes()), b.mul(head, 2 * valuesBehind()));
}

} // namespace easyquant::cpu
