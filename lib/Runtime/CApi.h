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

/// An argument that must not be NULL, unless it is not needed.
struct Argument {
  template <typename T>
  Argument(T *pointer, std::string_view name, bool isNeeded = true)
      : isThere(pointer || !isNeeded), name(name) {}
  bool isThere;
  std::string_view name;
};
Result<void> requireArguments(std::initializer_list<Argument> arguments);

/// Runs `body`, which returns a Result<void>, and turns its error or exception into an eq_error.
/// `subject` is what an exception may be of, such as a path, or null.
template <typename Body>
eq_error *guarded(std::initializer_list<Argument> arguments, Body body,
                  const char *subject = nullptr) noexcept {
  try {
    Result<void> result = requireArguments(arguments);
    if (result)
      result = body();
    return result ? nullptr : newError(std::move(result.error()));
  } catch (...) {
    return describeException(subject);
  }
}

/// The answers of eq_*_breakdown and eq_*_breakdown_sites.
std::string toJson(const PhaseCosts &costs);
std::string toJson(const std::vector<SiteCost> &costs);

/// Hands out costs as JSON, which `text` keeps.
template <typename Costs>
Result<void> answer(const Result<Costs> &costs, std::string &text, const char **json) {
  if (!costs)
    return Unexpected(costs.error());
  text = toJson(*costs);
  *json = text.c_str();
  return {};
}

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_CAPI_H
