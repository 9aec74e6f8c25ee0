//===- FakeCuda.cpp - A CUDA driver without a GPU -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// A libcuda.so.1 on the simulator of lib/Simt, so that what the runtime does with the driver can be
// tested where there is none: put its folder into LD_LIBRARY_PATH. It takes PTX, no machine code,
// and refuses what a real driver refuses: calls without a current context, waiting for a stream
// whose launches are being captured. FakeNccl.cpp puts its collectives into the streams of this
// one, where they wait for other ranks. The environment makes it another machine:
//   FAKE_CUDA_VERSION=11080    the driver's version     FAKE_CUDA_CAPABILITY=90
//   FAKE_CUDA_DEVICES=0        no GPU                   FAKE_CUDA_MEMORY=1000  bytes of it
//   FAKE_CUDA_FAIL=12          the GPU is lost with launch 12, counted from 1
//   FAKE_CUDA_IMAGE=FILE.ptx   what it finds in any fatbin
//   FAKE_CUDA_LOG=FILE         what was called, and how many bytes were copied, in the end
//
//===----------------------------------------------------------------------===//

#include "CudaDriver.h"
#include "SameAbi.h"

#include "easyquant/Simt/Simt.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

using namespace easyquant;

namespace {

enum : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNoDevice = 100,
  kInvalidContext = 201,
  kNoBinaryForGpu = 209,
  kInvalidPtx = 218,
  kNotFound = 500,
  kNotPermitted = 800,
  kNotReady = 600,
  kLaunchFailed = 719,
  kCaptureUnsupported = 900,
};

long setting(const char *name, long otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtol(text, nullptr, 10) : otherwise;
}

struct FakeFunction {
  std::shared_ptr<const simt::Module> module;
  std::string name;
  int sharedBytes = 0;
};
struct FakeModule {
  std::shared_ptr<const simt::Module> module;
  std::map<std::string, std::unique_ptr<FakeFunction>> functions;
};
struct FakeLaunch {
  FakeFunction *function;
  simt::LaunchOptions options;
  simt::Arguments arguments;
};
/// Something that a stream does: false, if it is to be asked again.
using Work = std::function<bool()>;
struct FakeGraph {
  std::vector<Work> works;
};
struct FakeStream;
/// CUlaunchConfig.
struct FakeLaunchConfig {
  std::array<unsigned, 3> grid, block;
  unsigned sharedBytes;
  FakeStream *stream;
  const void *attributes; ///< here every launch begins when the one before it has ended
  unsigned attributeCount;
};
struct FakeStream {
  std::unique_ptr<FakeGraph> capturing;
  std::deque<Work> waiting; ///< behind a collective, whose other ranks are not there yet

  void advance() {
    while (!waiting.empty() && waiting.front()())
      waiting.pop_front();
  }
  void add(Work work) {
    waiting.push_back(std::move(work));
    advance();
  }
  void finish() {
    for (advance(); !waiting.empty(); advance())
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
};
struct FakeEvent {
  double time = 0;
};

/// The one machine. What happens on a stream happens at once, but for what waits for other ranks.
struct Machine {
  simt::Device device;
  std::map<unsigned long long, size_t> allocations;
  size_t used = 0;
  long launches = 0;
  bool lost = false;
  std::map<std::string, long> calls;
  std::map<const void *, size_t> pinned;

