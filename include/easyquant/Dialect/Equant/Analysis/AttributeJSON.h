//===- AttributeJSON.h - Attributes as JSON ---------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_ANALYSIS_ATTRIBUTEJSON_H
#define EASYQUANT_DIALECT_EQUANT_ANALYSIS_ATTRIBUTEJSON_H

#include "easyquant/Support/Json.h"

#include "mlir/IR/Attributes.h"

namespace easyquant {

/// Dictionaries, arrays, strings, numbers and schemes; null for anything else and for none.
Json toJson(mlir::Attribute attribute);

} // namespace easyquant

#endif // EASYQUANT_DIALECT_EQUANT_ANALYSIS_ATTRIBUTEJSON_H
