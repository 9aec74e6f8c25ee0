//===- Compile.h - The pipeline behind easyquant-compile --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What easyquant-compile does to an imported model is a textual pass pipeline. The driver runs the
// very text that --dump-pipeline prints, so nothing can hide in it.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PIPELINES_COMPILE_H
#define EASYQUANT_PIPELINES_COMPILE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Support/LLVM.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace easyquant {

struct CompileOptions {
  std::string recipe; ///< a JSON file that says scheme and method per site; replaces the next ones
  std::string scheme = "W8A8";      ///< W8A8, W4A16_ASYM, ... or none
  std::string method;               ///< names joined by +; empty: absmax, zeropoint for _ASYM
  std::string activations;          ///< dynamic or static; empty: dynamic
  std::string weightObserver;       ///< empty: absmax
  std::optional<double> percentile; ///< of weightObserver and observer percentile
  bool mixed = false;               ///< zeroquant: 4 bits in MLPs
  std::string observer;             ///< range of static activations; empty: minmax
  std::string tokens;               ///< calibration text, for what needs it
  std::string work;                 ///< folder of what calibration and methods compute
  /// Of methods; empty: the defaults of their passes.
  std::string alpha; ///< a number, or search
  std::optional<double> damping;
  std::optional<bool> actOrder, staticGroups, clip;
  std::optional<int64_t> searchSamples, epochs;
  int64_t maxFallback = 0;                  ///< sites that may stay float against what is asked
  std::string target = "cpu";               ///< cpu and GPUs, joined by commas: sm_80,sm_90a,cpu
  std::string head;                         ///< float or int8; empty: the scheme's default
  int64_t groupSize = -1;                   ///< 0: a scale per channel; -1: the scheme's default
  std::vector<std::string> ignore, targets; ///< site names, or re:PATTERN
  std::vector<std::string> isas;            ///< empty: all
  std::string kvCache = "auto";             ///< f32, f16 or auto
  std::string kvScheme = "none";            ///< int8, int4, int2 or none: a float cache
  /// Of a cache of codes; empty: equant-simquant-kv's defaults.
  std::optional<int64_t> kvGroup, kvResidual, kvSinks;
  std::string kvKeys, kvKeyScales;
  int64_t maxRows = 512;              ///< tokens that one call of the program takes
  unsigned threads = 0;               ///< of quantization; 0: as many as there are CPUs
  int64_t maxShardBytes = 0;          ///< of weights in one file; 0: the pass's default
  std::vector<std::string> copyFiles; ///< tokenizer files

  /// Takes from the recipe file, if there is one, the options of methods and of the KV cache that
  /// are not given here. Says what is wrong with it, if anything.
  std::optional<std::string> takeFromRecipe();
  /// What is wrong with the method, the recipe file or the target, if anything. Everything else is
  /// the passes' own to check.
  std::optional<std::string> check() const;
  /// What needs calibration text while there is none, if anything; of options that check() has
  /// nothing to say about.
  std::optional<std::string> checkTokens() const;
};

/// A named part of the compilation: where --emit-ir-after can stop.
struct Phase {
  std::string name;     ///< quantize, materialize, program or manifest
  std::string pipeline; ///< passes, comma-separated
};

/// The phases after import that write the artifact into the folder `output`, of options that
/// check() has nothing to say about.
std::vector<Phase> compilePhases(const CompileOptions &options, llvm::StringRef output);

/// Plans the sites and prints what would become of them; nothing is computed or written.
std::string dryRunPipeline(const CompileOptions &options);

/// The phases up to and with import (none), quantize, materialize or kernels, whose IR is to be
/// seen; nothing if there is no such phase.
std::optional<std::vector<Phase>> phasesUntil(llvm::ArrayRef<Phase> phases, llvm::StringRef last,
                                              const CompileOptions &options);

/// The passes of all phases, comma-separated: what is between the parentheses of
/// builtin.module(...).
std::string pipelineText(llvm::ArrayRef<Phase> phases);

} // namespace easyquant

#endif // EASYQUANT_PIPELINES_COMPILE_H
