//===- CudaDriver.cpp - NVIDIA's driver, opened at run time ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaDriver.h"

#include <dlfcn.h>
#include <mutex>
#include <optional>

using namespace easyquant;
using namespace easyquant::runtime::cuda;

static constexpr const char *kDriverLibrary = "libcuda.so.1";

static Result<Driver> open() {
  void *library = ::dlopen(kDriverLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *reason = ::dlerror();
    return makeError(ErrorCode::NotFound,
                     "no NVIDIA driver: {} cannot be opened ({}); install the driver (CUDA 12.0 or "
                     "later)",
                     kDriverLibrary, reason ? reason : "unknown reason");
  }
  Driver driver;
  const char *missing = nullptr;
  auto bind = [&](auto &function, const char *symbol) {
    function = reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(library, symbol));
    if (!function && !missing)
      missing = symbol;
  };
#define EASYQUANT_CUDA_BIND(symbol, name, parameters) bind(driver.name, #symbol);
  EASYQUANT_CUDA_FUNCTIONS(EASYQUANT_CUDA_BIND)
#undef EASYQUANT_CUDA_BIND
  int version = 0;
  if (driver.driverGetVersion)
    driver.driverGetVersion(&version);
  if (missing || version < kLeastVersion)
    return makeError(ErrorCode::Unsupported,
                     "the NVIDIA driver is too old: it is for CUDA {}.{}{}, expected {}.{} or "
                     "later; update the driver",
                     version / 1000, version % 1000 / 10,
                     missing ? fmt::format(" and has no {}", missing) : "", kLeastVersion / 1000,
                     kLeastVersion % 1000 / 10);
  Status status = driver.init(0);
  if (status == kNoDevice)
    return makeError(
        ErrorCode::NotFound,
        "there is an NVIDIA driver, but it has no GPU ({}); check CUDA_VISIBLE_DEVICES",
        driver.describe(status));
  if (status != kSuccess)
    return makeError(ErrorCode::Unsupported, "the NVIDIA driver cannot be started: {}",
                     driver.describe(status));
  return driver;
}

Result<const Driver *> Driver::get() {
  static std::mutex mutex;
  static std::optional<Driver> instance;
  std::lock_guard lock(mutex);
  if (!instance) {
    Result<Driver> opened = open(); // a failure is not remembered: memory may have been short
    if (!opened)
      return Unexpected(opened.error());
    instance = *opened;
  }
  return &*instance;
}

std::string Driver::describe(Status status) const {
  const char *name = nullptr, *text = nullptr;
  if (errorName(status, &name) != kSuccess || !name)
    return fmt::format("error {}", status);
  if (errorString(status, &text) != kSuccess || !text)
    return name;
  return fmt::format("{} ({})", name, text);
}

const Profiler &Profiler::get() {
  static const Profiler instance = [] {
    Profiler profiler;
    // Of CUDA 12 and of CUDA 13.
    for (const char *name : {"libnvToolsExt.so.1", "libnvtx3interop.so.1"}) {
      void *library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
      if (!library)
        continue;
      profiler.rangePush =
          reinterpret_cast<int (*)(const char *)>(::dlsym(library, "nvtxRangePushA"));
      profiler.rangePop = reinterpret_cast<int (*)()>(::dlsym(library, "nvtxRangePop"));
      if (profiler.rangePush && profiler.rangePop)
        return profiler;
      profiler = Profiler();
    }
    return profiler;
  }();
  return instance;
}
