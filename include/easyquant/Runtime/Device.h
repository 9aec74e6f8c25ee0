//===- Device.h - GPUs, and what stands in for them -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A Device has memory and a model's kernels; batches share it. A Queue is one batch's work on it,
// done in order. Two make them: openSimtDevice simulates a GPU (lib/Simt), openCudaDevice uses
// NVIDIA's driver, which is opened at run time. Devices may be used from several threads at once, a
// queue from one at a time.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_DEVICE_H
#define EASYQUANT_RUNTIME_DEVICE_H

#include "easyquant/Comm/Open.h"
#include "easyquant/Formats/LaunchList.h"
#include "easyquant/Support/Result.h"

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace easyquant::runtime {

using formats::kPhases;
using formats::Launch;
using formats::LaunchArgument;
using formats::LaunchKernel;
using formats::LaunchList;
using formats::nameOf;
using formats::Phase;

/// One launch, its grid and arguments worked out.
struct DeviceLaunch {
  size_t kernel = 0; ///< of those that the device was given
  std::array<uint32_t, 3> grid{};
  std::span<const uint64_t> arguments; ///< the bits of each
  std::string_view site;               ///< for messages and profilers
  Phase phase = Phase::Other;
};

/// What a phase has cost since measuring began.
struct PhaseCost {
  uint64_t launches = 0;     ///< kernels, or copies
  uint64_t bytes = 0;        ///< copied, or read and written by simulated kernels
  uint64_t instructions = 0; ///< of simulated warps
  double seconds = 0;        ///< on a CPU or a real device
};
using PhaseCosts = std::array<PhaseCost, kPhases>;

/// What one site has cost in one phase.
struct SiteCost {
  std::string site;
  Phase phase = Phase::Other;
  PhaseCost cost;
};

/// Launches that can be done again, all at once.
class Recording {
public:
  virtual ~Recording() = default;
};

class Queue {
public:
  virtual ~Queue() = default;

  /// Copies to the device; `from` stays as it is until the next download has returned.
  virtual Result<void> upload(uint64_t to, const void *from, int64_t bytes) = 0;
  /// Waits for all that came before and copies from the device. What failed before is said here.
  virtual Result<void> download(void *to, uint64_t from, int64_t bytes) = 0;
  virtual Result<void> fill(uint64_t to, uint8_t value, int64_t bytes) = 0;
  /// On the device, between ranges that do not overlap.
  virtual Result<void> copy(uint64_t to, uint64_t from, int64_t bytes) = 0;
  virtual Result<void> launch(const DeviceLaunch &launch) = 0;

  /// A collective among ranks, on memory of the device: `data` is an address there. Sums are in the
  /// order of the communicator's for such memory.
  virtual Result<void> exchange(comm::Communicator &ranks, comm::Collective collective) = 0;
  /// Waits for all that came before, under the limits of ranks who exchange something.
  virtual Result<void> wait(comm::Communicator &ranks) = 0;

  /// Between the two nothing but launches and exchanges, which do not happen yet.
  virtual bool canRecord() const { return false; }
  virtual Result<void> beginRecording();
  virtual Result<std::unique_ptr<Recording>> endRecording();
  virtual Result<void> replay(Recording &recording);

  /// From here on, costs are counted. A queue that measures need not be fast.
  virtual Result<void> startMeasuring() = 0;
  virtual Result<PhaseCosts> costs() = 0;
};

/// A model's kernels as an artifact has them.
struct GpuCode {
  std::string chip;         ///< that they are for: sm_90a
  std::string ptx, ptxName; ///< its text, and what messages call it
  std::string fatbin;       ///< machine code, of several chips; empty: none for this one
};

class Device {
public:
  virtual ~Device() = default;

  virtual std::string kind() const = 0; ///< "simt" or "cuda"
  /// For people: "simulated sm_80", "NVIDIA H200 (sm_90)".
  virtual std::string description() const = 0;
  /// Bytes that can still be allocated, or what is known of them.
  virtual Result<int64_t> freeBytes() const = 0;
  /// `what` is named in the error: OutOfRange, stating the bytes.
  virtual Result<uint64_t> allocate(int64_t bytes, std::string_view what) = 0;
  virtual void free(uint64_t address) = 0;
  /// Makes a model's kernels ready, once: from machine code if there is any that the device takes,
  /// else from PTX. Errors name kernels that are missing.
  virtual Result<void> load(const GpuCode &code, std::span<const LaunchKernel> kernels) = 0;
  virtual Result<std::unique_ptr<Queue>> createQueue() = 0;
};

/// Memory of a device, freed with the object.
class DeviceMemory {
public:
  DeviceMemory() = default;
  /// Lets go of what it had first.
  Result<void> allocate(std::shared_ptr<Device> from, int64_t size, std::string_view what);
  DeviceMemory(DeviceMemory &&other) noexcept { *this = std::move(other); }
  DeviceMemory &operator=(DeviceMemory &&other) noexcept;
  ~DeviceMemory() { release(); }

  uint64_t address() const { return begin; }
  int64_t size() const { return bytes; }

private:
  void release();

  std::shared_ptr<Device> device;
  uint64_t begin = 0;
  int64_t bytes = 0;
};

/// A simulated GPU. `checks`: also find races, uninitialised reads and the like, which takes time.
Result<std::shared_ptr<Device>> openSimtDevice(const std::string &chip, bool checks);

/// A compute capability: 9.0 is 90.
struct CudaCapability {
  int number = 0;
};
/// The GPU of a rank, the first one where there is one rank. Errors: NotFound (no driver, no GPU),
/// Unsupported (a driver that is too old), OutOfRange (fewer GPUs than ranks of this machine).
Result<std::shared_ptr<Device>> openCudaDevice(CudaCapability &capability,
                                               const comm::Placement &placement = {});
/// Joins ranks by NCCL, each with its GPU. Errors: those of openCudaDevice and openCommunicator.
Result<std::unique_ptr<comm::Communicator>> openCudaCommunicator(const comm::Placement &placement,
                                                                 const comm::Limits &limits);

/// A chip that an artifact has code for, by its name; `machineCode`: not only PTX.
struct ChipChoice {
  std::string name;
  bool machineCode = false;
};
/// 90 for "sm_90a", 0 for a name that is no chip's.
int numberOf(std::string_view chip);
/// The code that a GPU of this compute capability runs: the newest machine code of its generation
/// that is not newer than itself, else (`machineCode` is false then) the newest PTX that its driver
/// can assemble. The name is empty if there is none. Code for one architecture alone (sm_90a) is
/// for that one, and machine code for Jetson (sm_87) for Jetson: CUDA C++ Programming Guide,
/// "Binary Compatibility".
ChipChoice chooseChip(CudaCapability capability, std::span<const ChipChoice> chips);

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_DEVICE_H
