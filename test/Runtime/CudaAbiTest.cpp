//===- CudaAbiTest.cpp - Our declarations against NVIDIA's header ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// The runtime is built without the CUDA toolkit and declares what it uses of the driver itself.
// Where the toolkit's header is, it is compared here; most of this test is done by the compiler.
//
//===----------------------------------------------------------------------===//

#include "CudaDriver.h"
#include "SameAbi.h"

#include <cuda.h>
#include <gtest/gtest.h>

#include <dlfcn.h>
#include <unistd.h>

using namespace easyquant;
using namespace easyquant::runtime::cuda;

// cuda.h calls the functions by names without version and makes macros of these, so that both forms
// of a name end as the declared one.
#define EASYQUANT_CHECK(symbol, name, parameters)                                                  \
  static_assert(kSameAbi<decltype(symbol), std::remove_pointer_t<decltype(Driver::name)>>,         \
                #symbol " is not declared as cuda.h has it");
EASYQUANT_CUDA_FUNCTIONS(EASYQUANT_CHECK)
#undef EASYQUANT_CHECK

/// Enumerators of different types are compared as numbers.
static constexpr bool same(int ours, int theirs) { return ours == theirs; }
static_assert(same(kSuccess, CUDA_SUCCESS));
static_assert(same(kOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY));
static_assert(same(kNoDevice, CUDA_ERROR_NO_DEVICE));
static_assert(same(kInvalidImage, CUDA_ERROR_INVALID_IMAGE));
static_assert(same(kNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU));
static_assert(same(kInvalidPtx, CUDA_ERROR_INVALID_PTX));
static_assert(same(kUnsupportedPtxVersion, CUDA_ERROR_UNSUPPORTED_PTX_VERSION));
static_assert(same(kCapabilityMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR));
static_assert(same(kCapabilityMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR));
static_assert(same(kMaxSharedMemoryOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN));
static_assert(same(kMaxDynamicSharedBytes, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES));
static_assert(same(kPtxVersion, CU_FUNC_ATTRIBUTE_PTX_VERSION));
static_assert(same(kJitErrorLog, CU_JIT_ERROR_LOG_BUFFER));
static_assert(same(kJitErrorLogBytes, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES));
static_assert(same(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
static_assert(same(kStreamNonBlocking, CU_STREAM_NON_BLOCKING));
static_assert(sizeof(Pointer) == sizeof(CUdeviceptr) && sizeof(DeviceId) == sizeof(CUdevice));
static_assert(same(LaunchAttribute::kProgrammaticSerialization,
                   CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION));
static_assert(sizeof(LaunchAttribute) == sizeof(CUlaunchAttribute) &&
              offsetof(LaunchAttribute, id) == offsetof(CUlaunchAttribute, id) &&
              offsetof(LaunchAttribute, allowed) == offsetof(CUlaunchAttribute, value));
static_assert(sizeof(LaunchConfig) == sizeof(CUlaunchConfig) &&
              offsetof(LaunchConfig, grid) == offsetof(CUlaunchConfig, gridDimX) &&
              offsetof(LaunchConfig, block) == offsetof(CUlaunchConfig, blockDimX) &&
              offsetof(LaunchConfig, sharedBytes) == offsetof(CUlaunchConfig, sharedMemBytes) &&
              offsetof(LaunchConfig, stream) == offsetof(CUlaunchConfig, hStream) &&
              offsetof(LaunchConfig, attributes) == offsetof(CUlaunchConfig, attrs) &&
              offsetof(LaunchConfig, attributeCount) == offsetof(CUlaunchConfig, numAttrs));

TEST(CudaDriver, KnowsWhatLosesTheDevice) {
  for (Status status :
       {CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_ILLEGAL_ADDRESS, CUDA_ERROR_LAUNCH_TIMEOUT,
        CUDA_ERROR_CONTEXT_IS_DESTROYED, CUDA_ERROR_HARDWARE_STACK_ERROR,
        CUDA_ERROR_ILLEGAL_INSTRUCTION, CUDA_ERROR_MISALIGNED_ADDRESS,
        CUDA_ERROR_INVALID_ADDRESS_SPACE, CUDA_ERROR_INVALID_PC, CUDA_ERROR_LAUNCH_FAILED,
        CUDA_ERROR_EXTERNAL_DEVICE})
    EXPECT_TRUE(losesDevice(status)) << status;
#if CUDA_VERSION >= 13000
  EXPECT_TRUE(losesDevice(CUDA_ERROR_CONTAINED) && losesDevice(CUDA_ERROR_TENSOR_MEMORY_LEAK));
#endif
  // After these the next call may succeed.
  for (Status status :
       {CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_INVALID_PTX,
        CUDA_ERROR_NOT_READY, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_NOT_PERMITTED,
        CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CUDA_ERROR_STREAM_CAPTURE_INVALIDATED})
    EXPECT_FALSE(losesDevice(status)) << status;
}

/// The toolkit has a library to link with that exports the names of a real driver.
TEST(CudaDriver, NamesAreThoseThatADriverExports) {
  if (::access(EASYQUANT_CUDA_STUB, F_OK) != 0)
    GTEST_SKIP() << "unsupported: no libcuda.so of a CUDA toolkit";
  void *library = ::dlopen(EASYQUANT_CUDA_STUB, RTLD_LAZY | RTLD_LOCAL);
  ASSERT_NE(library, nullptr) << ::dlerror();
#define EASYQUANT_CHECK(symbol, name, parameters)                                                  \
  EXPECT_NE(::dlsym(library, #symbol), nullptr) << #symbol;
  EASYQUANT_CUDA_FUNCTIONS(EASYQUANT_CHECK)
#undef EASYQUANT_CHECK
}
