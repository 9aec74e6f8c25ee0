//===- HuggingFaceWriter.h - Models as Hugging Face folders -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXPORT_HUGGINGFACEWRITER_H
#define EASYQUANT_EXPORT_HUGGINGFACEWRITER_H

#include "easyquant/Formats/DType.h"
#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Support/Json.h"

namespace easyquant::formats {

/// The config.json of a model whose floats are of this type, which parseHuggingFaceConfig() reads
/// back as the same ModelConfig. `quantization` becomes its `quantization_config`; null: none.
std::string huggingFaceConfigText(const ModelConfig &config, DType floats = DType::F32,
                                  const Json &quantization = {});

/// Copies the tokenizer and generation files that a Hugging Face folder has beside its config.json;
/// a GGUF file has none. Errors: IO.
Result<void> copyCompanions(const ModelSource &source, const std::filesystem::path &folder);

/// Writes a model as the folder that the transformers library loads: config.json and
/// model.safetensors in F32, in the layouts of the architecture's own checkpoints, and the
/// tokenizer and generation files that the source has beside its config.json. `folder` must not
/// exist; it appears complete or not at all. Errors: InvalidArgument, those of ModelSource::read,
/// IO.
Result<void> writeHuggingFace(const ModelSource &source, const std::filesystem::path &folder);

} // namespace easyquant::formats

#endif // EASYQUANT_EXPORT_HUGGINGFACEWRITER_H
