//===- GGUFCheckpoint.cpp - Models in GGUF files --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checkpoint.h"

using namespace easyquant;
using namespace easyquant::formats;

Result<Checkpoint> formats::openGGUF(const std::filesystem::path &path) {
  Result<GGUFFile> file = GGUFFile::open(path);
  if (!file)
    return Unexpected(file.error());
  Checkpoint checkpoint;
  checkpoint.gguf = std::make_unique<GGUFFile>(std::move(*file));
  const GGUFFile &gguf = *checkpoint.gguf;
  Result<ModelConfig> config = parseGGUFConfig(gguf.contents(), path.string());
  if (!config)
    return Unexpected(config.error());
  checkpoint.config = std::move(*config);
  checkpoint.files = {&gguf.mapping()};
  for (const GGUFTensor &tensor : gguf.tensors()) {
    const GGMLTypeInfo *type = ggmlTypeInfo(static_cast<uint32_t>(tensor.type));
    checkpoint.tensors.emplace(tensor.name, StoredTensor{&gguf.mapping(), gguf.data(tensor),
                                                         tensor.shape, std::string(type->name),
                                                         type->canDequantize ? type : nullptr});
  }
  return checkpoint;
}
