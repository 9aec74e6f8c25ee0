//===- FiniteResults.h - Where numbers stop to be finite --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_FINITERESULTS_H
#define EASYQUANT_LIB_RUNTIME_FINITERESULTS_H

#include "easyquant/Formats/LaunchList.h"
#include "easyquant/Runtime/Device.h"

#include <functional>

namespace easyquant::runtime {

/// So many f32 of a device.
struct DeviceFloats {
  uint64_t address = 0;
  int64_t count = 0;
};

/// Calls run(launch), which launches it and says what floats it has written, for one launch after
/// another, until some are not finite: the site of that launch, or an empty one.
Result<std::string> siteOfNotFinite(
    Queue &queue, std::span<const formats::Launch> launches,
    const std::function<Result<std::optional<DeviceFloats>>(const formats::Launch &)> &run);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_FINITERESULTS_H
