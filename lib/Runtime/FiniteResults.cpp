//===- FiniteResults.cpp - Where numbers stop to be finite ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "FiniteResults.h"

#include <algorithm>
#include <cmath>

namespace easyquant::runtime {

Result<std::string> siteOfNotFinite(
    Queue &queue, std::span<const formats::Launch> launches,
    const std::function<Result<std::optional<DeviceFloats>>(const formats::Launch &)> &run) {
  std::vector<float> values;
  for (const formats::Launch &launch : launches) {
    Result<std::optional<DeviceFloats>> written = run(launch);
    if (!written)
      return Unexpected(written.error());
    if (!*written)
      continue;
    values.resize(static_cast<size_t>((*written)->count));
    if (auto done = queue.download(values.data(), (*written)->address,
                                   std::ssize(values) * int64_t(sizeof(float)));
        !done)
      return Unexpected(done.error());
    if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
      return launch.site;
  }
  return std::string();
}

} // namespace easyquant::runtime
