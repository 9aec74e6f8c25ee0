//===- CudaDevice.cpp - A GPU through NVIDIA's driver ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CudaDriver.h"

#include "easyquant/Runtime/Device.h"

#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

using namespace easyquant;
using namespace easyquant::runtime;
using namespace easyquant::runtime::cuda;

static constexpr const char *kStartAgain = "; load the model again in a new process";

namespace {

/// The primary context of a GPU, which other libraries of the process share.
class CudaContext {
public:
  CudaContext(const Driver &driver, DeviceId id) : driver(driver), id(id) {}
  ~CudaContext() {
    if (context)
      driver.primaryContextRelease(id);
  }
  Result<void> open() {
    if (Status status = driver.primaryContextRetain(&context, id); status != kSuccess)
      return makeError(ErrorCode::Unsupported, "the GPU cannot be used: {}",
                       driver.describe(status));
    return {};
  }

  const Driver &driver;
  const DeviceId id;
  Context context = nullptr;
};

/// Makes a context the calling thread's, for as long as this lives.
class Current {
public:
  explicit Current(const CudaContext &context)
      : driver(context.driver), pushed(driver.contextPush(context.context) == kSuccess) {}
  ~Current() {
    Context old;
    if (pushed) // else that would be somebody else's
      driver.contextPop(&old);
  }
  Current(const Current &) = delete;

private:
  const Driver &driver;
  const bool pushed;
};

/// What comes from the GPU goes through so much pinned memory, unless it is more: a row of logits
/// of a vocabulary of 2^18 has room. More is copied by the driver's own means.
constexpr size_t kPinnedBytes = size_t(1) << 20;

/// From this chip on kernels wait for the launch before theirs (Chip::overlapsLaunches).
constexpr int kOverlappingChip = 90;

class CudaDevice final : public Device {
public:
  CudaDevice(std::shared_ptr<CudaContext> context, std::string name, CudaCapability capability)
      : context(std::move(context)), driver(this->context->driver), name(std::move(name)),
        capability(capability) {}
  ~CudaDevice() override {
    if (module) {
      Current current(*context);
      driver.moduleUnload(module);
    }
  }

  std::string kind() const override { return "cuda"; }
  std::string description() const override {
    return fmt::format("{} (sm_{}{})", name, capability.number,
                       assembled ? ", PTX assembled by its driver" : "");
  }
  Result<int64_t> freeBytes() const override;
  Result<uint64_t> allocate(int64_t bytes, std::string_view what) override;
  void free(uint64_t address) override {
    Current current(*context);
    driver.free(address);
  }
  Result<void> load(const GpuCode &code, std::span<const LaunchKernel> kernels) override;
  Result<std::unique_ptr<Queue>> createQueue() override;

  const std::shared_ptr<CudaContext> context;
  const Driver &driver;
  std::vector<LaunchKernel> kernels;
  std::vector<Function> functions;
  bool overlaps = false; ///< a launch may begin before the one before it has ended

private:
  Status loadModule(const std::string &image, std::string &log);
  Unexpected cannotLoad(const GpuCode &code, Status status, const std::string &log) const;
  /// Machine code of this very chip? Where there is none that it can run, a driver takes the
  /// fatbin's PTX, which is of another chip: its kernels may need launches other than the
  /// program's.
  bool isMachineCodeOf(const std::string &chip, const LaunchKernel &kernel) const;

  std::string name;
  CudaCapability capability;
  Module module = nullptr;
  bool assembled = false; ///< the kernels, from PTX
};

class CudaRecording final : public Recording {
public:
  CudaRecording(std::shared_ptr<CudaContext> context, Graph graph, GraphExec exec)
      : context(std::move(context)), graph(graph), exec(exec) {}
  ~CudaRecording() override {
    Current current(*context);
    context->driver.graphExecDestroy(exec);
    context->driver.graphDestroy(graph);
  }
  GraphExec executable() const { return exec; }

private:
  std::shared_ptr<CudaContext> context;
  Graph graph;
  GraphExec exec;
};

class CudaQueue final : public Queue {
public:
  explicit CudaQueue(CudaDevice &device)
      : device(device), context(device.context), driver(device.driver) {}
  ~CudaQueue() override;
  Result<void> open();

