//===- Model.cpp - A loaded artifact --------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Model.h"

#include "GpuModel.h"
#include "Ranks.h"

#include "easyquant/Comm/Agreement.h"

#include "easyquant/Support/Threads.h"

#include <algorithm>
#include <array>

using namespace easyquant;
using namespace easyquant::runtime;

Result<void> Model::loadForCpu(std::string_view isa) {
  const auto &entries = manifest().program.entries;
  if (manifest().gpu && !hasCodeFor(formats::hostProcessor(), entries))
    return makeError(ErrorCode::Unsupported,
                     "{}: has no code for CPUs{}; run it with --device cuda, {}", artifact.path(),
                     entries.empty() ? "" : " like this machine's", withoutGpu(manifest()));
  Result<std::string> chosen = selectIsa(isa, entries, CpuFeatures::host(), artifact.path());
  if (!chosen)
    return Unexpected(chosen.error());
  selected = std::move(*chosen);
  const auto &draftEntries = manifest().program.draftEntries;
  const auto draft = draftEntries.find(selected);
  Result<Program> program = Program::load(artifact.programPath(selected), entries.at(selected),
                                          draft == draftEntries.end() ? "" : draft->second);
  if (!program)
    return Unexpected(program.error());
  code = std::move(*program);
  artifact.moveWeightsToLargePages();
  return {};
}

Result<void> Model::loadFor(std::string_view isa, const DeviceRequest &request) {
  const bool isAuto = request.device.empty() || request.device == "auto";
  if (request.device != "cpu" && (!isAuto || manifest().gpu)) {
    DeviceRequest asked = request;
    if (isAuto)
      asked.device = "cuda";
    Result<std::shared_ptr<const GpuModel>> loaded = GpuModel::load(artifact, asked);
    if (loaded) {
      gpu = std::move(*loaded);
      selected = gpu->chip;
      return {};
    }
    // Without a GPU, auto is cpu; but a damaged artifact is an error on any device.
    bool hasCpu = hasCodeFor(formats::hostProcessor(), manifest().program.entries);
    if (!isAuto || !hasCpu || loaded.error().code == ErrorCode::Corrupt)
      return Unexpected(loaded.error());
  }
  return loadForCpu(isa);
}

Result<void> Model::loadOnRank(const std::string &folder, std::string_view isa, bool skipChecksums,
                               const DeviceRequest &request) {
  Result<ManifestDocument> document = readManifest(folder, skipChecksums);
  if (!document)
    return Unexpected(document.error());
  if (auto agreed = ranks->agreeOn(folder, document->contents, document->text); !agreed)
    return agreed;
  Result<Artifact> opened = Artifact::open(folder, skipChecksums, ranks->rank());
  if (!opened)
    return Unexpected(opened.error());
  artifact = std::move(*opened);
  if (auto loaded = loadFor(isa, request); !loaded)
    return loaded;
  // Or hear of a rank that has failed.
  const std::string where = gpu ? device() + " " + gpu->chip : "cpu";
  const comm::Agreed subjects[] = {comm::Agreed::of("the device", where)};
  return comm::agree(ranks->comm(), subjects);
}

Result<std::shared_ptr<const Model>> Model::load(const std::string &folder, std::string_view isa,
                                                 bool skipChecksums, const DeviceRequest &request) {
  using namespace std::string_view_literals;
  constexpr std::array known = {""sv, "auto"sv, "cpu"sv, "cuda"sv, "simt"sv};
  if (std::find(known.begin(), known.end(), request.device) == known.end())
    return makeError(ErrorCode::InvalidArgument,
                     "device: found \"{}\", expected auto, cpu, cuda or simt", request.device);
  auto model = std::make_shared<Model>();
  if (request.communicator && request.communicator->size() > 1) {
    model->ranks = std::make_shared<Ranks>(request.communicator);
    auto loaded = model->loadOnRank(folder, isa, skipChecksums, request);
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
  if (auto loaded = model->loadFor(isa, request); !loaded)
    return Unexpected(loaded.error());
  return model;
}

Result<std::unique_ptr<Executor>> Model::createExecutor(const PoolSize &pool, int32_t threads,
                                                        bool measure) const {
  comm::Communicator *others = ranks ? &ranks->comm() : nullptr;
  if (gpu)
    return createGpuExecutor(*gpu, pool, manifest(), measure, others);
  return createCpuExecutor(artifact, code, pool, threads, measure, others);
}

std::string Model::device() const { return gpu ? gpu->device->kind() : "cpu"; }
std::string Model::describeDevice() const { return gpu ? gpu->device->description() : "cpu"; }
int64_t Model::rank() const { return ranks ? ranks->rank() : 0; }
int64_t Model::rankCount() const { return ranks ? ranks->size() : 1; }
Result<void> Model::follow(int32_t threads) const {
  Result<int32_t> chosen = chooseThreads(threads);
  if (!chosen)
    return Unexpected(chosen.error());
  if (!ranks)
    return {};
  return ranks->follow(manifest().model.vocabSize, [&](const PoolSize &pool) {
    return createExecutor(pool, *chosen, /*measure=*/false);
  });
}
int64_t Model::weightsBytes() const {
  return gpu ? gpu->weights.size() : static_cast<int64_t>(artifact.weights().size());
}
