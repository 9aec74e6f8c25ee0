//===- AttentionCache.h - A layer's cache of codes --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernels.h lays the cache out; here are its places as IR, and what fills it: append, which makes
// room in the float window by quantizing what leaves it, and restore.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONCACHE_H
#define EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONCACHE_H

#include "AttentionPages.h"

namespace easyquant::cpu {

/// Dimensions and tokens handled together: a block of 8 x 8 is transposed in registers.
constexpr int64_t kBlock = 8;

/// The numbers of a cache of codes.
struct CacheLayout {
  explicit CacheLayout(const AttentionSpec &spec);

  AttentionSpec spec;
  KVQuantization kv;
  int64_t fields;    ///< codes in a word
  int64_t keyWords;  ///< words of a token's key
  int64_t width;     ///< dimensions that share a slice of a token
  int64_t slices;    ///< slices of one head of a token
  int64_t floatRows; ///< rows of sinks and window of one head
  int64_t levels;    ///< the largest code
  int64_t pageTokens;
  /// Where the parts of a head's part of a page begin, in words and in elements.
  int64_t keyCodes, valueCodes, valueSlices, keySlices;
  int64_t headBytes; ///< of a head's part of a page
  CacheBytes bytes;

  int64_t elementBytes() const { return spec.halfCache ? 2 : 4; }
  /// Bytes of the float rows of keys, or of values; aligned.
  int64_t floatBytes() const;
  /// From the minima of tokens' slices to their scales.
  int64_t tokenScales() const { return slices * pageTokens; }
};

/// Where a cache is: what all functions on it take first.
///   cache: memref<?xi8>, pages: memref<?xi64>, layer, window: index
struct CachePlace {
  static constexpr int64_t kCount = 4;
  explicit CachePlace(mlir::ValueRange args)
      : cache(args[0]), pages(args[1]), layer(args[2]), window(args[3]) {}
  llvm::SmallVector<mlir::Value> values() const { return {cache, pages, layer, window}; }
  mlir::Value cache, pages, layer, window;
};

/// A head's part of one page of a layer. Tokens have their numbers i of the codes, which lie in
/// this page.
class CodesPage {
public:
  CodesPage(KernelBuilder &b, const CacheLayout &layout, mlir::Value start)
      : b(b), layout(layout), start(start) {}

  mlir::Value firstWord() { return words(0); }
  /// Word 0 of the block that holds key i; word w of token i mod 16 is 16 w + i mod 16 further on.
  mlir::Value keyBlock(mlir::Value i);
  /// The word of dimension 0 that holds value i; dimension d is d further on.
  mlir::Value valueRow(mlir::Value i);
  /// The minimum of channel 0 for key i; scales lie D further on. Keys per channel.
  mlir::Value channelSlice(mlir::Value i);
  /// The minimum of a slice of value i, or of key i where keys have slices per token; scales lie
  /// layout.tokenScales() further on.
  mlir::Value valueSlice(mlir::Value slice, mlir::Value i) {
    return tokenSlice(layout.valueSlices, slice, i);
  }
  mlir::Value keySlice(mlir::Value slice, mlir::Value i) {
    return tokenSlice(layout.keySlices, slice, i);
  }

private:
  mlir::Value words(int64_t part) { return b.add(b.div(start, 4), part); }
  mlir::Value elements(int64_t part) { return b.add(b.div(start, layout.elementBytes()), part); }
  mlir::Value inPage(mlir::Value i) { return b.rem(i, layout.pageTokens); }
  mlir::Value tokenSlice(int64_t part, mlir::Value slice, mlir::Value i);

  KernelBuilder &b;
  const CacheLayout &layout;
  mlir::Value start; ///< its byte in the cache
};

/// A layer's cache, typed.
class CacheViews {
public:
  CacheViews(KernelBuilder &b, const CacheLayout &layout, const CachePlace &place);

  mlir::Value floatKeys, floatValues; ///< of the window
  mlir::Value words, elements;        ///< of all the cache, which is where pages lie

  /// The first element of a token's float row.
  mlir::Value floatRow(mlir::Value head, mlir::Value token);
  /// Token number i of the codes.
  mlir::Value number(mlir::Value token) { return b.sub(token, layout.kv.sinks); }
  /// The page of number i.
  CodesPage page(mlir::Value head, mlir::Value i);

private:
  KernelBuilder &b;
  const CacheLayout &layout;
  CachePlace place;
};

/// Calls append(k, v, place..., position, begin, end): for the heads [begin, end), one token of the
/// call after the other: makes room, then writes key and value.
void emitCacheAppend(KernelBuilder &b, mlir::ModuleOp module, const CacheLayout &layout,
                     mlir::ValueRange operands);
/// Calls makeRoom(place..., token, begin, end): quantizes what must leave the float window when
/// `token` comes: the value R tokens before, and at the first of a block the keys of the last one.
void emitMakeRoom(KernelBuilder &b, mlir::ModuleOp module, const CacheLayout &layout,
                  mlir::ValueRange operands);
/// Calls restore(place..., position, held, begin, end): a session that went back from `held` tokens
/// to `position` finds later tokens in the rows of its float window. They are filled again from the
/// codes of what was there.
void emitRestore(KernelBuilder &b, mlir::ModuleOp module, const CacheLayout &layout,
                 mlir::ValueRange operands);

} // namespace easyquant::cpu

#endif // EASYQUANT_LIB_CODEGEN_CPU_ATTENTIONCACHE_H
