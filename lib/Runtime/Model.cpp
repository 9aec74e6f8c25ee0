//===- Model.cpp - A loaded artifact --------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Model.h"

#include "GpuModel.h"

using namespace easyquant;
using namespace easyquant::runtime;

Result<void> Model::loadForCpu(std::string_view isa) {
  const auto &entries = manifest().program.entries;
  if (entries.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: has no code for CPUs; run it with --device cuda, {}", artifact.path(),
                     withoutGpu(manifest()));
  Result<std::string> chosen = selectIsa(isa, entries, CpuFeatures::host(), artifact.path());
  if (!chosen)
    return Unexpected(chosen.error());
  selected = std::move(*chosen);
  Result<Program> program = Program::load(artifact.programPath(), entries.at(selected));
  if (!program)
    return Unexpected(program.error());
  code = std::move(*program);
  return {};
}

Result<std::shared_ptr<const Model>> Model::load(const std::string &folder, std::string_view isa,
                                                 bool skipChecksums, const DeviceRequest &request) {
  bool isAuto = request.device.empty() || request.device == "auto";
  bool isGpu = request.device == "cuda" || request.device == "simt";
  if (!isAuto && !isGpu && request.device != "cpu")
    return makeError(ErrorCode::InvalidArgument,
                     "device: found \"{}\", expected auto, cpu, cuda or simt", request.device);
  auto model = std::make_shared<Model>();
  Result<Artifact> artifact = Artifact::open(folder, skipChecksums);
  if (!artifact)
    return Unexpected(artifact.error());
  model->artifact = std::move(*artifact);

  if (isGpu || (isAuto && model->manifest().gpu)) {
    DeviceRequest asked = request;
    if (isAuto)
      asked.device = "cuda";
    Result<std::shared_ptr<const GpuModel>> gpu = GpuModel::load(model->artifact, asked);
    if (gpu) {
      model->gpu = std::move(*gpu);
      model->selected = model->gpu->chip;
      return model;
    }
    // Without a GPU, auto is cpu; but a damaged artifact is an error on any device.
    bool hasCpu = !model->manifest().program.entries.empty();
    if (!isAuto || !hasCpu || gpu.error().code == ErrorCode::Corrupt)
      return Unexpected(gpu.error());
  }
  if (auto loaded = model->loadForCpu(isa); !loaded)
    return Unexpected(loaded.error());
  return model;
}

std::string Model::device() const { return gpu ? gpu->device->kind() : "cpu"; }
std::string Model::describeDevice() const { return gpu ? gpu->device->description() : "cpu"; }
int64_t Model::weightsBytes() const {
  return gpu ? gpu->weights.size() : static_cast<int64_t>(artifact.weights().size());
}
