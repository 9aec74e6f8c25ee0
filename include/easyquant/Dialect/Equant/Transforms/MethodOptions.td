//===- MethodOptions.td - What all methods take ------------*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_DIALECT_EQUANT_TRANSFORMS_METHODOPTIONS
#define EASYQUANT_DIALECT_EQUANT_TRANSFORMS_METHODOPTIONS

include "easyquant/Recipe/Options.td"
include "easyquant/Support/PassOptions.td"

/// easyquant/Dialect/Equant/Analysis/NothingToDo.h says what.
defvar MethodOptions = [
  NumberOption<"requireSites", "require-sites", "bool", "false",
         "a module in which the method finds nothing to do is an error, not a warning">,
];

#endif // EASYQUANT_DIALECT_EQUANT_TRANSFORMS_METHODOPTIONS
