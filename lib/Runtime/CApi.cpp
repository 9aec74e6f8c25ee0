//===- CApi.cpp - The C interface: errors, models, costs ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApi.h"

#include "easyquant/Comm/Open.h"
#include "easyquant/Support/Json.h"
#include "easyquant/Support/OneLine.h"
#include "easyquant/Support/Threads.h"

#include <new>

using namespace easyquant;
using namespace easyquant::runtime;

static_assert(int(ErrorCode::InvalidArgument) == EQ_INVALID_ARGUMENT &&
              int(ErrorCode::NotFound) == EQ_NOT_FOUND && int(ErrorCode::Corrupt) == EQ_CORRUPT &&
              int(ErrorCode::Unsupported) == EQ_UNSUPPORTED &&
              int(ErrorCode::OutOfRange) == EQ_OUT_OF_RANGE && int(ErrorCode::IO) == EQ_IO &&
              int(ErrorCode::Interrupted) == EQ_INTERRUPTED);

static constexpr char kOutOfMemory[] = "out of memory";

/// What is reported when there is no memory to report with; never freed.
static eq_error *outOfMemory() {
  static eq_error error{{ErrorCode::OutOfRange, kOutOfMemory}};
  return &error;
}

eq_error *easyquant::runtime::newError(Error error) noexcept {
  try {
    return new eq_error{{error.code, oneLine(std::move(error.message))}};
  } catch (...) {
    return outOfMemory();
  }
}

eq_error *easyquant::runtime::describeException(const char *subject) noexcept {
  try {
    throw;
  } catch (const std::bad_alloc &) {
    try {
      if (subject)
        return newError({ErrorCode::OutOfRange, fmt::format("{}: {}", subject, kOutOfMemory)});
    } catch (...) { // NOLINT(bugprone-empty-catch): not even for that
    }
    return outOfMemory();
  } catch (const std::exception &exception) {
    try {
      return new eq_error{{ErrorCode::IO, exception.what()}};
    } catch (...) {
      return outOfMemory();
    }
  } catch (...) {
    return outOfMemory(); // only what is no std::exception: nothing here throws such
  }
}

Result<void> easyquant::runtime::requireArguments(std::initializer_list<Argument> arguments) {
  for (const Argument &argument : arguments)
    if (!argument.isThere)
      return makeError(ErrorCode::InvalidArgument, "{}: found NULL, expected a pointer",
                       argument.name);
  return {};
}

uint32_t eq_abi_version(void) { return EQ_ABI_VERSION; }

//===----------------------------------------------------------------------===//
// Errors
//===----------------------------------------------------------------------===//

eq_error_code eq_error_get_code(const eq_error *error) {
  return error ? static_cast<eq_error_code>(error->error.code) : EQ_OK;
}

const char *eq_error_get_message(const eq_error *error) {
  return error ? error->error.message.c_str() : "";
}

void eq_error_free(eq_error *error) {
  if (error != outOfMemory())
    delete error;
}

//===----------------------------------------------------------------------===//
// Models
//===----------------------------------------------------------------------===//

static Result<void> loadModel(const char *path, const eq_model_options *options,
                              std::shared_ptr<comm::Communicator> communicator,
                              const comm::Placement &placement, eq_model **model) {
  const eq_model_options given = options ? *options : eq_model_options{};
  auto text = [](const char *value) { return std::string(value ? value : ""); };
  DeviceRequest request{text(given.device), text(given.simt_chip), given.simt_checks != 0,
                        std::move(communicator), placement};
  Result<std::shared_ptr<const Model>> loaded =
      Model::load(path, text(given.isa), given.skip_checksums != 0, request);
  if (!loaded)
    return Unexpected(loaded.error());
  std::string device = (*loaded)->device(), name = (*loaded)->describeDevice();
  *model = new eq_model{std::move(*loaded), std::move(device), std::move(name)};
  return {};
}

eq_error *eq_model_load(const char *path, const eq_model_options *options, eq_model **model) {
  return guarded(
      {{path, "path"}, {model, "model"}},
      [&] { return loadModel(path, options, nullptr, {}, model); }, path);
}

/// Seconds; no wait is longer.
static constexpr double kLongestTimeout = 1e6;

