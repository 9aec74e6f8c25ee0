//===- PassOptions.td - Options that state their defaults --*- tablegen -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// An option of a pass whose help ends with its default: the value stands once. What has no value of
// its own by default, or one that depends on other options, is MLIR's Option and says so in words.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_PASSOPTIONS
#define EASYQUANT_SUPPORT_PASSOPTIONS

include "mlir/Pass/PassBase.td"

/// A number or a bool.
class NumberOption<string cppName, string flag, string cppType, string value, string help>
    : Option<cppName, flag, cppType, value, help # " (default: " # value # ")">;

class TextOption<string cppName, string flag, string value, string help>
    : Option<cppName, flag, "std::string", "\"" # value # "\"", help # " (default: " # value # ")">;

/// Names of targets or of their families (easyquant/Target/Target.h).
class TargetsOption<string help>
    : ListOption<"kernelTargets", "target", "std::string", help # " (docs/Targets.md lists them); by default cpu">;

#endif // EASYQUANT_SUPPORT_PASSOPTIONS