  ~Machine() {
    const char *path = std::getenv("FAKE_CUDA_LOG");
    std::FILE *file = path ? std::fopen(path, "w") : nullptr;
    if (!file)
      return;
    for (const auto &[name, count] : calls)
      std::fprintf(file, "%s %ld\n", name.c_str(), count);
    std::fprintf(file, "allocated %zu\n", used);
    std::fclose(file);
  }
  size_t memory() const { return static_cast<size_t>(setting("FAKE_CUDA_MEMORY", 1L << 32)); }
};
Machine &machine() {
  static Machine instance;
  return instance;
}
void called(const char *name) { ++machine().calls[name]; }
thread_local int contexts = 0; ///< on the thread's stack of current ones
int lostOr(int status) {
  return contexts == 0 ? kInvalidContext : machine().lost ? kLaunchFailed : status;
}

/// The text of PTX, or of what stands for the PTX and machine code of a fatbin; empty: no such
/// code.
std::string codeOf(const void *image) {
  const char *text = static_cast<const char *>(image);
  if (std::strncmp(text, "\x50\xed\x55\xba", 4) == 0) {
    const char *path = std::getenv("FAKE_CUDA_IMAGE");
    std::ostringstream found;
    if (path)
      found << std::ifstream(path).rdbuf();
    return found.str();
  }
  bool isPtx =
      std::strncmp(text, "//", 2) == 0 || std::strncmp(text, ".version", 8) == 0 || text[0] == '\n';
  return isPtx ? text : "";
}

bool runLaunch(const FakeLaunch &launch) {
  Machine &m = machine();
  if (++m.launches == setting("FAKE_CUDA_FAIL", 0))
    m.lost = true;
  if (m.lost)
    return true; // launches are asynchronous: the next one that waits hears of it
  auto report = simt::launch(m.device, launch.function->module, launch.function->name,
                             launch.options, launch.arguments);
  if (!report || !report->findings.empty()) {
    std::fprintf(stderr, "fake driver: %s\n",
                 report ? report->findings.front().message.c_str()
                        : report.error().message.c_str());
    m.lost = true;
  }
  return true;
}

} // namespace

