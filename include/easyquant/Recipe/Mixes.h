//===- Mixes.h - Schemes that mix formats by kind of site -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Q3, Q4, Q5 and Q6 give each kind of site a format of its own and leave activations float. A
// recipe keeps what they meant as rules.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RECIPE_MIXES_H
#define EASYQUANT_RECIPE_MIXES_H

#include "easyquant/Recipe/Recipe.h"

#include <span>
#include <string_view>

namespace easyquant::recipe {

/// What a site does in a model.
enum class SiteKind {
  Head,            ///< the output head, and embeddings
  QueryKeyValue,   ///< what attention reads
  AttentionOutput, ///< what reads attention
  GateUp,          ///< the MLP's linears that read a norm
  Down             ///< the others
};

/// Integer weights; with zero points where the method has them.
struct MixFormat {
  int bits;
  int64_t groupSize;
};

struct Mix {
  std::string_view name;
  MixFormat head, queryKeyValue, attentionOutput, gateUp, down;
  /// In the first and the last layers, whose errors all others carry on or none can mend.
  MixFormat gateUpAtEnds, downAtEnds;

  MixFormat format(SiteKind kind, bool isAtEnd) const;
};

std::span<const Mix> mixes();
/// Null if the scheme is none of them.
const Mix *findMix(std::string_view scheme);
/// How many layers at either end of a model are its first and last ones: a sixteenth, rounded up.
int64_t layersAtEnd(int64_t layers);
/// The request with the format of the site in place of the mix; what is no mix stays as it is. A
/// group size that was asked for is that of all sites.
SiteRequest resolveMix(SiteRequest request, SiteKind kind, bool isAtEnd);

} // namespace easyquant::recipe

#endif // EASYQUANT_RECIPE_MIXES_H
