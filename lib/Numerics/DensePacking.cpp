//===- DensePacking.cpp - Codes as a bit stream ---------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Numerics/Packing.h"

namespace easyquant::numerics {
namespace {

Result<void> checkDense(size_t codes, int bits, size_t bytes) {
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8)
    return makeError(ErrorCode::InvalidArgument,
                     "dense packing of {}-bit codes: expected 2, 3, 4 or 8 bits", bits);
  if (static_cast<int64_t>(bytes) != denseBytes(codes, bits))
    return makeError(ErrorCode::InvalidArgument,
                     "{} bytes for {} dense codes of {} bits: expected {}", bytes, codes, bits,
                     denseBytes(codes, bits));
  return {};
}

} // namespace

// Eight codes of b bits are b bytes, whatever b: both loops go by such blocks, through a 64-bit
// buffer that is emptied (filled) a byte at a time.

Result<void> packDense(std::span<const int8_t> codes, int bits, std::span<uint8_t> out) {
  if (auto ok = checkDense(codes.size(), bits, out.size()); !ok)
    return ok;
  CodeRange range = codeRange(bits, /*symmetric=*/false);
  size_t byte = 0;
  for (size_t i = 0; i < codes.size(); i += 8) {
    size_t count = std::min<size_t>(8, codes.size() - i);
    uint64_t block = 0;
    for (size_t j = 0; j < count; ++j) {
      int code = int{codes[i + j]};
      if (code < range.min || code > range.max)
        return makeError(ErrorCode::InvalidArgument, "code {} at {}: {} bits hold [{}, {}]", code,
                         i + j, bits, range.min, range.max);
      block |= static_cast<uint64_t>(code - range.min) << (j * bits);
    }
    for (int64_t k = 0; k < denseBytes(count, bits); ++k)
      out[byte++] = static_cast<uint8_t>(block >> (8 * k));
  }
  return {};
}

Result<void> unpackDense(std::span<const uint8_t> packed, int bits, std::span<int8_t> codes) {
  if (auto ok = checkDense(codes.size(), bits, packed.size()); !ok)
    return ok;
  int32_t offset = codeRange(bits, /*symmetric=*/false).min;
  uint64_t mask = (uint64_t(1) << bits) - 1;
  size_t byte = 0;
  for (size_t i = 0; i < codes.size(); i += 8) {
    size_t count = std::min<size_t>(8, codes.size() - i);
    uint64_t block = 0;
    for (int64_t k = 0; k < denseBytes(count, bits); ++k)
      block |= static_cast<uint64_t>(packed[byte++]) << (8 * k);
    for (size_t j = 0; j < count; ++j)
      codes[i + j] =
          static_cast<int8_t>(static_cast<int32_t>((block >> (j * bits)) & mask) + offset);
  }
  return {};
}

} // namespace easyquant::numerics
