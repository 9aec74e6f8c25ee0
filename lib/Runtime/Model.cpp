//===- Model.cpp - A loaded artifact --------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Model.h"

#include "GpuModel.h"
#include "Ranks.h"

#include "easyquant/Support/Threads.h"

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

Result<void> Model::loadOnRank(const std::string &folder, std::string_view isa,
                               bool skipChecksums) {
  Result<ManifestDocument> document = readManifest(folder, skipChecksums);
  if (!document)
    return Unexpected(document.error());
  if (auto agreed = ranks->agreeOn(folder, document->contents, document->text); !agreed)
    return agreed;
  Result<Artifact> opened = Artifact::open(folder, skipChecksums, ranks->rank());
  if (!opened)
    return Unexpected(opened.error());
  artifact = std::move(*opened);
  if (auto loaded = loadForCpu(isa); !loaded)
    return loaded;
  return ranks->comm().barrier(); // or hear of a rank that has failed
}

Result<std::shared_ptr<const Model>> Model::load(const std::string &folder, std::string_view isa,
                                                 bool skipChecksums, const DeviceRequest &request) {
  bool isAuto = request.device.empty() || request.device == "auto";
  bool isGpu = request.device == "cuda" || request.device == "simt";
  if (!isAuto && !isGpu && request.device != "cpu")
    return makeError(ErrorCode::InvalidArgument,
                     "device: found \"{}\", expected auto, cpu, cuda or simt", request.device);
  auto model = std::make_shared<Model>();
  if (request.communicator && request.communicator->size() > 1) {
    if (isGpu)
      return makeError(ErrorCode::Unsupported,
                       "device: found \"{}\" on {} ranks, which share models on CPUs so far",
                       request.device, request.communicator->size());
    model->ranks = std::make_shared<Ranks>(request.communicator);
    auto loaded = model->loadOnRank(folder, isa, skipChecksums);
    if (loaded)
      return model;
    request.communicator->abort(loaded.error());
    return Unexpected(loaded.error());
  }
  Result<Artifact> artifact = Artifact::open(folder, skipChecksums);
  if (!artifact)
    return Unexpected(artifact.error());
  model->artifact = std::move(*artifact);
  if (const int64_t count = model->manifest().ranks(); count > 1)
    return makeError(
        ErrorCode::InvalidArgument,
        "{}: was compiled for {} ranks, found one; start {} with --comm mpi (mpirun -n "
        "{}), or compile it without --tensor-parallel",
        folder, count, count, count);

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
int64_t Model::rank() const { return ranks ? ranks->rank() : 0; }
int64_t Model::rankCount() const { return ranks ? ranks->size() : 1; }
Result<void> Model::follow(int32_t threads) const {
  Result<int32_t> chosen = chooseThreads(threads);
  if (!chosen)
    return Unexpected(chosen.error());
  return ranks ? ranks->follow(artifact, code, *chosen) : Result<void>();
}
int64_t Model::weightsBytes() const {
  return gpu ? gpu->weights.size() : static_cast<int64_t>(artifact.weights().size());
}
