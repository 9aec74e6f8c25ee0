//===- GpuModel.h - An artifact's weights and kernels on a device -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_GPUMODEL_H
#define EASYQUANT_LIB_RUNTIME_GPUMODEL_H

#include "easyquant/Runtime/Artifact.h"
#include "easyquant/Runtime/Device.h"
#include "easyquant/Runtime/Model.h"

namespace easyquant::runtime {

/// What can be done with an artifact that has code for GPUs where there is none that runs it: the
/// end of a message.
std::string withoutGpu(const Manifest &manifest);

/// Immutable; shared by the sessions of a model.
class GpuModel {
public:
  /// Opens the device that `request` names, cuda or simt, and brings weights and kernels there.
  /// Errors: those of opening a device, Unsupported (no code for it), OutOfRange (too little
  /// memory, said before anything is loaded), Corrupt (the program or its kernels).
  static Result<std::shared_ptr<const GpuModel>> load(const Artifact &artifact,
                                                      const DeviceRequest &request);

  std::shared_ptr<Device> device;
  std::string chip; ///< whose program runs
  LaunchList program;
  DeviceMemory weights, constants;
  PhaseCost loading; ///< of the weights
};

} // namespace easyquant::runtime

#endif // EASYQUANT_LIB_RUNTIME_GPUMODEL_H
