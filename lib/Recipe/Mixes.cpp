//===- Mixes.cpp - Schemes that mix formats by kind of site ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Recipe/Mixes.h"

#include <algorithm>

namespace easyquant::recipe {

// The best by kind of site at each size where errors are weighed by the diagonal Fisher information
// of SmolLM2, kept to one group size where that costs little. The head, which every token's loss
// reads, and the linears of attention, which are small, gain the most by a bit.
static constexpr Mix kMixes[] = {
    {.name = "Q3",
     .head = {4, 64},
     .queryKeyValue = {4, 64},
     .attentionOutput = {4, 64},
     .gateUp = {3, 64},
     .down = {4, 64},
     .gateUpAtEnds = {4, 64},
     .downAtEnds = {5, 64}},
    {.name = "Q4",
     .head = {5, 64},
     .queryKeyValue = {5, 64},
     .attentionOutput = {5, 64},
     .gateUp = {4, 64},
     .down = {5, 64},
     .gateUpAtEnds = {5, 64},
     .downAtEnds = {6, 64}},
    {.name = "Q5",
     .head = {6, 64},
     .queryKeyValue = {6, 64},
     .attentionOutput = {5, 64},
     .gateUp = {5, 64},
     .down = {5, 64},
     .gateUpAtEnds = {6, 64},
     .downAtEnds = {6, 64}},
    {.name = "Q6",
     .head = {6, 64},
     .queryKeyValue = {8, 128},
     .attentionOutput = {6, 64},
     .gateUp = {6, 128},
     .down = {6, 64},
     .gateUpAtEnds = {6, 128},
     .downAtEnds = {6, 64}},
};

MixFormat Mix::format(SiteKind kind, bool isAtEnd) const {
  switch (kind) {
  case SiteKind::Head:
    return head;
  case SiteKind::QueryKeyValue:
    return queryKeyValue;
  case SiteKind::AttentionOutput:
    return attentionOutput;
  case SiteKind::GateUp:
    return isAtEnd ? gateUpAtEnds : gateUp;
  case SiteKind::Down:
    break;
  }
  return isAtEnd ? downAtEnds : down;
}

std::span<const Mix> mixes() { return kMixes; }

const Mix *findMix(std::string_view scheme) {
  const Mix *found = std::ranges::find(kMixes, scheme, &Mix::name);
  return found == std::end(kMixes) ? nullptr : found;
}

int64_t layersAtEnd(int64_t layers) { return (layers + 15) / 16; }

SiteRequest resolveMix(SiteRequest request, SiteKind kind, bool isAtEnd) {
  const Mix *mix = findMix(request.scheme());
  if (!mix)
    return request;
  const MixFormat format = mix->format(kind, isAtEnd);
  const bool hasZeroPoints = request.method.base == "zeropoint";
  const bool isFloat = request.activations() == "float";
  request.options.set(option::scheme, fmt::format("W{}A{}{}", format.bits, isFloat ? 16 : 8,
                                                  hasZeroPoints ? "_ASYM" : ""));
  if (!request.options.has(option::groupSize))
    request.options.set(option::groupSize, format.groupSize);
  return request;
}

} // namespace easyquant::recipe
