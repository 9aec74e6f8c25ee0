//===- PackRows.h - Codes of a few rows to their panel ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Numerics.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_NUMERICS_PACKROWS_H
#define EASYQUANT_LIB_NUMERICS_PACKROWS_H

#include "easyquant/Numerics/Packing.h"

namespace easyquant::numerics {

/// packPanel of `rows` rows of codes that lie `stride` apart.
void packRows(const PanelLayout &layout, int64_t rows, const int8_t *codes, int64_t stride,
              uint8_t *out);

} // namespace easyquant::numerics

#endif // EASYQUANT_LIB_NUMERICS_PACKROWS_H
