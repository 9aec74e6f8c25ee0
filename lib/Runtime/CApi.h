//===- CApi.h - What the functions of the C interface share -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_CAPI_H
#define EASYQUANT_LIB_RUNTIME_CAPI_H

#include "easyquant/Runtime/Device.h"
#include "easyquant/Runtime/Model.h"
#include "easyquant/Runtime/easyquant.h"
#include "easyquant/Support/Result.h"

#include <memory>
#include <string>
#include <vector>

struct eq_error {
  easyquant::Error error;
};
struct eq_model {
  std::shared_ptr<const easyquant::runtime::Model> model;
  std::string device, deviceName;
};

namespace easyquant::runtime {

/// Where there is no memory for it, it is what says so.
eq_error *newError(Error error) noexcept;

/// The exception that is being handled; `subject` is what it may be of, such as a path, or null.
eq_error *describeException(const char *subject) noexcept;

/// Runs `body`, which returns a Result<void>, and turns its error or exception into an eq_error.
template <typename Body> eq_error *guarded(const char *subject, Body body) noexcept {
  try {
    Result<void> result = body();
    return result ? nullptr : newError(std::move(result.error()));
  } catch (...) {
    return describeException(subject);
  }
}
template <typename Body> eq_error *guarded(Body body) noexcept {
  return guarded(nullptr, std::move(body));
}

Result<void> requireArgument(const void *argument, std::string_view name);

/// The answers of eq_*_breakdown and eq_*_breakdown_sites.
std::string toJson(const PhaseCosts &costs);
std::string toJson(const std::vector<SiteCost> &costs);

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_CAPI_H
