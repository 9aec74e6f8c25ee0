//===- AttentionPages.h - Where a sequence's tokens lie ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Pages as Kernels.h defines them. A page is looked up once for all that is done with its tokens.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPAGES_H
#define EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPAGES_H

#include "Sequences.h"

#include "easyquant/Numerics/KVCache.h"

namespace easyquant::cpu {

/// Where the pages of all sequences begin in the cache, and where those of one do.
mlir::Type allPagesType(mlir::Builder &b);
mlir::Value pagesOf(KernelBuilder &b, mlir::Value allPages, const Sequence &sequence);

/// The byte of a cache where the layer's part of the sequence's page n begins.
mlir::Value pageStart(KernelBuilder &b, mlir::Value pages, mlir::Value layer, mlir::Value n);
/// The cache from a byte on as elements of one type.
mlir::Value typedCache(KernelBuilder &b, mlir::Value cache, Index byte, mlir::Type element);

/// Fetches the pages of memory that `bytes` bytes lie in, from an element on: what is going to be
/// read then waits for no translation of its address.
void touch(KernelBuilder &b, mlir::Value elements, mlir::Value first, int64_t bytes);

/// A layer's float keys and values.
class FloatPages {
public:
  FloatPages(KernelBuilder &b, const AttentionSpec &spec, mlir::Value cache, mlir::Value pages,
             mlir::Value layer);

  mlir::Value elements; ///< of all the cache
  /// Where a head's keys begin in the page that holds `token`: blocks of 16 x D, transposed. Rows
  /// of values lie valuesBehind() further on.
  mlir::Value start(mlir::Value head, mlir::Value token);
  int64_t valuesBehind() const { return numerics::kPageTokens * spec.headDim; }
  int64_t elementBytes() const { return spec.halfCache ? 2 : 4; }
  void touch(mlir::Value head, mlir::Value token) {
    cpu::touch(b, elements, start(head, token), 2 * valuesBehind() * elementBytes());
  }

private:
  KernelBuilder &b;
  const AttentionSpec &spec;
  mlir::Value pages, layer;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPAGES_H
