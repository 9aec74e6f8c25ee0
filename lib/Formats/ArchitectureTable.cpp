//===- ArchitectureTable.cpp - What docs say of architectures -------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Architecture.h"

#include "easyquant/Support/Result.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

std::string formats::architectureTable() {
  std::string table = "| `model_type` | GGUF architecture | what it has | refused | proven against "
                      "|\n|---|---|---|---|---|\n";
  for (const Architecture &a : architectures()) {
    const bool isOwnName =
        std::ranges::count(architectures(), std::string_view(a.gguf), &Architecture::gguf) == 1;
    const char *with = isOwnName                            ? ""
                       : a.experts && !a.experts.enabledKey ? " with `expert_count`"
                       : a.window == WindowKind::None       ? ""
                                                            : " with `attention.sliding_window`";
    table += fmt::format("| `{}` | `{}`{} | {} | {} | {} |\n", a.name, a.gguf, with, a.summary,
                         a.refused, a.proof);
  }
  return table;
}