  Result<void> upload(uint64_t to, const void *from, int64_t bytes) override;
  Result<void> download(void *to, uint64_t from, int64_t bytes) override;
  Result<void> fill(uint64_t to, uint8_t value, int64_t bytes) override;
  Result<void> copy(uint64_t to, uint64_t from, int64_t bytes) override;
  Result<void> launch(const DeviceLaunch &launch) override;
  Result<void> exchange(comm::Communicator &ranks, comm::Collective collective) override;
  Result<void> wait(comm::Communicator &ranks) override { return ranks.synchronize(stream); }
  bool canRecord() const override { return !measuring; }
  Result<void> beginRecording() override;
  Result<std::unique_ptr<Recording>> endRecording() override;
  Result<void> replay(Recording &recording) override;
  Result<void> startMeasuring() override;
  Result<PhaseCosts> costs() override;

private:
  /// What `status` means for the work of this queue.
  Result<void> check(Status status, std::string_view what);
  /// An event where a phase begins; what came before belongs to the phase before it.
  Result<void> recordEvent(Phase phase, int64_t bytes, bool isNewEvent);
  Result<void> collect();
  /// Memory that the GPU writes by itself, while this thread waits; null where there is none.
  void *pinnedMemory();

  CudaDevice &device;
  std::shared_ptr<CudaContext> context;
  const Driver &driver;
  Stream stream = nullptr;
  void *pinned = nullptr;
  bool hasPinned = true;        ///< until it is known better
  std::string last = "nothing"; ///< launched, for messages: errors come late
  bool measuring = false;
  PhaseCosts counted{};
  /// Where phases began since times were collected.
  std::vector<std::pair<Phase, Event>> phaseEvents;
};

} // namespace

//===----------------------------------------------------------------------===//
// Device
//===----------------------------------------------------------------------===//

Result<int64_t> CudaDevice::freeBytes() const {
  Current current(*context);
  size_t free = 0, total = 0;
  if (Status status = driver.memoryInfo(&free, &total); status != kSuccess)
    return makeError(ErrorCode::Unsupported, "the GPU does not say how much memory it has: {}",
                     driver.describe(status));
  return static_cast<int64_t>(free);
}

Result<uint64_t> CudaDevice::allocate(int64_t bytes, std::string_view what) {
  Current current(*context);
  Pointer address = 0;
  Status status = driver.allocate(&address, static_cast<size_t>(bytes));
  if (status == kSuccess)
    return address;
  if (status != kOutOfMemory)
    return makeError(losesDevice(status) ? ErrorCode::IO : ErrorCode::Unsupported,
                     "{}: {} bytes cannot be allocated on {}: {}{}", what, bytes, description(),
                     driver.describe(status), losesDevice(status) ? kStartAgain : "");
  size_t free = 0, total = 0;
  driver.memoryInfo(&free, &total);
  return makeError(ErrorCode::OutOfRange,
                   "{}: {} bytes cannot be allocated on {}, which has {} of {} free: {}; ask for a "
                   "shorter context, or free memory of the GPU",
                   what, bytes, description(), free, total, driver.describe(status));
}

Status CudaDevice::loadModule(const std::string &image, std::string &log) {
  std::array<char, 4096> text{};
  int options[] = {kJitErrorLog, kJitErrorLogBytes};
  void *values[] = {text.data(), reinterpret_cast<void *>(text.size() - 1)};
  Status status = driver.moduleLoad(&module, image.c_str(), 2, options, values);
  if (status != kSuccess)
    module = nullptr;
  log = text.data();
  return status;
}

bool CudaDevice::isMachineCodeOf(const std::string &chip, const LaunchKernel &kernel) const {
  Function function = nullptr;
  int version = 0;
  return driver.moduleFunction(&function, module, kernel.name.c_str()) == kSuccess &&
         driver.functionAttribute(&version, kPtxVersion, function) == kSuccess &&
         version == numberOf(chip);
}

Unexpected CudaDevice::cannotLoad(const GpuCode &code, Status status,
                                  const std::string &log) const {
  if (status == kOutOfMemory)
    return makeError(ErrorCode::OutOfRange,
                     "{}: the kernels do not fit on {}: {}; free memory of the GPU", code.ptxName,
                     description(), driver.describe(status));
  if (status == kUnsupportedPtxVersion)
    return makeError(ErrorCode::Unsupported,
                     "{}: the driver is too old for the kernels of this artifact: {}; update it",
                     code.ptxName, driver.describe(status));
  if (status == kNoBinaryForGpu)
    return makeError(ErrorCode::Unsupported,
                     "{}: the artifact has no code for {}: {}; compile it with this chip in "
                     "--target",
                     code.ptxName, description(), driver.describe(status));
  if (status == kInvalidPtx || status == kInvalidImage)
    return makeError(ErrorCode::Corrupt,
                     "{}: the kernels cannot be loaded on {}: {}{}{}; compile the artifact again",
                     code.ptxName, description(), driver.describe(status), log.empty() ? "" : ": ",
                     log);
  return makeError(losesDevice(status) ? ErrorCode::IO : ErrorCode::Unsupported,
                   "{}: the kernels cannot be loaded on {}: {}{}", code.ptxName, description(),
                   driver.describe(status),
                   losesDevice(status) ? kStartAgain : "; check the driver's installation");
}

