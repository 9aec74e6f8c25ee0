//===- LinearData.h - Weights and results of simulated linears --*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_GPU_LINEARDATA_H
#define EASYQUANT_TEST_CODEGEN_GPU_LINEARDATA_H

#include "SimtRunner.h"

#include "easyquant/Numerics/FragmentPacking.h"

#include <cmath>
#include <random>

namespace easyquant::gpu {

/// The scheme of weights of a codec. A table with a unit of its own, or of int8 values, is one that
/// int8 activations are multiplied with.
numerics::Scheme schemeOf(const WeightCodec &codec, bool isInt8 = false);

/// Codecs of all kinds that linears on float activations take beside plain integers.
std::vector<WeightCodec> floatCodecs();
/// Codecs that linears on int8 activations take.
std::vector<WeightCodec> integerCodecs();

/// N x K codes of the whole range, with scales and zero points of the scheme.
numerics::QuantizedMatrix randomWeights(int64_t n, int64_t k, const numerics::Scheme &scheme,
                                        std::mt19937 &random);

/// A weight as kernels read it, with sums.
numerics::PackedWeight fragmentsOf(const numerics::QuantizedMatrix &weights,
                                   numerics::FragmentOrder order);

/// Rows of floats of any type in device memory, a bit apart; outside, they are dense.
class FloatRows {
public:
  FloatRows(simt::Device &device, const std::vector<float> &values, int64_t rows, int64_t columns,
            Float type, std::string name);
  uint64_t address() const { return bytes.address(); }
  int64_t stride() const { return strideOf(columns); } ///< in elements
  std::vector<float> read() const;

private:
  static int64_t strideOf(int64_t columns) { return columns + 4 + columns % 2; }
  static std::vector<uint8_t> spread(const std::vector<float> &values, int64_t rows,
                                     int64_t columns, Float type);

  int64_t rows, columns;
  Float type;
  DeviceBuffer<uint8_t> bytes;
};

/// float rounded to the type.
float rounded(float value, Float type);
std::vector<float> rounded(std::vector<float> values, Float type);

/// A product in double, and what sums in f32 of exact terms may be off by (BlockScaled.h,
/// Kernels.h).
struct ExactProduct {
  double sum = 0, magnitude = 0;

  void add(double term) {
    sum += term;
    magnitude += std::abs(term);
  }
  double bound(int64_t k) const {
    return (static_cast<double>(k) / 8 + 32) * 0x1p-22 * magnitude + 0x1p-120;
  }
};

/// Kernels of one name are generated once, so that they have to be alike.
template <typename Kernel>
void expectOneTileOfAName(const std::vector<Kernel> &kernels, const Chip &chip) {
  std::map<std::string, GemmTile> tiles;
  for (const Kernel &kernel : kernels) {
    const GemmTile &tile = kernel.tile;
    const GemmTile &first = tiles.emplace(kernel.description.name, tile).first->second;
    EXPECT_TRUE(tile.warpRows == first.warpRows && tile.stages == first.stages &&
                tile.warpColumns == first.warpColumns && tile.splits == first.splits &&
                tile.blocksPerSM == first.blocksPerSM)
        << kernel.description.name << " on " << chip.name;
  }
}

} // namespace easyquant::gpu

#endif // EASYQUANT_TEST_CODEGEN_GPU_LINEARDATA_H