/// Null where there is one rank. GPUs are joined by NCCL, which on them is what auto means.
static Result<std::shared_ptr<comm::Communicator>> openRanks(std::string_view name, double timeout,
                                                             std::string_view device,
                                                             const comm::Placement &placement) {
  comm::OpenOptions options;
  if (!(timeout >= 0 && timeout <= kLongestTimeout))
    return makeError(ErrorCode::InvalidArgument,
                     "timeout: found {} seconds, expected a number up to {}, or 0 for the default",
                     timeout, kLongestTimeout);
  if (timeout > 0)
    options.limits.timeout = std::chrono::milliseconds(static_cast<int64_t>(timeout * 1000));
  if (name == "mpi")
    options.kind = comm::Kind::MPI;
  else if (name == "nccl")
    options.kind = comm::Kind::NCCL;
  else if (name != "auto" && !name.empty())
    return makeError(ErrorCode::InvalidArgument, "comm: found \"{}\", expected auto, mpi or nccl",
                     name);
  if (placement.size == 1)
    return nullptr;
  const bool isAuto = device.empty() || device == "auto", isNccl = options.kind == comm::Kind::NCCL;
  const bool onDevice = (device == "cuda" && options.kind != comm::Kind::MPI) || (isAuto && isNccl);
  Result<std::unique_ptr<comm::Communicator>> opened =
      onDevice ? openCudaCommunicator(placement, options.limits)
               : comm::openCommunicator(placement, options);
  if (!opened)
    return Unexpected(opened.error());
  return std::move(*opened);
}

eq_error *eq_model_load_on_ranks(const char *path, const eq_model_options *options,
                                 const char *comm, double timeout, eq_model **model) {
  auto load = [&]() -> Result<void> {
    Result<comm::Placement> placement = comm::findPlacement();
    if (!placement)
      return Unexpected(placement.error());
    const char *device = options && options->device ? options->device : "";
    auto communicator = openRanks(comm ? comm : "", timeout, device, *placement);
    if (!communicator)
      return Unexpected(communicator.error());
    return loadModel(path, options, std::move(*communicator), *placement, model);
  };
  return guarded({{path, "path"}, {model, "model"}}, load, path);
}

int64_t eq_model_rank(const eq_model *model) { return model ? model->model->rank() : 0; }

int64_t eq_model_rank_count(const eq_model *model) { return model ? model->model->rankCount() : 0; }

eq_error *eq_model_follow(const eq_model *model, int32_t threads) {
  return guarded({{model, "model"}}, [&] { return model->model->follow(threads); });
}

void eq_model_free(eq_model *model) { delete model; }

const char *eq_model_manifest(const eq_model *model) {
  return model ? model->model->manifestText().c_str() : nullptr;
}

int64_t eq_model_vocab_size(const eq_model *model) {
  return model ? model->model->manifest().model.vocabSize : 0;
}

int64_t eq_model_max_context(const eq_model *model) {
  return model ? model->model->manifest().model.maxContext : 0;
}

const char *eq_model_isa(const eq_model *model) {
  return model ? model->model->isa().c_str() : nullptr;
}

const char *eq_model_device(const eq_model *model) {
  return model ? model->device.c_str() : nullptr;
}

const char *eq_model_device_name(const eq_model *model) {
  return model ? model->deviceName.c_str() : nullptr;
}

int64_t eq_model_weights_bytes(const eq_model *model) {
  return model ? model->model->weightsBytes() : 0;
}

int32_t eq_max_threads(void) { return mostThreads(); }

//===----------------------------------------------------------------------===//
// Costs
//===----------------------------------------------------------------------===//

static Json::Object objectOf(const PhaseCost &cost) {
  Json::Object object;
  object["launches"] = Json(cost.launches);
  object["bytes"] = Json(cost.bytes);
  object["instructions"] = Json(cost.instructions);
  object["seconds"] = Json(cost.seconds);
  return object;
}

std::string easyquant::runtime::toJson(const PhaseCosts &costs) {
  Json::Object phases;
  for (size_t i = 0; i < kPhases; ++i)
    phases[nameOf(static_cast<Phase>(i))] = Json(objectOf(costs[i]));
  return Json(std::move(phases)).text();
}

std::string easyquant::runtime::toJson(const std::vector<SiteCost> &costs) {
  Json::Array sites;
  for (const SiteCost &site : costs) {
    Json::Object entry = objectOf(site.cost);
    entry["site"] = Json(site.site);
    entry["phase"] = Json(std::string(nameOf(site.phase)));
    sites.push_back(Json(std::move(entry)));
  }
  return Json(std::move(sites)).text();
}
