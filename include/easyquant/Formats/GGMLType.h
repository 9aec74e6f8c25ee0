//===- GGMLType.h - Block-quantized types of GGUF -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The tensor types of GGUF files, and their conversion to f32. A block holds a fixed number of
// neighbours along the contiguous dimension. d and m are a block's fp16 scales, q a code:
//
//   Q8_0  32 weights   d * q                       q in [-128, 127]
//   Q4_0  32           d * (q - 8)                 q in [0, 15]
//   Q4_1  32           d * q + m                   q in [0, 15]
//   Q5_0  32           d * (q - 16)                q in [0, 31]
//   Q5_1  32           d * q + m                   q in [0, 31]
//   Q2_K  256 = 16x16  d * s * q - m * t           q in [0, 3],   s, t in [0, 15]
//   Q3_K  256 = 16x16  d * (s - 32) * (q - 4)      q in [0, 7],   s in [0, 63]
//   Q4_K  256 = 8x32   d * s * q - m * t           q in [0, 15],  s, t in [0, 63]
//   Q5_K  256 = 8x32   d * s * q - m * t           q in [0, 31],  s, t in [0, 63]
//   Q6_K  256 = 16x16  d * s * (q - 32)            q in [0, 63],  s in [-128, 127]
//   Q8_K  256          d * q                       d is fp32
//   IQ4_NL 32          d * t[q]                    t the table of numerics::kIQ4NL
//   IQ4_XS 256 = 8x32  d * (s - 32) * t[q]         s in [0, 63]
//   MXFP4 32           2^(e - 127) * v[q]          v the values of FP4 (E2M1)
//   NVFP4 64 = 4x16    s * v[q]                    s is FP8 (E4M3) without a sign
//
// The arithmetic is fp32 in the order of ggml's reference, so that the values are the same bits.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_GGMLTYPE_H
#define EASYQUANT_FORMATS_GGMLTYPE_H

#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace easyquant::formats {

/// Values as stored in GGUF.
enum class GGMLType : uint32_t {
  F32 = 0,
  F16 = 1,
  Q4_0 = 2,
  Q4_1 = 3,
  Q5_0 = 6,
  Q5_1 = 7,
  Q8_0 = 8,
  Q8_1 = 9,
  Q2_K = 10,
  Q3_K = 11,
  Q4_K = 12,
  Q5_K = 13,
  Q6_K = 14,
  Q8_K = 15,
  IQ2_XXS = 16,
  IQ2_XS = 17,
  IQ3_XXS = 18,
  IQ1_S = 19,
  IQ4_NL = 20,
  IQ3_S = 21,
  IQ2_S = 22,
  IQ4_XS = 23,
  I8 = 24,
  I16 = 25,
  I32 = 26,
  I64 = 27,
  F64 = 28,
  IQ1_M = 29,
  BF16 = 30,
  TQ1_0 = 34,
  TQ2_0 = 35,
  MXFP4 = 39,
  NVFP4 = 40,
};

struct GGMLTypeInfo {
  GGMLType type;
  std::string_view name;
  /// Elements and bytes of one block.
  int64_t blockElements, blockBytes;
  /// Whether dequantize() takes it.
  bool canDequantize;
};

/// Null for a number that this build does not know.
const GGMLTypeInfo *ggmlTypeInfo(uint32_t type);

/// Converts whole blocks to f32; no alignment is asked of `data`. Errors: Unsupported (a type that
/// is not canDequantize), InvalidArgument (`data` is not exactly the blocks of `out.size()`
/// weights).
Result<void> dequantize(GGMLType type, std::span<const std::byte> data, std::span<float> out);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_GGMLTYPE_H
