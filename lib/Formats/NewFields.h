//===- NewFields.h - What is new in unknown models --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_FORMATS_NEWFIELDS_H
#define EASYQUANT_LIB_FORMATS_NEWFIELDS_H

#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Support/FieldReader.h"

#include <string>

namespace easyquant::formats {

/// Reads a configuration as one of `config.architecture`.
using ReadModel = void (*)(FieldReader &fields, ModelConfig &config);

/// What is new in a configuration of an unknown architecture, to be put behind a message:
/// "; nearest by its fields: qwen3; new in it: num_experts (a mixture of experts)". The nearest is
/// the architecture that leaves the fewest fields unread. The text part of a model has its own
/// object.
std::string newFields(const Json &object, std::string_view fileName, ReadModel read);

} // namespace easyquant::formats

#endif // EASYQUANT_LIB_FORMATS_NEWFIELDS_H
