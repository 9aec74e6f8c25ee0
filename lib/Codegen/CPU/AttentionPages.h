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

#include "KernelBuilder.h"

namespace easyquant::cpu {

/// The byte of a cache where the layer's part of the sequence's page n begins.
mlir::Value pageStart(KernelBuilder &b, mlir::Value pages, mlir::Value layer, mlir::Value n);
/// The cache from a byte on as elements of one type.
mlir::Value typedCache(KernelBuilder &b, mlir::Value cache, Index byte, mlir::Type element);

/// A layer's float keys and values.
class FloatPages {
public:
  FloatPages(KernelBuilder &b, const AttentionSpec &spec, mlir::Value cache, mlir::Value pages,
             mlir::Value layer);

  mlir::Value elements; ///< of all the cache
  /// Where a head's keys begin in the page that holds `token`: blocks of 16 x D, transposed. Rows
  /// of values lie valuesBehind() further on.
  mlir::Value start(mlir::Value head, mlir::Value token);
  int64_t valuesBehind() const { return spec.kvHeads * headElements; }

private:
  KernelBuilder &b;
  const AttentionSpec &spec;
  int64_t headElements; ///< of a head's keys in a page
  mlir::Value pages, layer;
};

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONPAGES_H
