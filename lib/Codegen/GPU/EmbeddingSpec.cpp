//===- EmbeddingSpec.cpp - Rows of tables: names, arguments, launches -----===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Codegen/GPU/Embedding.h"

namespace easyquant::gpu {

static constexpr uint32_t kThreads = 128; // of a row

static std::string symbolName(const EmbeddingSpec &spec) {
  std::string name =
      fmt::format("embedding_{}x{}{}", spec.vocab, spec.columns, spec.sharded ? "_sharded" : "");
  if (spec.bits == 0)
    return name + fmt::format("_{}", nameOf(spec.table));
  if (spec.bits == 16)
    return name + fmt::format("_{}_fragments", nameOf(spec.table));
  name += "_" + nameOf(spec.bits, spec.scales);
  if (spec.groupSize != 0)
    name += fmt::format("_g{}", spec.groupSize);
  name += spec.zeroPoints ? "_zp" : "";
  return name + "_" + std::string(numerics::nameOf(spec.order));
}

Description describe(const EmbeddingSpec &spec, const Chip &) {
  Description description;
  description.name = symbolName(spec);
  description.threads = kThreads;
  description.grid[0].rowsPerBlock = 1;
  std::vector<Parameter> &parameters = description.parameters;
  parameters = {{"tokens"}};
  if (spec.bits == 0) {
    parameters.push_back({"table"});
  } else {
    parameters.push_back({"w"});
    if (spec.bits != 16)
      parameters.push_back({"wscales"});
    if (spec.zeroPoints)
      parameters.push_back({"wzeros"});
  }
  if (spec.sharded)
    parameters.push_back({"rank", Parameter::I32});
  parameters.push_back({"y", Parameter::Pointer, true});
  parameters.push_back({"y_stride", Parameter::I32});
  parameters.push_back({"rows", Parameter::I32});
  return description;
}

Description describe(const PositionEmbeddingSpec &spec, const Chip &) {
  Description description;
  description.name = fmt::format("position_embedding_{}x{}", spec.positions, spec.columns);
  description.threads = kThreads;
  description.grid[0].rowsPerBlock = 1;
  description.parameters = {{"table"},
                            {"position"},
                            {"y", Parameter::Pointer, true},
                            {"y_stride", Parameter::I32},
                            {"rows", Parameter::I32}};
  return description;
}

Description describe(const GatherSpec &spec, const Chip &) {
  Description description;
  description.name = fmt::format("gather_{}", spec.columns);
  description.threads = kThreads;
  description.grid[0].rowsPerBlock = 1;
  description.parameters = {{"x"},
                            {"x_stride", Parameter::I32},
                            {"numbers"},
                            {"y", Parameter::Pointer, true},
                            {"y_stride", Parameter::I32},
                            {"rows", Parameter::I32}};
  return description;
}

} // namespace easyquant::gpu