extern "C" {

/// For FakeNccl.cpp: work(argument) behind all that the stream has, again and again until it is
/// not 0; now, or whenever the graph that is being captured is launched. 1: it is captured.
int fakeCudaEnqueue(FakeStream *stream, int (*work)(void *), void *argument) {
  Work added = [work, argument] { return machine().lost || work(argument) != 0; };
  if (stream->capturing) {
    stream->capturing->works.push_back(std::move(added));
    return 1;
  }
  stream->add(std::move(added));
  return 0;
}
void fakeCudaRead(void *to, const void *from, size_t bytes) {
  (void)machine().device.copyOut(to, reinterpret_cast<uint64_t>(from), bytes);
}
void fakeCudaWrite(void *to, const void *from, size_t bytes) {
  (void)machine().device.copyIn(reinterpret_cast<uint64_t>(to), from, bytes);
}

int cuInit(unsigned) { return setting("FAKE_CUDA_DEVICES", 1) ? kSuccess : kNoDevice; }
int cuDriverGetVersion(int *version) {
  *version = static_cast<int>(setting("FAKE_CUDA_VERSION", 13000));
  return kSuccess;
}
int cuDeviceGetCount(int *count) {
  *count = static_cast<int>(setting("FAKE_CUDA_DEVICES", 1));
  return kSuccess;
}
int cuDeviceGet(int *device, int number) {
  *device = number;
  return kSuccess;
}
int cuDeviceGetName(char *name, int length, int) {
  std::snprintf(name, static_cast<size_t>(length), "Fake GPU");
  return kSuccess;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  int capability = static_cast<int>(setting("FAKE_CUDA_CAPABILITY", 80));
  *value = attribute == 75 ? capability / 10 : attribute == 76 ? capability % 10 : 163 * 1024;
  return kSuccess;
}
int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &machine();
  return kSuccess;
}
int cuDevicePrimaryCtxRelease_v2(int) { return kSuccess; }
int cuCtxPushCurrent_v2(void *) {
  ++contexts;
  return kSuccess;
}
int cuCtxPopCurrent_v2(void **context) {
  if (contexts == 0)
    return kInvalidContext;
  --contexts;
  *context = &machine();
  return kSuccess;
}
int cuMemGetInfo_v2(size_t *free, size_t *total) {
  *total = machine().memory();
  *free = *total - machine().used;
  return lostOr(kSuccess);
}
int cuMemAlloc_v2(unsigned long long *address, size_t bytes) {
  Machine &m = machine();
  if (bytes > m.memory() - m.used)
    return kOutOfMemory;
  auto made = m.device.allocate(bytes, "allocation");
  if (!made)
    return kOutOfMemory;
  *address = *made;
  m.allocations[*address] = bytes;
  m.used += bytes;
  return lostOr(kSuccess);
}
int cuMemFree_v2(unsigned long long address) {
  Machine &m = machine();
  auto found = m.allocations.find(address);
  if (found == m.allocations.end())
    return kInvalidValue;
  m.used -= found->second;
  m.allocations.erase(found);
  (void)m.device.free(address);
  return lostOr(kSuccess);
}
int cuMemAllocHost_v2(void **pointer, size_t bytes) {
  *pointer = std::malloc(bytes);
  machine().pinned[*pointer] = bytes;
  return lostOr(kSuccess);
}
int cuMemFreeHost(void *pointer) {
  machine().pinned.erase(pointer);
  std::free(pointer);
  return lostOr(kSuccess);
}
int cuMemcpyHtoDAsync_v2(unsigned long long to, const void *from, size_t bytes, FakeStream *s) {
  called("cuMemcpyHtoDAsync");
  machine().calls["bytesUp"] += static_cast<long>(bytes);
  if (s->capturing)
    return kNotPermitted;
  if (s->waiting.empty())
    return lostOr(machine().device.copyIn(to, from, bytes) ? kSuccess : kInvalidValue);
  s->add([=] { return machine().device.copyIn(to, from, bytes) || true; });
  return lostOr(kSuccess);
}
int cuMemcpyDtoHAsync_v2(void *to, unsigned long long from, size_t bytes, FakeStream *s) {
  called("cuMemcpyDtoHAsync");
  const auto size = static_cast<long>(bytes);
  machine().calls["bytesDown"] += size;
  machine().calls["bytesToPageable"] += machine().pinned.contains(to) ? 0 : size;
  if (s->capturing)
    return kNotPermitted;
  s->finish(); // the host's memory may be pageable
  return lostOr(machine().device.copyOut(to, from, bytes) ? kSuccess : kInvalidValue);
}
int cuMemcpyDtoDAsync_v2(unsigned long long to, unsigned long long from, size_t bytes,
                         FakeStream *s) {
  called("cuMemcpyDtoDAsync");
  if (s->capturing)
    return kNotPermitted;
  s->finish();
  std::vector<char> data(bytes);
  Machine &m = machine();
  ++m.launches; // it takes as long as one
  bool done = m.device.copyOut(data.data(), from, bytes) && m.device.copyIn(to, data.data(), bytes);
  return lostOr(done ? kSuccess : kInvalidValue);
}
int cuMemsetD8Async(unsigned long long to, unsigned char value, size_t bytes, FakeStream *) {
  return lostOr(machine().device.fill(to, value, bytes) ? kSuccess : kInvalidValue);
}
int cuModuleLoadDataEx(FakeModule **module, const void *image, unsigned count, int *options,
                       void **values) {
  called("cuModuleLoadDataEx");
  if (int status = lostOr(kSuccess); status != kSuccess)
    return status;
  std::string text = codeOf(image);
  if (text.empty())
    return kNoBinaryForGpu;
  auto parsed = simt::Module::parse(text, "kernels.ptx");
  if (parsed) {
    *module = new FakeModule{*parsed, {}};
    return kSuccess;
  }
  char *log = nullptr;
  size_t size = 0;
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == 5)
      log = static_cast<char *>(values[i]);
    else if (options[i] == 6)
      size = reinterpret_cast<size_t>(values[i]);
  if (log)
    std::snprintf(log, size, "%s", parsed.error().message.c_str());
  return kInvalidPtx;
}
int cuModuleUnload(FakeModule *module) {
  delete module;
  return lostOr(kSuccess);
}
int cuModuleGetFunction(FakeFunction **function, FakeModule *module, const char *name) {
  if (!module->module->find(name))
    return kNotFound;
  auto &known = module->functions[name];
  if (!known)
    known = std::make_unique<FakeFunction>(FakeFunction{module->module, name});
  *function = known.get();
  return lostOr(kSuccess);
}
int cuFuncGetAttribute(int *value, int attribute, FakeFunction *function) {
  if (attribute != 5)
    return kInvalidValue;
  *value = std::atoi(function->module->target().substr(std::strlen("sm_")).data());
  return lostOr(kSuccess);
}
int cuFuncSetAttribute(FakeFunction *function, int attribute, int value) {
  if (attribute != 8 || value > 163 * 1024)
    return kInvalidValue;
  function->sharedBytes = value;
  return lostOr(kSuccess);
}
int cuLaunchKernelEx(const FakeLaunchConfig *config, FakeFunction *function, void **parameters,
                     void **) {
  called("cuLaunchKernelEx");
  FakeStream *stream = config->stream;
  const unsigned shared = config->sharedBytes;
  if (contexts == 0)
    return kInvalidContext;
  if (static_cast<int>(shared) > std::max(function->sharedBytes, 48 * 1024))
    return kInvalidValue;
  FakeLaunch launch{function, {}, {}};
  launch.options.grid = config->grid;
  launch.options.block = config->block;
  launch.options.dynamicSharedBytes = shared;
  const simt::KernelInfo *info = function->module->find(function->name);
  for (size_t i = 0; i < info->parameters.size(); ++i)
    launch.arguments.addBytes(parameters[i], info->parameters[i].bytes);
  Work work = [launch = std::move(launch)] { return runLaunch(launch); };
  if (stream->capturing)
    stream->capturing->works.push_back(std::move(work));
  else
    stream->add(std::move(work));
  return kSuccess;
}
int cuStreamCreate(FakeStream **stream, unsigned) {
  *stream = new FakeStream();
  return lostOr(kSuccess);
}
int cuStreamDestroy_v2(FakeStream *stream) {
  delete stream;
  return kSuccess;
}
int cuStreamSynchronize(FakeStream *stream) {
  if (stream->capturing)
    return kCaptureUnsupported;
  stream->finish();
  return lostOr(kSuccess);
}
int cuStreamQuery(FakeStream *stream) {
  if (stream->capturing)
    return kCaptureUnsupported;
  stream->advance();
  return lostOr(stream->waiting.empty() ? kSuccess : kNotReady);
}
int cuStreamBeginCapture_v2(FakeStream *stream, int) {
  called("cuStreamBeginCapture");
  if (stream->capturing)
    return kCaptureUnsupported;
  stream->capturing = std::make_unique<FakeGraph>();
  return lostOr(kSuccess);
}
int cuStreamEndCapture(FakeStream *stream, FakeGraph **graph) {
  *graph = stream->capturing.release();
  return lostOr(kSuccess);
}
int cuGraphInstantiateWithFlags(FakeGraph **exec, FakeGraph *graph, unsigned long long) {
  *exec = new FakeGraph(*graph);
  return kSuccess;
}
int cuGraphLaunch(FakeGraph *exec, FakeStream *stream) {
  called("cuGraphLaunch");
  if (contexts == 0)
    return kInvalidContext;
  for (const Work &work : exec->works)
    stream->add(work);
  return kSuccess;
}
int cuGraphExecDestroy(FakeGraph *exec) {
  delete exec;
  return kSuccess;
}
int cuGraphDestroy(FakeGraph *graph) {
  delete graph;
  return kSuccess;
}
int cuEventCreate(FakeEvent **event, unsigned) {
  *event = new FakeEvent();
  return kSuccess;
}
int cuEventDestroy_v2(FakeEvent *event) {
  delete event;
  return kSuccess;
}
int cuEventRecord(FakeEvent *event, FakeStream *) {
  // Each launch, and each copy within the device, takes a millisecond.
  event->time = static_cast<double>(machine().launches);
  return lostOr(kSuccess);
}
int cuEventSynchronize(FakeEvent *) { return lostOr(kSuccess); }
int cuEventElapsedTime(float *milliseconds, FakeEvent *from, FakeEvent *to) {
  *milliseconds = static_cast<float>(to->time - from->time);
  return kSuccess;
}
int cuGetErrorName(int status, const char **name) {
  *name = status == kLaunchFailed  ? "CUDA_ERROR_LAUNCH_FAILED"
          : status == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY"
                                   : "CUDA_ERROR";
  return kSuccess;
}
int cuGetErrorString(int, const char **text) {
  *text = "as the test wants it";
  return kSuccess;
}

} // extern "C"

// What is called is declared in CudaDriver.h, which CudaAbiTest.cpp compares with NVIDIA's header.
#define EASYQUANT_CHECK(symbol, name, parameters)                                                  \
  static_assert(                                                                                   \
      kSameAbi<decltype(symbol), std::remove_pointer_t<decltype(runtime::cuda::Driver::name)>>,    \
      #symbol " is not defined as CudaDriver.h declares it");
EASYQUANT_CUDA_FUNCTIONS(EASYQUANT_CHECK)
