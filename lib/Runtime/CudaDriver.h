//===- CudaDriver.h - NVIDIA's driver, opened at run time -------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The part of the CUDA driver API that a session needs, as "CUDA Driver API" describes it. No
// toolkit is needed to build or to run this. Private to the runtime.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_CUDADRIVER_H
#define EASYQUANT_LIB_RUNTIME_CUDADRIVER_H

#include "easyquant/Support/Result.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace easyquant::runtime::cuda {

using Status = int; ///< CUresult; 0 is success
using DeviceId = int;
using Pointer = unsigned long long;
using Context = struct ContextHandle *;
using Module = struct ModuleHandle *;
using Function = struct FunctionHandle *;
using Stream = struct StreamHandle *;
using Event = struct EventHandle *;
using Graph = struct GraphHandle *;
using GraphExec = struct GraphExecHandle *;

/// The values of CUresult that get a message of their own.
enum : Status {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidImage = 200,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kNotReady = 600,
};
/// After these the GPU does nothing more for this process: those of which cuda.h says that the
/// process must be ended, and a context or memory that is gone.
constexpr bool losesDevice(Status status) {
  constexpr Status kEccUncorrectable = 214, kContained = 226, kIllegalAddress = 700,
                   kLaunchTimeout = 702, kContextIsDestroyed = 709, kHardwareStackError = 714,
                   kLaunchFailed = 719, kTensorMemoryLeak = 721, kMpsClientTerminated = 810,
                   kExternalDevice = 911;
  switch (status) {
  case kEccUncorrectable:
  case kContained:
  case kIllegalAddress:
  case kLaunchTimeout:
  case kContextIsDestroyed:
  case kTensorMemoryLeak:
  case kMpsClientTerminated:
  case kExternalDevice:
    return true;
  default: // illegal instructions, misaligned addresses and the like
    return status >= kHardwareStackError && status <= kLaunchFailed;
  }
}
/// Values of CUdevice_attribute.
enum : int { kCapabilityMajor = 75, kCapabilityMinor = 76, kMaxSharedMemoryOptin = 97 };
/// Values of CUfunction_attribute.
enum : int { kPtxVersion = 5, kMaxDynamicSharedBytes = 8 };
/// Values of CUjit_option: where the driver's assembler writes what is wrong.
enum : int { kJitErrorLog = 5, kJitErrorLogBytes = 6 };
/// A value of CUstreamCaptureMode: only this thread's calls are watched.
enum : int { kCaptureThreadLocal = 1 };
/// A value of CUstream_flags: no implicit waiting for the default stream.
enum : unsigned { kStreamNonBlocking = 1 };
/// The least driver: CUDA 12.0, for PTX 8.0; and that which records launches that overlap.
constexpr int kLeastVersion = 12000, kOverlapVersion = 12030;

/// CUlaunchAttribute with the one attribute that is used: whether the launch may begin before the
/// one before it has ended, which its kernel then waits for.
struct LaunchAttribute {
  /// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
  static constexpr int kProgrammaticSerialization = 6;
  int id = kProgrammaticSerialization;
  int padding = 0;
  int allowed = 1;
  std::array<int, 15> rest{};
};
static_assert(sizeof(LaunchAttribute) == 72);
/// CUlaunchConfig.
struct LaunchConfig {
  std::array<unsigned, 3> grid{}, block{};
  unsigned sharedBytes = 0;
  Stream stream = nullptr;
  const LaunchAttribute *attributes = nullptr;
  unsigned attributeCount = 0;
};

