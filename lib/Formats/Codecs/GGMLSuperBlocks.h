//===- GGMLSuperBlocks.h - Blocks of blocks of llama.cpp ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_CODECS_GGMLSUPERBLOCKS_H
#define EASYQUANT_LIB_FORMATS_CODECS_GGMLSUPERBLOCKS_H

#include "easyquant/Formats/Codecs/GGMLBlocks.h"

namespace easyquant::formats {

/// Nothing where the type is none of them.
std::optional<numerics::Scheme> superBlockScheme(GGMLType type);
/// The type of a scheme of super-blocks, if there is one.
const GGMLTypeInfo *superBlockTypeOf(const numerics::Scheme &scheme);
/// The scheme has a type. Unsupported: columns that are no whole blocks.
WeightCodecMaker superBlockCodec;

/// The scheme of NVFP4, and its reader: beside the blocks there is a "scale" of the tensor.
/// Errors: Corrupt, on columns that are no whole blocks.
numerics::Scheme nvfp4BlockScheme();
Result<std::unique_ptr<WeightReader>> nvfp4BlockReader(int64_t rows, int64_t columns);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_CODECS_GGMLSUPERBLOCKS_H