Result<void> CudaDevice::load(const GpuCode &code, std::span<const LaunchKernel> given) {
  Current current(*context);
  std::string log;
  Status status = kNoBinaryForGpu;
  if (!code.fatbin.empty()) {
    status = loadModule(code.fatbin, log);
    if (status == kSuccess && !given.empty() && !isMachineCodeOf(code.chip, given.front())) {
      driver.moduleUnload(std::exchange(module, nullptr));
      status = kNoBinaryForGpu;
    }
  }
  // A driver older than the assembler may refuse its machine code, and yet take the PTX.
  if (status != kSuccess && status != kOutOfMemory && !losesDevice(status)) {
    status = loadModule(code.ptx, log);
    assembled = status == kSuccess;
  }
  if (status != kSuccess)
    return cannotLoad(code, status, log);
  int version = 0;
  driver.driverGetVersion(&version);
  overlaps = numberOf(code.chip) >= kOverlappingChip && version >= kOverlapVersion &&
             !std::getenv("EASYQUANT_CUDA_SERIAL");
  int most = 0;
  driver.deviceGetAttribute(&most, kMaxSharedMemoryOptin, context->id);
  for (const LaunchKernel &kernel : given) {
    Function function = nullptr;
    if (driver.moduleFunction(&function, module, kernel.name.c_str()) != kSuccess)
      return makeError(ErrorCode::Corrupt,
                       "{}: has no kernel {}, which the program launches; compile the artifact "
                       "again",
                       code.ptxName, kernel.name);
    if (kernel.sharedBytes > static_cast<uint32_t>(most))
      return makeError(
          ErrorCode::Unsupported,
          "kernel {} needs {} bytes of shared memory, but {} has {}; compile with this "
          "chip in --target",
          kernel.name, kernel.sharedBytes, description(), most);
    status = driver.functionSetAttribute(function, kMaxDynamicSharedBytes,
                                         static_cast<int>(kernel.sharedBytes));
    if (status != kSuccess)
      return makeError(ErrorCode::Unsupported, "kernel {}: {} bytes of shared memory: {}",
                       kernel.name, kernel.sharedBytes, driver.describe(status));
    functions.push_back(function);
  }
  kernels.assign(given.begin(), given.end());
  return {};
}

Result<std::unique_ptr<Queue>> CudaDevice::createQueue() {
  auto queue = std::make_unique<CudaQueue>(*this);
  if (auto opened = queue->open(); !opened)
    return Unexpected(opened.error());
  return queue;
}

//===----------------------------------------------------------------------===//
// Queue
//===----------------------------------------------------------------------===//

Result<void> CudaQueue::open() {
  Current current(*context);
  return check(driver.streamCreate(&stream, kStreamNonBlocking), "creating a stream");
}

CudaQueue::~CudaQueue() {
  Current current(*context);
  for (auto &[phase, event] : phaseEvents)
    driver.eventDestroy(event);
  if (stream) {
    driver.streamSynchronize(stream);
    driver.streamDestroy(stream);
  }
  if (pinned)
    driver.freePinned(pinned);
}

void *CudaQueue::pinnedMemory() {
  if (!pinned && hasPinned)
    hasPinned = driver.allocatePinned(&pinned, kPinnedBytes) == kSuccess;
  return pinned;
}

Result<void> CudaQueue::check(Status status, std::string_view what) {
  if (status == kSuccess)
    return {};
  if (status == kOutOfMemory)
    return makeError(ErrorCode::OutOfRange, "{}: {} is out of memory; ask for a shorter context",
                     what, device.description());
  return makeError(losesDevice(status) ? ErrorCode::IO : ErrorCode::Unsupported,
                   "{} failed on {}: {}; the last launch was {}{}", what, device.description(),
                   driver.describe(status), last, losesDevice(status) ? kStartAgain : "");
}

Result<void> CudaQueue::upload(uint64_t to, const void *from, int64_t bytes) {
  Current current(*context);
  if (auto recorded = recordEvent(Phase::Load, bytes, true); !recorded)
    return recorded;
  return check(driver.copyToDevice(to, from, static_cast<size_t>(bytes), stream),
               "copying to the device");
}