// name in the library, name here, parameters
#define EASYQUANT_CUDA_FUNCTIONS(X)                                                                \
  X(cuInit, init, (unsigned))                                                                      \
  X(cuDriverGetVersion, driverGetVersion, (int *))                                                 \
  X(cuDeviceGetCount, deviceGetCount, (int *))                                                     \
  X(cuDeviceGet, deviceGet, (DeviceId *, int))                                                     \
  X(cuDeviceGetName, deviceGetName, (char *, int, DeviceId))                                       \
  X(cuDeviceGetAttribute, deviceGetAttribute, (int *, int, DeviceId))                              \
  X(cuDevicePrimaryCtxRetain, primaryContextRetain, (Context *, DeviceId))                         \
  X(cuDevicePrimaryCtxRelease_v2, primaryContextRelease, (DeviceId))                               \
  X(cuCtxPushCurrent_v2, contextPush, (Context))                                                   \
  X(cuCtxPopCurrent_v2, contextPop, (Context *))                                                   \
  X(cuMemGetInfo_v2, memoryInfo, (size_t *, size_t *))                                             \
  X(cuMemAlloc_v2, allocate, (Pointer *, size_t))                                                  \
  X(cuMemFree_v2, free, (Pointer))                                                                 \
  X(cuMemAllocHost_v2, allocatePinned, (void **, size_t))                                          \
  X(cuMemFreeHost, freePinned, (void *))                                                           \
  X(cuMemcpyHtoDAsync_v2, copyToDevice, (Pointer, const void *, size_t, Stream))                   \
  X(cuMemcpyDtoHAsync_v2, copyFromDevice, (void *, Pointer, size_t, Stream))                       \
  X(cuMemcpyDtoDAsync_v2, copyOnDevice, (Pointer, Pointer, size_t, Stream))                        \
  X(cuMemsetD8Async, fill, (Pointer, unsigned char, size_t, Stream))                               \
  X(cuModuleLoadDataEx, moduleLoad, (Module *, const void *, unsigned, int *, void **))            \
  X(cuModuleUnload, moduleUnload, (Module))                                                        \
  X(cuModuleGetFunction, moduleFunction, (Function *, Module, const char *))                       \
  X(cuFuncGetAttribute, functionAttribute, (int *, int, Function))                                 \
  X(cuFuncSetAttribute, functionSetAttribute, (Function, int, int))                                \
  X(cuLaunchKernelEx, launchKernel, (const LaunchConfig *, Function, void **, void **))            \
  X(cuStreamCreate, streamCreate, (Stream *, unsigned))                                            \
  X(cuStreamDestroy_v2, streamDestroy, (Stream))                                                   \
  X(cuStreamSynchronize, streamSynchronize, (Stream))                                              \
  X(cuStreamQuery, streamQuery, (Stream))                                                          \
  X(cuStreamBeginCapture_v2, beginCapture, (Stream, int))                                          \
  X(cuStreamEndCapture, endCapture, (Stream, Graph *))                                             \
  X(cuGraphInstantiateWithFlags, graphInstantiate, (GraphExec *, Graph, unsigned long long))       \
  X(cuGraphLaunch, graphLaunch, (GraphExec, Stream))                                               \
  X(cuGraphExecDestroy, graphExecDestroy, (GraphExec))                                             \
  X(cuGraphDestroy, graphDestroy, (Graph))                                                         \
  X(cuEventCreate, eventCreate, (Event *, unsigned))                                               \
  X(cuEventDestroy_v2, eventDestroy, (Event))                                                      \
  X(cuEventRecord, eventRecord, (Event, Stream))                                                   \
  X(cuEventSynchronize, eventSynchronize, (Event))                                                 \
  X(cuEventElapsedTime, eventElapsedTime, (float *, Event, Event))                                 \
  X(cuGetErrorName, errorName, (Status, const char **))                                            \
  X(cuGetErrorString, errorString, (Status, const char **))

/// The functions, in a library that is never closed.
struct Driver {
#define EASYQUANT_CUDA_MEMBER(symbol, name, parameters) Status(*name) parameters = nullptr;
  EASYQUANT_CUDA_FUNCTIONS(EASYQUANT_CUDA_MEMBER)
#undef EASYQUANT_CUDA_MEMBER

  /// Opened once for the process. Errors: NotFound (no driver), Unsupported (too old a one).
  static Result<const Driver *> get();

  /// "CUDA_ERROR_OUT_OF_MEMORY (out of memory)"
  std::string describe(Status status) const;
};

/// Ranges that a profiler shows, where NVIDIA's library for them is there.
struct Profiler {
  static const Profiler &get();
  /// Names what follows until pop(); nothing happens without the library.
  void push(const char *name) const {
    if (rangePush)
      rangePush(name);
  }
  void pop() const {
    if (rangePop)
      rangePop();
  }

private:
  int (*rangePush)(const char *) = nullptr;
  int (*rangePop)() = nullptr;
};

} // namespace easyquant::runtime::cuda

#endif // EASYQUANT_LIB_RUNTIME_CUDADRIVER_H
