//===- GGMLNVFP4.cpp - NVFP4 of llama.cpp ---------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Blocks of 64 weights: s[4], qs[32]. Each 16 weights have a scale of FP8 (E4M3, without a sign)
// and 8 bytes, of which byte i has the codes of weights i and i + 8. A tensor beside the weight,
// "scale" in the place of "weight", has what all of it is multiplied with, an f32; 1 where there is
// none.
//
//===----------------------------------------------------------------------===//

#include "GGMLSuperBlocks.h"

#include "easyquant/Formats/Codecs/GGMLBlocks.h"

using namespace easyquant;
using namespace easyquant::formats;
using numerics::ScaleFormat;
using numerics::Scheme;
using numerics::WeightTensor;

namespace {

constexpr int64_t kNVFP4Block = 64, kNVFP4Group = 16, kNVFP4Groups = kNVFP4Block / kNVFP4Group;
constexpr int64_t kNVFP4BlockBytes = kNVFP4Groups + kNVFP4Block / 2;

class NVFP4BlockReader final : public WeightReader {
public:
  using WeightReader::WeightReader;

  std::vector<CodecTensor> tensors() const override {
    return {{"weight",
             DType::U8,
             {rows, columns / kNVFP4Block * kNVFP4BlockBytes},
             WeightTensor::Codes},
            {"scale", DType::F32, {1}, WeightTensor::Outer}};
  }

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  numerics::QuantizedMatrix &block) const override {
    const float outer = numerics::loadScale(stored[WeightTensor::Outer], 0, ScaleFormat::F32);
    block.params.outer = {outer};
    const int64_t blocks = columns / kNVFP4Block;
    const uint8_t *bytes = stored[WeightTensor::Codes] + firstRow * blocks * kNVFP4BlockBytes;
    for (int64_t i = 0; i < block.rows * blocks; ++i, bytes += kNVFP4BlockBytes)
      for (int64_t g = 0; g < kNVFP4Groups; ++g) {
        // llama.cpp heeds no sign, and what is NaN counts as 0.
        const uint8_t bits = bytes[g] & 0x7f, scale = bits == 0x7f ? 0 : bits;
        block.params.scales[i * kNVFP4Groups + g] =
            numerics::loadScale(&scale, 0, scheme.scales) * outer;
        const uint8_t *qs = bytes + kNVFP4Groups + 8 * g;
        int8_t *codes = &block.codes[i * kNVFP4Block + kNVFP4Group * g];
        for (int64_t k = 0; k < kNVFP4Group; ++k)
          codes[k] = static_cast<int8_t>(codeOf(qs[k % 8] >> (k / 8 * 4) & 0xf));
      }
  }
};

} // namespace

Scheme formats::nvfp4BlockScheme() {
  return {.bits = 4,
          .granularity = numerics::Granularity::Group,
          .groupSize = kNVFP4Group,
          .codes = numerics::CodeFormat::F4E2M1FN,
          .scales = ScaleFormat::F8E4M3FN,
          .outer = true};
}

Result<std::unique_ptr<WeightReader>> formats::nvfp4BlockReader(int64_t rows, int64_t columns) {
  if (columns % kNVFP4Block != 0)
    return makeError(ErrorCode::Corrupt, "{} columns are no whole blocks of {}", columns,
                     kNVFP4Block);
  return std::make_unique<NVFP4BlockReader>(nvfp4BlockScheme(), rows, columns);
}
