//===- CudaDriver.cpp - NVIDIA's driver, opened at run time ---------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaDriver.h"

#include "easyquant/Support/SharedLibrary.h"

using namespace easyquant;
using namespace easyquant::runtime::cuda;

static constexpr const char *kDriverLibrary = "libcuda.so.1";

static Result<Driver> open() {
  Result<SharedLibrary> opened = SharedLibrary::open(kDriverLibrary);
  if (!opened)
    return makeError(ErrorCode::NotFound,
                     "no NVIDIA driver: {} cannot be opened ({}); install the driver (CUDA 12.0 or "
                     "later)",
                     kDriverLibrary, opened.error().message);
  Driver driver;
#define EASYQUANT_CUDA_BIND(symbol, name, parameters) opened->bind(driver.name, #symbol);
  EASYQUANT_CUDA_FUNCTIONS(EASYQUANT_CUDA_BIND)
#undef EASYQUANT_CUDA_BIND
  int version = 0;
  if (driver.driverGetVersion)
    driver.driverGetVersion(&version);
  if (!opened->missing().empty() || version < kLeastVersion)
    return makeError(ErrorCode::Unsupported,
                     "the NVIDIA driver is too old: it is for CUDA {}.{}{}, expected {}.{} or "
                     "later; update the driver",
                     version / 1000, version % 1000 / 10,
                     opened->missing().empty() ? "" : " and has no " + opened->missing(),
                     kLeastVersion / 1000, kLeastVersion % 1000 / 10);
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

Result<const Driver *> Driver::get() { return openOnce(open); }

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
    // The first is in CUDA 12, the second in CUDA 13.
    for (const char *name : {"libnvToolsExt.so.1", "libnvtx3interop.so.1"}) {
      Result<SharedLibrary> library = SharedLibrary::open(name);
      if (!library)
        continue;
      library->bind(profiler.rangePush, "nvtxRangePushA");
      library->bind(profiler.rangePop, "nvtxRangePop");
      if (profiler.rangePush && profiler.rangePop)
        return profiler;
      profiler = Profiler();
    }
    return profiler;
  }();
  return instance;
}
