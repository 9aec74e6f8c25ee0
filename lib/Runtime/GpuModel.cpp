//===- GpuModel.cpp - An artifact's weights and kernels on a device -------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "GpuModel.h"

#include <fmt/ranges.h>

#include <chrono>

using namespace easyquant;
using namespace easyquant::runtime;

static Result<std::string> readFile(const std::string &path) {
  Result<MappedFile> file = MappedFile::open(path);
  if (!file)
    return Unexpected(file.error());
  return std::string(file->text());
}

static std::string namesOf(const Manifest::Gpu &gpu) {
  std::vector<std::string> names;
  names.reserve(gpu.chips.size());
  for (const auto &[name, chip] : gpu.chips)
    names.push_back(name);
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string easyquant::runtime::withoutGpu(const Manifest &manifest) {
  const formats::Processor &host = formats::hostProcessor();
  if (hasCodeFor(host, manifest.program.entries))
    return "or run it with --device cpu";
  return fmt::format("or compile the model with --target {},{} to run it on CPUs like this "
                     "machine's (--device simt simulates a GPU: slow, for small models)",
                     manifest.target, host.name);
}

namespace {
/// A device, and what of the artifact it is to run.
struct Opened {
  std::shared_ptr<Device> device;
  ChipChoice chip;
};
} // namespace

static Result<Opened> openSimt(const Artifact &artifact, const DeviceRequest &request) {
  const Manifest::Gpu &gpu = *artifact.manifest().gpu;
  std::string chip = request.simtChip.empty() ? gpu.chips.begin()->first : request.simtChip;
  if (!gpu.chips.count(chip))
    return makeError(ErrorCode::Unsupported,
                     "{}: not compiled for {} but for {}; choose one of those with --simt-chip, or "
                     "recompile",
                     artifact.path(), chip, namesOf(gpu));
  auto device = openSimtDevice(chip, request.simtChecks);
  if (!device)
    return Unexpected(device.error());
  return Opened{std::move(*device), {chip, false}};
}

static Result<Opened> openCuda(const Artifact &artifact, const DeviceRequest &request) {
  const Manifest::Gpu &gpu = *artifact.manifest().gpu;
  CudaCapability capability;
  if (request.communicator && request.communicator->size() > 1 &&
      request.communicator->backend() != "NCCL")
    return makeError(ErrorCode::InvalidArgument,
                     "{}: GPUs exchange what ranks share by NCCL, found {}; start the ranks with "
                     "--device cuda --comm nccl, {}",
                     artifact.path(), request.communicator->backend(),
                     withoutGpu(artifact.manifest()));
  auto device = openCudaDevice(capability, request.placement);
  if (!device)
    return makeError(device.error().code, "{}: {}, {}", artifact.path(), device.error().message,
                     withoutGpu(artifact.manifest()));
  std::vector<ChipChoice> choices;
  choices.reserve(gpu.chips.size());
  for (const auto &[name, chip] : gpu.chips)
    choices.push_back({name, chip.machineCode});
  ChipChoice chosen = chooseChip(capability, choices);
  if (chosen.name.empty())
    return makeError(ErrorCode::Unsupported,
                     "{}: compiled for {}, none of which runs on {}; compile it with this chip, or "
                     "one before it, in --target, {}",
                     artifact.path(), namesOf(gpu), (*device)->description(),
                     withoutGpu(artifact.manifest()));
  return Opened{std::move(*device), chosen};
}

/// What a launch list takes of the model that the manifest describes.
static Result<void> checkProgram(const Manifest &manifest, const LaunchList &program,
                                 const std::string &path) {
  auto corrupt = [&](std::string_view found, std::string_view expected) -> Result<void> {
    return makeError(ErrorCode::Corrupt, "{}: found {}, expected {}; compile the artifact again",
                     path, found, expected);
  };
  using Kind = LaunchArgument::Kind;
  for (const std::vector<Launch> *launches : {&program.launches, &program.restore})
    for (const Launch &launch : *launches)
      for (const LaunchArgument &argument : launch.arguments)
        if (!manifest.online && (argument.kind == Kind::States || argument.kind == Kind::RowStates))
          return corrupt(fmt::format("what sequences keep at site '{}'", launch.site),
                         "a model that keeps nothing, as its manifest says");
        else if (!manifest.program.recurrentValues && argument.kind == Kind::Recurrent)
          return corrupt(fmt::format("a recurrent state at site '{}'", launch.site),
                         "a model without one, as its manifest says");
  if (program.drafting.has_value() != manifest.gpu->drafts.value_or(false))
    return corrupt(program.drafting ? "a head that drafts" : "no head that drafts",
                   "what its manifest says");
  if (program.drafting && manifest.ranks() > 1)
    return corrupt("a head that drafts", "none in a model that ranks share");
  if (program.drafting &&
      program.drafting->fixedPosition != manifest.program.fixedDraftPosition.value_or(false))
    return corrupt("a head of another kind", "the one of its manifest");
  if (!program.collectives.empty() && manifest.ranks() == 1)
    return corrupt("collectives", "a model of one rank, as its manifest says");
  for (const formats::Collective &collective : program.collectives)
    if (collective.call == formats::CollectiveCall::AllGather &&
        (collective.columns != manifest.model.vocabSize ||
         collective.columns % manifest.ranks() != 0))
      return corrupt(
          fmt::format("{} columns gathered at site '{}'", collective.columns, collective.site),
          fmt::format("the vocabulary, {}, of {} ranks", manifest.model.vocabSize,
                      manifest.ranks()));
  return {};
}

/// Says before anything is loaded if it will not fit.
static Result<void> checkMemory(const Artifact &artifact, const Device &device,
                                const LaunchList &program) {
  const Manifest::Gpu &gpu = *artifact.manifest().gpu;
  Result<int64_t> free = device.freeBytes();
  if (!free)
    return Unexpected(free.error());
  int64_t least =
      gpu.weightsBytes + program.arenaBytes + program.cache.windowBytes + program.cache.pageBytes;
  if (least <= *free)
    return {};
  return makeError(
      ErrorCode::OutOfRange,
      "{}: needs at least {} bytes on the device ({} of weights, {} of activations, the "
      "rest for {} tokens), but {} has {} free; use a larger GPU or a smaller scheme, {}",
      artifact.path(), least, gpu.weightsBytes, program.arenaBytes, program.cache.pageTokens,
      device.description(), *free, withoutGpu(artifact.manifest()));
}

Result<std::shared_ptr<const GpuModel>> GpuModel::load(const Artifact &artifact,
                                                       const DeviceRequest &request) {
  const std::string &folder = artifact.path();
  if (!artifact.manifest().gpu)
    return makeError(ErrorCode::Unsupported,
                     "{}: has no code for GPUs; compile it with --target sm_90a,cpu or the like{}",
                     folder,
                     hasCodeFor(formats::hostProcessor(), artifact.manifest().program.entries)
                         ? ", or run it with --device cpu"
                         : "");
  const Manifest::Gpu &gpu = *artifact.manifest().gpu;
  if (static_cast<int64_t>(artifact.gpuWeights().size()) < gpu.weightsBytes)
    return makeError(ErrorCode::Corrupt,
                     "{}: gpu.weights_bytes: found {}, but the weights for GPUs have {} bytes; "
                     "compile the artifact again",
                     folder, gpu.weightsBytes, artifact.gpuWeights().size());
  Result<Opened> opened =
      request.device == "simt" ? openSimt(artifact, request) : openCuda(artifact, request);
  if (!opened)
    return Unexpected(opened.error());

  auto model = std::make_shared<GpuModel>();
  model->device = opened->device;
  model->chip = opened->chip.name;
  std::string programPath = folder + "/" + gpu.programFile;
  Result<std::string> text = readFile(programPath);
  if (!text)
    return Unexpected(text.error());
  Result<LaunchList> program =
      formats::parseLaunchList(*text, programPath, model->chip, gpu.weightsBytes);
  if (!program)
    return Unexpected(program.error());
  model->program = std::move(*program);
  if (auto checked = checkProgram(artifact.manifest(), model->program, programPath); !checked)
    return Unexpected(checked.error());
  if (auto checked = checkMemory(artifact, *model->device, model->program); !checked)
    return Unexpected(checked.error());

  GpuCode code;
  code.chip = model->chip;
  code.ptxName = folder + "/" + gpu.chips.at(model->chip).ptxFile;
  Result<std::string> ptx = readFile(code.ptxName);
  if (!ptx)
    return Unexpected(ptx.error());
  code.ptx = std::move(*ptx);
  if (opened->chip.machineCode) {
    Result<std::string> fatbin = readFile(folder + "/" + *gpu.fatbinFile);
    if (!fatbin)
      return Unexpected(fatbin.error());
    code.fatbin = std::move(*fatbin);
  }
  if (auto done = model->device->load(code, model->program.kernels); !done)
    return Unexpected(done.error());

  auto begin = std::chrono::steady_clock::now();
  auto queue = model->device->createQueue();
  if (!queue)
    return Unexpected(queue.error());
  const std::vector<std::byte> &constants = model->program.constants;
  for (auto [memory, data, what] :
       {std::tuple(&model->weights, artifact.gpuWeights().first(gpu.weightsBytes), "weights"),
        std::tuple(&model->constants, std::span<const std::byte>(constants), "constants")}) {
    int64_t bytes = static_cast<int64_t>(data.size());
    if (auto done = memory->allocate(model->device, bytes, what); !done)
      return Unexpected(done.error());
    if (bytes == 0)
      continue;
    if (auto done = (*queue)->upload(memory->address(), data.data(), bytes); !done)
      return Unexpected(done.error());
    // Waits for the copies: the artifact may be gone when the queue would make them.
    std::byte first;
    if (auto done = (*queue)->download(&first, memory->address(), 1); !done)
      return Unexpected(done.error());
    ++model->loading.launches;
    model->loading.bytes += data.size();
  }
  if (model->device->kind() != "simt") // simulated time is no time
    model->loading.seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return model;
}
