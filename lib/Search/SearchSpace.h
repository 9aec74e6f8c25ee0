//===- SearchSpace.h - Which formats groups of sites may have ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A format is a scheme by its name, a group size, a basis and groups of activations. What it means
// at a site is what a recipe's rule that names it would mean there. Private to lib/Search.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_SEARCH_SEARCHSPACE_H
#define EASYQUANT_LIB_SEARCH_SEARCHSPACE_H

#include "easyquant/Execution/LayerSites.h"
#include "easyquant/Numerics/FormatChoice.h"
#include "easyquant/Target/Target.h"

namespace easyquant::search {

using namespace execution;

/// "W4A16_ASYM" in groups of 32; 0: a scale a row.
struct SearchFormat {
  std::string scheme;
  int64_t groupSize = 0;
  bool isTwoLevel = false;         ///< scales of groups are six bits under an f16
  bool isRotated = false;          ///< weights and activations are in the basis of Hadamard.h
  int64_t activationGroupSize = 0; ///< 0: a scale a token
  std::string name() const;
  bool operator==(const SearchFormat &) const = default;
};

/// A format as the sites of a group would have it.
struct FormatCandidate {
  size_t format = 0;  ///< number in SearchSpace::formats
  std::string method; ///< of the rule, which also fits weights when they are compiled
  llvm::SmallVector<equant::PlanAttr> plans; ///< of each site
  int64_t bytes = 0;                         ///< of all of them, as stored
  numerics::Milliseconds milliseconds = {};  ///< of the stages that were measured
};

/// Sites that get one format: those that read one activation, all linears of the same experts, or a
/// single one.
struct SearchGroup {
  size_t layer = 0;       ///< of the output head: one more than the last
  bool isHead = false;    ///< and of the embedding that shares its weight
  size_t block = 0;       ///< of the layer: groups whose errors are seen at the same cut are of one
  mlir::Value activation; ///< of the first site
  llvm::SmallVector<PlannedSite> sites;
  std::vector<FormatCandidate> candidates;

  /// What experts read has a row for each choice of a token, which is not kept: their blocks are
  /// computed from what the block reads, and rounding takes nothing from activations.
  bool areExperts() const { return bool(sites.front().offsets()); }

  std::string name() const; ///< "model.layers.0.self_attn.q_proj+k_proj+v_proj"
  int64_t weights() const;  ///< elements
  llvm::SmallVector<mlir::Operation *> linears() const;
};

struct SearchSpace {
  std::vector<SearchFormat> formats;
  std::vector<SearchGroup> groups;
  int64_t fixedBytes = 0;                        ///< of everything else in the weights file
  numerics::Milliseconds fixedMilliseconds = {}; ///< of the other planned linears, as measured

  int64_t weights() const;         ///< elements of the groups in layers
  const SearchGroup *head() const; ///< null: its format is not searched
};

struct SearchSpaceRequest {
  /// With "+two-level" behind; or "all"; or the name of a format of checkpoints alone: all schemes
  /// that it holds, each site by itself, and sizes are those of its tensors.
  std::vector<std::string> schemes;
  std::vector<int64_t> groupSizes; ///< 0: a row
  /// plain, hadamard; empty: both where activations are int8 with dynamic scales, and the scheme's
  /// default elsewhere.
  std::vector<std::string> bases;
  std::vector<int64_t> activationGroupSizes;     ///< of int8 ones with dynamic scales; 0: a token
  std::vector<const targets::Family *> families; ///< sizes are those of the first
  /// Methods that fit what was chosen when it is compiled; losses are those without.
  std::vector<std::string> fit;
  bool perSite = false;
  bool head = false; ///< search the output head's format, too, if it has a plan
};

/// The groups of the layers with the formats that their targets have kernels for. Fails with a
/// diagnostic: nothing is planned, the recipe has rules already, sites are in a rotated basis
/// already, a scheme that there is not or that no target or method takes (but under "all" and a
/// format of checkpoints, where it is left out).
mlir::FailureOr<SearchSpace> findSearchSpace(mlir::ModuleOp module,
                                             llvm::ArrayRef<mlir::func::FuncOp> layers,
                                             const SearchSpaceRequest &request);

} // namespace easyquant::search

#endif // EASYQUANT_LIB_SEARCH_SEARCHSPACE_H
