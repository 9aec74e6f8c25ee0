//===- Descriptions.h - Architectures that others begin with ----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_DESCRIPTIONS_H
#define EASYQUANT_LIB_FORMATS_DESCRIPTIONS_H

#include "easyquant/Formats/Architecture.h"

namespace easyquant::formats {

Architecture llama();
Architecture mistral();
Architecture qwen2();
Architecture qwen3();
Architecture gemma2();
Architecture gemma3();
Architecture gemma4();
Architecture gemma4Assistant();
Architecture lfm2();
Architecture qwen35();

// Architectures with experts.
Architecture qwen3Moe();
Architecture mixtral();
Architecture qwen2Moe();
Architecture gptOss();
Architecture lfm2Moe();
Architecture qwen35Moe();

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_DESCRIPTIONS_H
