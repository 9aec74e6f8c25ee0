//===- MethodRun.h - A method that runs the model --------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What equant-awq, equant-gptq and equant-lkd have in common: they take calibration tokens through
// the layers, and what they compute for layer i goes into `<method>_<i>.safetensors` of the work
// folder, whose stamp tells a later run that there is nothing to do.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_METHODS_METHODRUN_H
#define EASYQUANT_METHODS_METHODRUN_H

#include "easyquant/Execution/LayerSites.h"
#include "easyquant/Execution/Ranks.h"
#include "easyquant/Formats/ComputedConstants.h"
#include "easyquant/Recipe/OptionValues.h"

namespace easyquant::methods {

using namespace execution;

/// Does the plan of any site name the method?
bool isPlanned(mlir::ModuleOp module, llvm::StringRef method);

/// What means of activations are over: more tokens move them by less than texts differ.
inline constexpr int64_t kTokensOfMeans = 16384;

class MethodRun {
public:
  struct Request {
    llvm::StringRef method;
    /// The version of the algorithm: whatever results depend on and no option says.
    std::string revision;
    recipe::OptionValues options; ///< of the pass
    int64_t samples = 0;          ///< the first ones alone; 0: all
    int64_t length = 0;           ///< of sequences that samples are split into; 0: they are not
    int64_t sequences = 0;        ///< so many of these, at most
    int64_t tokens = 0;           ///< the first samples that hold so many, or `samples` if more
    bool sharesSamples = false;   ///< the runner has those of this rank alone; else all
  };

  /// Reads the tokens, finds the layers and stamps them as they are, with the values of the
  /// method's own options, which it records in the module, too. Fails with a diagnostic: no
  /// tokens, no work folder, a site outside of the layers whose plan names the method.
  static mlir::FailureOr<MethodRun> open(mlir::ModuleOp module, const Request &request);

  LayerRunner &runner() { return *layerRunner; }
  const LayerRunner &runner() const { return *layerRunner; }
  const Ranks &ranks() const { return others; }
  const formats::ComputedConstants &work() const { return folder; }
  int64_t layerCount() const { return static_cast<int64_t>(stamps.size()); }
  mlir::func::FuncOp layer(int64_t i) { return layerRunner->layers()[i]; }
  /// "gptq_3.safetensors", or with a part "awq_clip_3.safetensors".
  std::string file(int64_t i, llvm::StringRef part = "") const;
  const std::string &stamp(int64_t i) const { return stamps[i]; }
  /// Has an earlier run, or another rank, written that file? Ranks that lack it get it. Collective;
  /// false where ranks cannot talk any more.
  bool has(int64_t i, llvm::StringRef part = "") const { return has(file(i, part), stamps[i]); }
  bool has(const std::string &file, const std::string &stamp) const;
  /// How many layers must be run: up to the last one that `isDone` does not say is done.
  int64_t layersToRun(llvm::function_ref<bool(int64_t layer)> isDone) const;

  mlir::LogicalResult fail(const Error &error) const {
    return mlir::emitError(loc) << error.message;
  }

private:
  MethodRun(mlir::Location loc, std::string method, std::string folder)
      : loc(loc), others(Ranks::of(loc.getContext())), method(std::move(method)),
        folder(std::move(folder)) {}
  Result<void> agree();

  mlir::Location loc;
  Ranks others;
  std::string method;
  std::unique_ptr<const CalibrationTokens> tokens; ///< the runner refers to them
  std::optional<LayerRunner> layerRunner;
  formats::ComputedConstants folder;
  std::vector<std::string> stamps;
};

} // namespace easyquant::methods

#endif // EASYQUANT_METHODS_METHODRUN_H
