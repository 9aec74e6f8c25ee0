//===- LinearSpec.cpp - Integer linears: names, arguments, launches -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Kernels.h"

#include "GemmTiles.h"

#include "easyquant/Numerics/FragmentPacking.h"

namespace easyquant::gpu {

static std::string symbolName(const LinearSpec &spec) {
  std::string name = fmt::format("linear_{}x{}_{}", spec.n, spec.k, nameOf(spec.bits, spec.scales));
  if (spec.groupSize != 0)
    name += fmt::format("_g{}", spec.groupSize);
  name += spec.zeroPoints ? "_zp" : "";
  name += spec.inputZeroPoints ? "_q_zp" : "_q";
  name += spec.bias ? "_bias" : "";
  name += spec.accumulate ? "_accumulate" : "";
  if (spec.isPartial)
    return name + "_i32";
  return name + fmt::format("_{}", nameOf(spec.output));
}

static std::vector<Parameter> parametersOf(const LinearSpec &spec) {
  std::vector<Parameter> parameters = {{"codes"}};
  auto input = [&](bool there, const char *name) {
    if (there)
      parameters.push_back({name});
  };
  input(!spec.isPartial, "scales");
  input(spec.zeroPoints, "sums");
  input(spec.inputZeroPoints, "zeros");
  input(true, "w");
  input(!spec.isPartial, "wscales");
  input(spec.zeroPoints, "wzeros");
  input(spec.inputZeroPoints, "wsums");
  input(spec.bias, "bias");
  parameters.push_back({"y", Parameter::Pointer, true});
  parameters.push_back({"y_stride", Parameter::I32});
  parameters.push_back({"rows", Parameter::I32});
  return parameters;
}

static LinearKernel matrixKernel(const LinearSpec &spec, GemmTile tile, int64_t maxRows) {
  LinearKernel kernel;
  kernel.form = LinearKernel::Matrix;
  kernel.maxRows = maxRows;
  kernel.tile = tile;
  kernel.description = describeTile(symbolName(spec), parametersOf(spec), spec.n, tile,
                                    slabBytes(tile, /*elementBytes=*/1, spec.bits));
  return kernel;
}

static LinearKernel dotKernel(const LinearSpec &spec, int64_t rows) {
  LinearKernel kernel;
  kernel.form = LinearKernel::Dot;
  kernel.maxRows = rows;
  kernel.rows = rows;
  Description &description = kernel.description;
  description.name = fmt::format("{}_dp4a_{}", symbolName(spec), rows);
  description.parameters = parametersOf(spec);
  description.grid[0].factor = divideCeil(spec.n, numerics::fragmentRows(spec.bits));
  description.grid[1].rowsPerBlock = rows;
  description.threads = kDotThreads;
  // There are few blocks, so that registers are worth more than room for others: left to itself,
  // ptxas makes do with the 32 of a full multiprocessor, and waits for every load.
  description.blocksPerSM = 2;
  return kernel;
}

std::vector<LinearKernel> linearKernels(const LinearSpec &spec, const Chip &chip) {
  std::vector<LinearKernel> kernels;
  for (int64_t rows : {1, 4})
    kernels.push_back(dotKernel(spec, rows));
  for (const TileChoice &choice : integerTiles(chip)) {
    GemmTile tile = spec.groups() > 1 ? choice.grouped : choice.plain;
    giveWholeBlocks(tile, numerics::fragmentRows(spec.bits));
    // A group ends where a slab ends.
    if (spec.groups() > 1 && spec.groupSize % tile.slab != 0)
      tile.slab = numerics::kFragmentColumns;
    kernels.push_back(matrixKernel(spec, tile, choice.maxRows));
  }
  return kernels;
}

Description describe(const RescaleSpec &spec, const Chip &) {
  Description description;
  description.name = fmt::format("rescale_{}_{}", spec.n, nameOf(spec.bits, spec.scales));
  description.name += spec.bias ? "_bias" : "";
  description.name += spec.accumulate ? "_accumulate" : "";
  description.threads = 128; // of a row
  description.grid[0].rowsPerBlock = 1;
  std::vector<Parameter> &parameters = description.parameters;
  parameters = {{"sums"}, {"sums_stride", Parameter::I32}, {"scales"}, {"wscales"}};
  if (spec.bias)
    parameters.push_back({"bias"});
  parameters.push_back({"y", Parameter::Pointer, true});
  parameters.push_back({"y_stride", Parameter::I32});
  parameters.push_back({"rows", Parameter::I32});
  return description;
}

} // namespace easyquant::gpu
