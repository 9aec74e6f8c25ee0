//===- EquantToKernels.h - Models to kernel calls ---------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CONVERSION_EQUANTTOKERNELS_EQUANTTOKERNELS_H
#define EASYQUANT_CONVERSION_EQUANTTOKERNELS_EQUANTTOKERNELS_H

#include "easyquant/Formats/CacheSizes.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Pass/Pass.h"

namespace easyquant {

namespace equant {
class KVSchemeAttr;
} // namespace equant

/// What the manifest says of a cache of codes; unit, its null, for a float one (no scheme).
/// `rotatesKeys`: keys are kept before their rotation.
mlir::Attribute describeCache(mlir::Builder &b, equant::KVSchemeAttr scheme, bool rotatesKeys);

/// What it says of its sizes.
mlir::Attribute describeCacheSizes(mlir::Builder &b, const formats::CacheSizes &sizes);

/// On a converted module: what the runtime must know to call it. A dictionary of entry, max_rows,
/// arena_bytes, arena_bytes_per_thread, cache, cache_scheme and cache_type (docs/Architecture.md).
inline constexpr llvm::StringLiteral kProgramAttr = "equant.program";

#define GEN_PASS_DECL
#define GEN_PASS_REGISTRATION
#include "easyquant/Conversion/EquantToKernels/Passes.h.inc"

} // namespace easyquant

#endif // EASYQUANT_CONVERSION_EQUANTTOKERNELS_EQUANTTOKERNELS_H
