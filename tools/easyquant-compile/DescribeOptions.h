//===- DescribeOptions.h - The table of options, for others -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_EASYQUANT_COMPILE_DESCRIBEOPTIONS_H
#define EASYQUANT_TOOLS_EASYQUANT_COMPILE_DESCRIBEOPTIONS_H

#include "easyquant/Recipe/Options.h"

namespace easyquant {

/// What help says of an option: "GPTQ: ... (default: yes)".
std::string helpOf(const recipe::OptionInfo &option);

/// Prints the table as JSON, of which the front desk makes its command line:
///   {"methods": [{"name", "stage"}], "options": [{"name", "kind", "help", ...}]}
/// A field that says nothing is left out.
void describeOptions();

} // namespace easyquant

#endif // EASYQUANT_TOOLS_EASYQUANT_COMPILE_DESCRIBEOPTIONS_H
