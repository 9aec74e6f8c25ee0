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

/// Of CUresult, those that get a message of their own.
enum : Status {
  kSuccess = 0,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kUnsupportedPtxVersion = 222,
  kNotFound = 500,
  kNotReady = 600,
  kIllegalAddress = 700,
};
/// Of CUdevice_attribute.
enum : int { kCapabilityMajor = 75, kCapabilityMinor = 76, kMaxSharedMemoryOptin = 97 };
/// Of CUfunction_attribute.
enum : int { kMaxDynamicSharedBytes = 8 };
/// Of CUstreamCaptureMode: only this thread's calls are watched.
enum : int { kCaptureThreadLocal = 1 };
/// Of CUstream_flags: no implicit waiting for the default stream.
enum : unsigned { kStreamNonBlocking = 1 };
/// The least driver: CUDA 12.0, for PTX 8.0.
constexpr int kLeastVersion = 12000;

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
  X(cuMemcpyHtoDAsync_v2, copyToDevice, (Pointer, const void *, size_t, Stream))                   \
  X(cuMemcpyDtoHAsync_v2, copyFromDevice, (void *, Pointer, size_t, Stream))                       \
  X(cuMemsetD8Async, fill, (Pointer, unsigned char, size_t, Stream))                               \
  X(cuModuleLoadData, moduleLoad, (Module *, const void *))                                        \
  X(cuModuleUnload, moduleUnload, (Module))                                                        \
  X(cuModuleGetFunction, moduleFunction, (Function *, Module, const char *))                       \
  X(cuFuncSetAttribute, functionSetAttribute, (Function, int, int))                                \
  X(cuLaunchKernel, launchKernel,                                                                  \
    (Function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, Stream,       \
     void **, void **))                                                                            \
  X(cuStreamCreate, streamCreate, (Stream *, unsigned))                                            \
  X(cuStreamDestroy_v2, streamDestroy, (Stream))                                                   \
  X(cuStreamSynchronize, streamSynchronize, (Stream))                                              \
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
