//===- CApi.cpp - The C interface of the runtime --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/Json.h"

#include "easyquant/Runtime/Session.h"
#include "easyquant/Runtime/easyquant.h"
#include "easyquant/Support/Threads.h"

#include <new>

using namespace easyquant;
using namespace easyquant::runtime;

struct eq_error {
  Error error;
};
struct eq_model {
  std::shared_ptr<const Model> model;
  std::string device, deviceName;
};
struct eq_session {
  Session session;
  std::string breakdown{}, siteBreakdown{};
  eq_progress progress = nullptr;
  void *progressContext = nullptr;
};

static_assert(int(ErrorCode::InvalidArgument) == EQ_INVALID_ARGUMENT &&
              int(ErrorCode::NotFound) == EQ_NOT_FOUND && int(ErrorCode::Corrupt) == EQ_CORRUPT &&
              int(ErrorCode::Unsupported) == EQ_UNSUPPORTED &&
              int(ErrorCode::OutOfRange) == EQ_OUT_OF_RANGE && int(ErrorCode::IO) == EQ_IO &&
              int(ErrorCode::Interrupted) == EQ_INTERRUPTED);

/// What is reported when there is no memory to report with; never freed.
static eq_error *outOfMemory() {
  static eq_error error{{ErrorCode::OutOfRange, "out of memory"}};
  return &error;
}

/// The exception that is being handled.
static eq_error *describeException() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc &) {
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

/// Runs `body`, which returns a Result<void>, and turns its error or exception into an eq_error.
template <typename Body> static eq_error *guarded(Body body) noexcept {
  try {
    Result<void> result = body();
    return result ? nullptr : new eq_error{std::move(result.error())};
  } catch (...) {
    return describeException();
  }
}

static Result<void> requireArgument(const void *argument, std::string_view name) {
  if (argument)
    return {};
  return makeError(ErrorCode::InvalidArgument, "{}: found NULL, expected a pointer", name);
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

eq_error *eq_model_load(const char *path, const eq_model_options *options, eq_model **model) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(path, "path"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(static_cast<const void *>(model), "model"); !checked)
      return checked;
    const eq_model_options given = options ? *options : eq_model_options{};
    auto text = [](const char *value) { return std::string(value ? value : ""); };
    DeviceRequest request{text(given.device), text(given.simt_chip), given.simt_checks != 0};
    Result<std::shared_ptr<const Model>> loaded =
        Model::load(path, text(given.isa), given.skip_checksums != 0, request);
    if (!loaded)
      return Unexpected(loaded.error());
    std::string device = (*loaded)->device(), name = (*loaded)->describeDevice();
    *model = new eq_model{std::move(*loaded), std::move(device), std::move(name)};
    return {};
  });
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

//===----------------------------------------------------------------------===//
// Sessions
//===----------------------------------------------------------------------===//

int32_t eq_max_threads(void) { return mostThreads(); }

eq_error *eq_session_create(const eq_model *model, const eq_session_options *options,
                            eq_session **session) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(model, "model"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(static_cast<const void *>(session), "session");
        !checked)
      return checked;
    eq_session_options given = options ? *options : eq_session_options{};
    Result<Session> created =
        Session::create(model->model, given.context, given.threads, given.measure != 0);
    if (!created)
      return Unexpected(created.error());
    *session = new eq_session{std::move(*created)};
    return {};
  });
}

void eq_session_free(eq_session *session) { delete session; }

eq_error *eq_session_prefill(eq_session *session, const int32_t *tokens, size_t count) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(session, "session"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(tokens, "tokens"); !checked)
      return checked;
    return session->session.prefill({tokens, count});
  });
}

eq_error *eq_session_decode(eq_session *session, int32_t token) {
  return eq_session_prefill(session, &token, 1);
}

eq_error *eq_session_score(eq_session *session, const int32_t *tokens, size_t count,
                           float *logits) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(session, "session"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(tokens, "tokens"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(logits, "logits"); !checked)
      return checked;
    return session->session.score({tokens, count}, logits);
  });
}

void eq_session_set_progress(eq_session *session, eq_progress progress, void *context) {
  if (!session)
    return;
  session->progress = progress;
  session->progressContext = context;
  auto ask = [](void *owner, int64_t done, int64_t total) {
    auto *self = static_cast<eq_session *>(owner);
    return self->progress(self->progressContext, done, total) != 0;
  };
  session->session.setProgress(progress ? Progress{ask, session} : Progress());
}

const float *eq_session_logits(const eq_session *session) {
  return session ? session->session.logits() : nullptr;
}

int64_t eq_session_position(const eq_session *session) {
  return session ? session->session.position() : 0;
}

eq_error *eq_session_truncate(eq_session *session, int64_t position) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(session, "session"); !checked)
      return checked;
    return session->session.truncate(position);
  });
}

void eq_session_reset(eq_session *session) {
  if (session) // truncation to 0 is always possible
    (void)session->session.truncate(0);
}

int64_t eq_session_bytes(const eq_session *session) {
  return session ? session->session.bytes() : 0;
}

static Json::Object toJson(const PhaseCost &cost) {
  Json::Object object;
  object["launches"] = Json(cost.launches);
  object["bytes"] = Json(cost.bytes);
  object["instructions"] = Json(cost.instructions);
  object["seconds"] = Json(cost.seconds);
  return object;
}

eq_error *eq_session_breakdown(eq_session *session, const char **json) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(session, "session"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(static_cast<const void *>(json), "json"); !checked)
      return checked;
    Result<PhaseCosts> costs = session->session.costs();
    if (!costs)
      return Unexpected(costs.error());
    Json::Object phases;
    for (size_t i = 0; i < kPhases; ++i)
      phases[nameOf(static_cast<Phase>(i))] = Json(toJson((*costs)[i]));
    session->breakdown = Json(std::move(phases)).text();
    *json = session->breakdown.c_str();
    return {};
  });
}

eq_error *eq_session_breakdown_sites(eq_session *session, const char **json) {
  return guarded([&]() -> Result<void> {
    if (Result<void> checked = requireArgument(session, "session"); !checked)
      return checked;
    if (Result<void> checked = requireArgument(static_cast<const void *>(json), "json"); !checked)
      return checked;
    Result<std::vector<SiteCost>> costs = session->session.siteCosts();
    if (!costs)
      return Unexpected(costs.error());
    Json::Array sites;
    for (const SiteCost &site : *costs) {
      Json::Object entry = toJson(site.cost);
      entry["site"] = Json(site.site);
      entry["phase"] = Json(std::string(nameOf(site.phase)));
      sites.push_back(Json(std::move(entry)));
    }
    session->siteBreakdown = Json(std::move(sites)).text();
    *json = session->siteBreakdown.c_str();
    return {};
  });
}
