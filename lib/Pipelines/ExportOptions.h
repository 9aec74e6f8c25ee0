//===- ExportOptions.h - Options of an exported checkpoint ------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_PIPELINES_EXPORTOPTIONS_H
#define EASYQUANT_LIB_PIPELINES_EXPORTOPTIONS_H

#include "easyquant/Recipe/OptionValues.h"

#include <optional>
#include <string>

namespace easyquant {

/// An option that goes with artifacts alone and was given beside --export, if any.
std::optional<std::string> checkExport(const recipe::OptionValues &options);

} // namespace easyquant

#endif // EASYQUANT_LIB_PIPELINES_EXPORTOPTIONS_H
