//===- Model.h - A loaded artifact ------------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_MODEL_H
#define EASYQUANT_RUNTIME_MODEL_H

#include "easyquant/Comm/Placement.h"
#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Runtime/Program.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace easyquant::comm {
class Communicator;
} // namespace easyquant::comm

namespace easyquant::runtime {

class Executor;
class GpuModel;
struct PoolSize;
class Ranks;

/// Where a model is to run.
struct DeviceRequest {
  /// "cpu"; "cuda", an NVIDIA GPU; "simt", a simulated one; "" or "auto": cuda if the artifact has
  /// code for GPUs and the machine one that can run it, else cpu.
  std::string device = "auto";
  std::string simtChip;    ///< the GPU to simulate, of those in the artifact; empty: the first
  bool simtChecks = false; ///< let the simulator look for mistakes of kernels, too
  /// Joins the ranks that share the model; null: there is one.
  std::shared_ptr<comm::Communicator> communicator = nullptr;
  comm::Placement placement = {}; ///< of this process among those
};

/// A loaded artifact: immutable, shared by its batches and sessions.
class Model {
public:
  /// `isa` is "", "auto" or an instruction set, such as "avx2". Errors: those of Artifact::open,
  /// selectIsa and Program::load; InvalidArgument (no such device); Unsupported, NotFound,
  /// OutOfRange (a device that is not there, cannot run the artifact or has too little memory);
  /// InvalidArgument (as many ranks as the artifact is not for). With a communicator it is
  /// collective, and what fails on one rank fails on all.
  static Result<std::shared_ptr<const Model>> load(const std::string &folder, std::string_view isa,
                                                   bool skipChecksums,
                                                   const DeviceRequest &request = {});

  const Manifest &manifest() const { return artifact.manifest(); }
  const std::string &manifestText() const { return artifact.manifestText(); }
  /// "cpu", "cuda" or "simt".
  std::string device() const;
  /// The instruction set, or the chip whose program a GPU runs.
  const std::string &isa() const { return selected; }
  /// For people: "cpu", "NVIDIA H200 (sm_90)".
  std::string describeDevice() const;
  const Program &program() const { return code; }
  std::span<const std::byte> weights() const { return artifact.weights(); }
  /// Bytes of the weights on the device that uses them.
  int64_t weightsBytes() const;
  /// Which of how many ranks this is; batches are made on rank 0.
  int64_t rank() const;
  int64_t rankCount() const;
  /// On every other rank: computes its share of what rank 0 does, in so many threads (0:
  /// availableThreads()), until rank 0 has freed its model. Errors: those of any rank.
  Result<void> follow(int32_t threads) const;

private:
  friend class Batch;
  Result<void> loadForCpu(std::string_view isa);
  /// For the device that is asked for, or found.
  Result<void> loadFor(std::string_view isa, const DeviceRequest &request);
  Result<void> loadOnRank(const std::string &folder, std::string_view isa, bool skipChecksums,
                          const DeviceRequest &request);
  /// The executor of a batch, or of a rank that follows rank 0's.
  Result<std::unique_ptr<Executor>> createExecutor(const PoolSize &pool, int32_t threads,
                                                   bool measure) const;

  Artifact artifact;
  std::string selected;
  Program code;
  std::shared_ptr<const GpuModel> gpu; ///< null on CPUs
  std::shared_ptr<Ranks> ranks;        ///< null where there is one
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_MODEL_H
