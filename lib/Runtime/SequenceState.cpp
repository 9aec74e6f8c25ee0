//===- SequenceState.cpp - What a sequence keeps from step to step --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "SequenceState.h"

#include "easyquant/Numerics/OnlineScales.h"
#include "easyquant/Support/Checksum.h"

#include <cstring>

using namespace easyquant;
using namespace easyquant::runtime;
using formats::Manifest;

static constexpr std::string_view kMagic = "EQSTATE1";
static constexpr size_t kDigits = 32;
static constexpr size_t kHeader = kMagic.size() + kDigits;

static int64_t fieldsOfSite(const Manifest::Online &online) {
  return numerics::onlineFields(online.window);
}

int64_t runtime::stateFields(const Manifest::Online &online) {
  return std::ssize(online.start) * fieldsOfSite(online);
}

std::vector<double> runtime::startingState(const Manifest::Online &online) {
  std::vector<double> state(static_cast<size_t>(stateFields(online)));
  const auto fields = static_cast<size_t>(fieldsOfSite(online));
  for (size_t site = 0; site < online.start.size(); ++site)
    numerics::startOnline(static_cast<float>(online.start[site]),
                          std::span(state).subspan(site * fields, fields));
  return state;
}

bool runtime::isState(const Manifest::Online &online, std::span<const double> state) {
  const auto fields = static_cast<size_t>(fieldsOfSite(online));
  for (size_t site = 0; site < online.start.size(); ++site)
    if (!numerics::isOnlineState(state.subspan(site * fields, fields)))
      return false;
  return true;
}

/// Identifies the checkpoint, and the numbering of sites and their first scales.
static std::string identityOf(const Manifest &manifest) {
  Checksum checksum;
  checksum.update(manifest.source.checksum.data(), manifest.source.checksum.size());
  const Manifest::Online &online = *manifest.online;
  checksum.update(&online.window, sizeof(online.window));
  checksum.update(online.start.data(), online.start.size() * sizeof(double));
  return checksum.hex();
}

int64_t runtime::savedStateBytes(const Manifest &manifest) {
  if (!manifest.online)
    return 0;
  return static_cast<int64_t>(kHeader) +
         stateFields(*manifest.online) * static_cast<int64_t>(sizeof(double));
}

void runtime::saveState(const Manifest &manifest, std::span<const double> state,
                        std::span<std::byte> to) {
  std::memcpy(to.data(), kMagic.data(), kMagic.size());
  std::memcpy(to.data() + kMagic.size(), identityOf(manifest).data(), kDigits);
  std::memcpy(to.data() + kHeader, state.data(), state.size_bytes());
}

Result<std::vector<double>> runtime::restoreState(const Manifest &manifest,
                                                  std::span<const std::byte> from) {
  const int64_t expected = savedStateBytes(manifest);
  auto text = [&](size_t begin, size_t count) {
    return std::string(reinterpret_cast<const char *>(from.data()) + begin, count);
  };
  if (!manifest.online)
    return makeError(ErrorCode::InvalidArgument,
                     "state: the model keeps none; compile it with --activations online-ema or "
                     "online-window");
  if (from.size() < kHeader || text(0, kMagic.size()) != kMagic)
    return makeError(ErrorCode::InvalidArgument,
                     "state: found {} bytes that are no saved state, expected {} of "
                     "eq_session_state_save",
                     from.size(), expected);
  if (text(kMagic.size(), kDigits) != identityOf(manifest) || std::ssize(from) != expected)
    return makeError(ErrorCode::InvalidArgument,
                     "state: found {} bytes saved from another model, expected {} of this one "
                     "({}); restore it to the artifact that it was saved from",
                     from.size(), expected, manifest.source.name);
  std::vector<double> state(static_cast<size_t>(stateFields(*manifest.online)));
  std::memcpy(state.data(), from.data() + kHeader, state.size() * sizeof(double));
  const auto fields = static_cast<size_t>(fieldsOfSite(*manifest.online));
  for (size_t site = 0; site < manifest.online->start.size(); ++site)
    if (const auto own = std::span(state).subspan(site * fields, fields);
        !numerics::isOnlineState(own))
      return makeError(ErrorCode::Corrupt,
                       "state: found {} and scale {} at site {}, expected a magnitude and its "
                       "scale; save it again",
                       own[0], own[1], site);
  return state;
}