Result<void> CudaQueue::download(void *to, uint64_t from, int64_t bytes) {
  Current current(*context);
  if (auto recorded = recordEvent(Phase::Sync, bytes, true); !recorded)
    return recorded;
  const auto size = static_cast<size_t>(bytes);
  void *place = size <= kPinnedBytes ? pinnedMemory() : nullptr;
  Status status = driver.copyFromDevice(place ? place : to, from, size, stream);
  if (status == kSuccess)
    status = driver.streamSynchronize(stream);
  if (auto done = check(status, "a step"); !done)
    return done;
  if (place)
    std::memcpy(to, place, size);
  return collect();
}

Result<void> CudaQueue::fill(uint64_t to, uint8_t value, int64_t bytes) {
  Current current(*context);
  return check(driver.fill(to, value, static_cast<size_t>(bytes), stream), "filling memory");
}

Result<void> CudaQueue::copy(uint64_t to, uint64_t from, int64_t bytes) {
  Current current(*context);
  if (auto recorded = recordEvent(Phase::Other, bytes, true); !recorded)
    return recorded;
  return check(driver.copyOnDevice(to, from, static_cast<size_t>(bytes), stream),
               "copying on the device");
}

Result<void> CudaQueue::launch(const DeviceLaunch &launch) {
  Current current(*context);
  const LaunchKernel &kernel = device.kernels[launch.kernel];
  bool changed = phaseEvents.empty() || phaseEvents.back().first != launch.phase;
  if (auto recorded = recordEvent(launch.phase, 0, changed); !recorded)
    return recorded;
  std::vector<uint64_t> values(launch.arguments.begin(), launch.arguments.end());
  std::vector<void *> places; // little-endian: an i32 is the first half of its eight bytes
  places.reserve(values.size());
  for (uint64_t &value : values)
    places.push_back(&value);
  last = fmt::format("kernel {} of site '{}'", kernel.name, launch.site);
  const Profiler &profiler = Profiler::get();
  profiler.push(std::string(launch.site).c_str());
  const LaunchAttribute overlap;
  LaunchConfig config;
  config.grid = launch.grid;
  config.block = {static_cast<unsigned>(kernel.threads), 1, 1};
  config.sharedBytes = static_cast<unsigned>(kernel.sharedBytes);
  config.stream = stream;
  config.attributes = &overlap;
  config.attributeCount = device.overlaps ? 1 : 0;
  Status status =
      driver.launchKernel(&config, device.functions[launch.kernel], places.data(), nullptr);
  profiler.pop();
  return check(status, "a launch");
}

Result<void> CudaQueue::exchange(comm::Communicator &ranks, comm::Collective collective) {
  Current current(*context);
  const bool changed = phaseEvents.empty() || phaseEvents.back().first != Phase::Comm;
  if (auto recorded = recordEvent(Phase::Comm, collective.bytes(), changed); !recorded)
    return recorded;
  last = fmt::format("a collective at site '{}'", collective.site);
  collective.memory = comm::Memory::Device;
  collective.order = comm::Order::Any;
  collective.stream = stream;
  return ranks.enqueue(collective);
}

Result<void> CudaQueue::beginRecording() {
  Current current(*context);
  return check(driver.beginCapture(stream, kCaptureThreadLocal), "capturing a step");
}

Result<std::unique_ptr<Recording>> CudaQueue::endRecording() {
  Current current(*context);
  Graph graph = nullptr;
  if (auto done = check(driver.endCapture(stream, &graph), "capturing a step"); !done)
    return Unexpected(done.error());
  GraphExec exec = nullptr;
  if (auto done = check(driver.graphInstantiate(&exec, graph, 0), "making a graph of a step");
      !done) {
    driver.graphDestroy(graph);
    return Unexpected(done.error());
  }
  return std::make_unique<CudaRecording>(context, graph, exec);
}

Result<void> CudaQueue::replay(Recording &recording) {
  Current current(*context);
  last = "a decode step as a graph";
  const Profiler &profiler = Profiler::get();
  profiler.push("decode step");
  Status status = driver.graphLaunch(static_cast<CudaRecording &>(recording).executable(), stream);
  profiler.pop();
  return check(status, "a launch");
}

//===----------------------------------------------------------------------===//
// Times
//===----------------------------------------------------------------------===//

Result<void> CudaQueue::startMeasuring() {
  measuring = true;
  return {};
}

Result<void> CudaQueue::recordEvent(Phase phase, int64_t bytes, bool isNewEvent) {
  if (!measuring)
    return {};
  PhaseCost &cost = counted[static_cast<size_t>(phase)];
  ++cost.launches;
  cost.bytes += static_cast<uint64_t>(bytes);
  if (!isNewEvent)
    return {};
  Event event = nullptr;
  if (auto done = check(driver.eventCreate(&event, 0), "measuring"); !done)
    return done;
  phaseEvents.emplace_back(phase, event);
  return check(driver.eventRecord(event, stream), "measuring");
}

