//===- CommandLine.h - The options of easyquant-compile ---------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_EASYQUANT_COMPILE_COMMANDLINE_H
#define EASYQUANT_TOOLS_EASYQUANT_COMPILE_COMMANDLINE_H

#include "Progress.h"

#include "easyquant/Recipe/OptionValues.h"

namespace easyquant {

/// What joins ranks (easyquant/Comm/Open.h); None: every process is alone.
enum class CommKind { Auto, MPI, NCCL, None };

struct CommandLine {
  std::string model;
  std::string output;
  recipe::OptionValues options;
  std::string pipeline; ///< passes to run instead of compiling
  std::string search;   ///< options of a search to do instead
  ProgressFormat progress = ProgressFormat::Text;
  CommKind comm = CommKind::Auto;
  double commTimeout = 600; ///< seconds that a collective may take

  /// Prints help, the table of options or an error, and exits if the arguments ask for it.
  static CommandLine parse(int argc, char **argv);
};

} // namespace easyquant

#endif // EASYQUANT_TOOLS_EASYQUANT_COMPILE_COMMANDLINE_H
