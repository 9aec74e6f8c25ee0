//===- WeightFormat.cpp - Formats of weights ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/CPU/Kernels.h"

namespace easyquant::cpu {

llvm::StringRef nameOf(WeightFormat format) {
  switch (format) {
  case WeightFormat::F32:
    return "f32";
  case WeightFormat::I8:
    return "i8";
  case WeightFormat::I6:
    return "i6";
  case WeightFormat::I5:
    return "i5";
  case WeightFormat::I4:
    return "i4";
  case WeightFormat::I3:
    return "i3";
  case WeightFormat::I2:
    return "i2";
  }
  llvm_unreachable("all weight formats are named");
}

std::string nameOf(const WeightNumbers &numbers) {
  std::string name;
  if (numbers.codes != CodeFormat::Integer)
    name = std::string("_") + numerics::toString(numbers.codes);
  if (numbers.scales != ScaleFormat::F32)
    name += std::string("_s") + numerics::toString(numbers.scales);
  if (numbers.outer)
    name += "_outer";
  return name;
}

WeightFormat formatOfBits(int bits) {
  for (WeightFormat format : {WeightFormat::I8, WeightFormat::I6, WeightFormat::I5,
                              WeightFormat::I4, WeightFormat::I3, WeightFormat::I2})
    if (bitsOf(format) == bits)
      return format;
  llvm_unreachable("schemes have no other widths");
}

int64_t bitsOf(WeightFormat format) {
  switch (format) {
  case WeightFormat::F32:
    return 32;
  case WeightFormat::I8:
    return 8;
  case WeightFormat::I6:
    return 6;
  case WeightFormat::I5:
    return 5;
  case WeightFormat::I4:
    return 4;
  case WeightFormat::I3:
    return 3;
  case WeightFormat::I2:
    return 2;
  }
  llvm_unreachable("all weight formats have a width");
}

std::array<int64_t, 4> packedShape(WeightFormat format, int64_t n, int64_t k) {
  int64_t panels = panelCount(n), padded = paddedColumns(k), bits = bitsOf(format);
  if (format == WeightFormat::I8)
    return {panels, padded / 4, kPanelRows, 4};
  return {panels, padded / 8, kPanelRows * bits / 4, 4};
}

} // namespace easyquant::cpu
