//===- GGMLBlocks.h - The blocks of llama.cpp ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_CODECS_GGMLBLOCKS_H
#define EASYQUANT_FORMATS_CODECS_GGMLBLOCKS_H

#include "easyquant/Formats/Codecs/WeightCodec.h"
#include "easyquant/Formats/GGMLType.h"

namespace easyquant::formats {

/// The type whose blocks hold the codes and scales of a scheme; null where none does.
const GGMLTypeInfo *ggmlTypeOf(const numerics::Scheme &scheme);

/// The scheme of a type's blocks, with all codes; nothing where none is theirs.
std::optional<numerics::Scheme> schemeOf(GGMLType type);

/// A codec of one tensor, the blocks.
WeightCodecMaker ggmlCodec;
/// The same of any type that schemeOf knows, to be read.
Result<std::unique_ptr<WeightReader>> ggmlReader(GGMLType type, int64_t rows, int64_t columns);

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_CODECS_GGMLBLOCKS_H
