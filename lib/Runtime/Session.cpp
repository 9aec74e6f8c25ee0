//===- Session.cpp - Running a compiled model -----------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Session.h"

#include "Executor.h"

#include "easyquant/Support/Threads.h"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>

using namespace easyquant;
using namespace easyquant::runtime;

//===----------------------------------------------------------------------===//
// Model
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

Result<Buffer> easyquant::runtime::allocateMemory(std::string_view what, int64_t bytes) {
  Result<Buffer> buffer =
      Buffer::allocate(bytes, what, "ask for a shorter context or fewer threads");
  if (buffer)
    buffer->preferHugePages();
  return buffer;
}

//===----------------------------------------------------------------------===//
// Session
//===----------------------------------------------------------------------===//

Result<int64_t> easyquant::runtime::sizeOf(std::string_view what, int64_t count, int64_t size,
                                           int64_t base) {
  int64_t bytes;
  // What Buffer may add must fit, too.
  if (__builtin_mul_overflow(count, size, &bytes) || __builtin_add_overflow(bytes, base, &bytes) ||
      bytes > std::numeric_limits<int64_t>::max() - Buffer::kPage)
    return makeError(ErrorCode::OutOfRange,
                     "{}: {} x {} + {} bytes are more than can be addressed; ask for a shorter "
                     "context or fewer threads",
                     what, count, size, base);
  return bytes;
}

Unexpected easyquant::runtime::notMeasured() {
  return makeError(ErrorCode::InvalidArgument,
                   "costs of phases: the session was not created to measure them; set measure in "
                   "its options");
}

Session::Session() = default;
Session::Session(Session &&other) noexcept = default;
Session &Session::operator=(Session &&other) noexcept = default;
Session::~Session() = default;

Result<Session> Session::create(std::shared_ptr<const Model> model, int64_t context,
                                int32_t threads, bool measure) {
  const Manifest &manifest = model->manifest();
  if (context < 0)
    return makeError(ErrorCode::InvalidArgument,
                     "context: found {}, expected tokens, or 0 for the model's longest", context);
  if (context > manifest.model.maxContext)
    return makeError(ErrorCode::OutOfRange,
                     "context: found {} tokens, but the model was made for at most {}", context,
                     manifest.model.maxContext);
  Result<int32_t> chosen = chooseThreads(threads);
  if (!chosen)
    return Unexpected(chosen.error());

  Session session;
  session.limit = context == 0 ? manifest.model.maxContext : context;
  session.threadCount = *chosen;

  Result<std::unique_ptr<Executor>> executor =
      model->gpu ? createGpuExecutor(*model->gpu, session.limit, manifest.model.vocabSize, measure)
                 : createCpuExecutor(model->artifact, model->code, session.limit,
                                     session.threadCount, measure);
  if (!executor)
    return Unexpected(executor.error());
  session.executor = std::move(*executor);
  for (Buffer *logits : {&session.current, &session.next}) {
    Result<Buffer> buffer =
        allocateMemory("logits", manifest.model.vocabSize * static_cast<int64_t>(sizeof(float)));
    if (!buffer)
      return Unexpected(buffer.error());
    *logits = std::move(*buffer);
  }
  session.owner = std::move(model);
  return session;
}

Result<void> Session::check(std::span<const int32_t> tokens) const {
  const Manifest::Model &model = owner->manifest().model;
  if (tokens.empty())
    return makeError(ErrorCode::InvalidArgument, "tokens: found none, expected at least one");
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] < 0 || tokens[i] >= model.vocabSize)
      return makeError(ErrorCode::InvalidArgument,
                       "tokens[{}]: found {}, expected a token id in 0..{}", i, tokens[i],
                       model.vocabSize - 1);
  if (tokens.size() > static_cast<size_t>(limit - held)) {
    std::string remedy = limit < model.maxContext
                             ? fmt::format("or create a session with a longer context (the model "
                                           "was made for at most {})",
                                           model.maxContext)
                             : std::string("the model was made for no longer one");
    return makeError(ErrorCode::OutOfRange,
                     "context overflow: {} tokens at position {} do not fit the session's context "
                     "of {} tokens; append fewer, truncate or reset the session; {}",
                     tokens.size(), held, limit, remedy);
  }
  return {};
}

/// Whether all of them are numbers: an infinity or NaN is what has all exponent bits set.
static bool allFinite(const float *values, int64_t count) {
  uint32_t found = 0;
  for (int64_t i = 0; i < count; ++i)
    found |=
        static_cast<uint32_t>((std::bit_cast<uint32_t>(values[i]) & 0x7f800000u) == 0x7f800000u);
  return found == 0;
}

Result<void> Session::append(std::span<const int32_t> tokens, float *allLogits) {
  if (Result<void> checked = check(tokens); !checked)
    return checked;

  const int64_t vocab = owner->manifest().model.vocabSize;
  const int64_t count = static_cast<int64_t>(tokens.size());
  const int64_t most = executor->rowsPerStep(allLogits != nullptr);
  float *lastRow = next.data<float>();

  // `held` moves only at the end: what a failed call wrote into the cache lies beyond it.
  for (int64_t begin = 0; begin < count; begin += most) {
    int64_t rows = std::min(count - begin, most);
    int64_t firstLogit = allLogits ? 0 : rows - 1;
    int64_t logitRows = rows - firstLogit;
    float *logits = allLogits ? allLogits + begin * vocab : lastRow;
    const Watch watch{progress, begin, count};
    if (watch.stops())
      return watch.interrupted();
    if (auto done =
            executor->step(tokens.subspan(begin, rows), held + begin, firstLogit, logits, watch);
        !done)
      return done;
    for (int64_t row = 0; row < logitRows; ++row)
      if (!allFinite(logits + row * vocab, vocab))
        return makeError(ErrorCode::Corrupt,
                         "the logits after the token at position {} (id {}) are not finite: the "
                         "model's weights or activations overflow; compile it with another scheme, "
                         "or leave its outlier sites float with --ignore",
                         held + begin + firstLogit + row, tokens[begin + firstLogit + row]);
  }

  if (allLogits)
    std::memcpy(lastRow, allLogits + (count - 1) * vocab, sizeof(float) * vocab);
  std::swap(current, next);
  hasLogits = true;
  held += count;
  return {};
}

Result<void> Session::truncate(int64_t position) {
  if (position < 0 || position > held)
    return makeError(ErrorCode::InvalidArgument,
                     "position: found {}, expected 0..{} (the tokens held)", position, held);
  held = position;
  hasLogits = false;
  return {};
}

int64_t Session::bytes() const { return executor->bytes() + current.size() + next.size(); }
Result<PhaseCosts> Session::costs() const { return executor->costs(); }
Result<std::vector<SiteCost>> Session::siteCosts() const { return executor->siteCosts(); }