Result<void> CudaQueue::collect() {
  if (phaseEvents.empty())
    return {};
  // The end of the last phase; it closes the list.
  if (auto done = recordEvent(Phase::Sync, 0, true); !done)
    return done;
  --counted[static_cast<size_t>(Phase::Sync)].launches;
  if (auto done = check(driver.eventSynchronize(phaseEvents.back().second), "measuring"); !done)
    return done;
  for (size_t i = 0; i + 1 < phaseEvents.size(); ++i) {
    float milliseconds = 0;
    if (auto done = check(driver.eventElapsedTime(&milliseconds, phaseEvents[i].second,
                                                  phaseEvents[i + 1].second),
                          "measuring");
        !done)
      return done;
    counted[static_cast<size_t>(phaseEvents[i].first)].seconds += milliseconds / 1000;
  }
  for (auto &[phase, event] : phaseEvents)
    driver.eventDestroy(event);
  phaseEvents.clear();
  return {};
}

Result<PhaseCosts> CudaQueue::costs() {
  Current current(*context);
  if (auto done = collect(); !done)
    return Unexpected(done.error());
  return counted;
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

namespace {
/// A GPU of this machine.
struct FoundGpu {
  std::shared_ptr<CudaContext> context;
  std::string name;
  CudaCapability capability;
};
} // namespace

static Result<FoundGpu> openGpu(const comm::Placement &placement) {
  Result<const Driver *> opened = Driver::get();
  if (!opened)
    return Unexpected(opened.error());
  const Driver &driver = **opened;
  int count = 0;
  Status status = driver.deviceGetCount(&count);
  if (status != kSuccess || count < 1)
    return makeError(ErrorCode::NotFound,
                     "there is an NVIDIA driver, but it shows no GPU{}; check CUDA_VISIBLE_DEVICES",
                     status == kSuccess ? "" : ": " + driver.describe(status));
  Result<int> number = comm::deviceOf(placement, count);
  if (!number)
    return Unexpected(number.error());
  DeviceId id = 0;
  char name[256] = "";
  int major = 0, minor = 0;
  for (Status asked : {driver.deviceGet(&id, *number), driver.deviceGetName(name, sizeof(name), id),
                       driver.deviceGetAttribute(&major, kCapabilityMajor, id),
                       driver.deviceGetAttribute(&minor, kCapabilityMinor, id)})
    if (asked != kSuccess)
      return makeError(ErrorCode::Unsupported, "the GPU cannot be examined: {}",
                       driver.describe(asked));
  auto context = std::make_shared<CudaContext>(driver, id);
  if (auto made = context->open(); !made)
    return Unexpected(made.error());
  return FoundGpu{std::move(context), name, {10 * major + minor}};
}

Result<std::shared_ptr<Device>>
easyquant::runtime::openCudaDevice(CudaCapability &capability, const comm::Placement &placement) {
  Result<FoundGpu> gpu = openGpu(placement);
  if (!gpu)
    return Unexpected(gpu.error());
  capability = gpu->capability;
  return std::make_shared<CudaDevice>(std::move(gpu->context), gpu->name, gpu->capability);
}

Result<std::unique_ptr<comm::Communicator>>
easyquant::runtime::openCudaCommunicator(const comm::Placement &placement,
                                         const comm::Limits &limits) {
  auto context = std::make_shared<std::shared_ptr<CudaContext>>(); // once it is open
  std::optional<Current> current;
  comm::OpenOptions options;
  options.limits = limits;
  options.onDevice = true;
  options.useDevice = [&]() -> Result<void> {
    Result<FoundGpu> gpu = openGpu(placement);
    if (!gpu)
      return Unexpected(gpu.error());
    *context = std::move(gpu->context);
    current.emplace(**context);
    return {};
  };
  options.streamIsDone = [context](void *stream) -> Result<bool> {
    Current current(**context);
    const Driver &driver = (*context)->driver;
    const Status status = driver.streamQuery(static_cast<Stream>(stream));
    if (status == kSuccess || status == kNotReady)
      return status == kSuccess;
    return makeError(losesDevice(status) ? ErrorCode::IO : ErrorCode::Unsupported,
                     "a step failed: {}{}", driver.describe(status),
                     losesDevice(status) ? kStartAgain : "");
  };
  return comm::openCommunicator(placement, options);
}
