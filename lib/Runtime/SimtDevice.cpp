//===- SimtDevice.cpp - A simulated GPU -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Device.h"
#include "easyquant/Simt/Simt.h"

#include <limits>
#include <mutex>
#include <vector>

using namespace easyquant;
using namespace easyquant::runtime;

/// A launch that takes so many warp instructions does not end: the largest kernels of the largest
/// models take a thousandth.
static constexpr uint64_t kMaxInstructions = 100'000'000'000;

namespace {

/// The simulator is one machine: whatever is done with it is done by one thread at a time.
class SimtDevice final : public Device {
public:
  SimtDevice(std::string chip, bool checks) : chip(std::move(chip)), checks(checks) {}

  std::string kind() const override { return "simt"; }
  std::string description() const override { return "simulated " + chip; }
  /// The host's memory is not for this process alone; allocate() says when it is not enough.
  Result<int64_t> freeBytes() const override { return std::numeric_limits<int64_t>::max(); }
  Result<uint64_t> allocate(int64_t bytes, std::string_view what) override {
    std::lock_guard lock(mutex);
    return device.allocate(static_cast<size_t>(bytes), std::string(what));
  }
  void free(uint64_t address) override {
    std::lock_guard lock(mutex);
    (void)device.free(address); // it came from allocate()
  }
  Result<void> load(const GpuCode &code, std::span<const LaunchKernel> given) override;
  Result<std::unique_ptr<Queue>> createQueue() override;

  Result<simt::LaunchReport> run(const DeviceLaunch &launch, bool measure);
  template <typename Body> auto exclusively(Body body) {
    std::lock_guard lock(mutex);
    return body(device);
  }

private:
  std::string chip;
  bool checks;
  std::mutex mutex;
  simt::Device device;
  std::shared_ptr<const simt::Module> module;
  std::vector<LaunchKernel> kernels;
};

class SimtQueue final : public Queue {
public:
  explicit SimtQueue(SimtDevice &device) : device(device) {}

  Result<void> upload(uint64_t to, const void *from, int64_t bytes) override {
    count(Phase::Load, bytes);
    return device.exclusively(
        [&](simt::Device &d) { return d.copyIn(to, from, static_cast<size_t>(bytes)); });
  }
  Result<void> download(void *to, uint64_t from, int64_t bytes) override {
    count(Phase::Sync, bytes);
    return device.exclusively(
        [&](simt::Device &d) { return d.copyOut(to, from, static_cast<size_t>(bytes)); });
  }
  Result<void> fill(uint64_t to, uint8_t value, int64_t bytes) override {
    return device.exclusively(
        [&](simt::Device &d) { return d.fill(to, value, static_cast<size_t>(bytes)); });
  }
  Result<void> copy(uint64_t to, uint64_t from, int64_t bytes) override;
  Result<void> launch(const DeviceLaunch &launch) override;
  Result<void> exchange(comm::Communicator &ranks, comm::Collective collective) override;
  Result<void> wait(comm::Communicator &) override { return {}; } // what is launched is done
  Result<void> startMeasuring() override {
    measuring = true;
    return {};
  }
  Result<PhaseCosts> costs() override { return counted; }

private:
  PhaseCost &of(Phase phase) { return counted[static_cast<size_t>(phase)]; }
  void count(Phase phase, int64_t bytes) {
    if (!measuring)
      return;
    ++of(phase).launches;
    of(phase).bytes += static_cast<uint64_t>(bytes);
  }

  SimtDevice &device;
  bool measuring = false;
  PhaseCosts counted{};
};

} // namespace

Result<void> SimtDevice::load(const GpuCode &code, std::span<const LaunchKernel> given) {
  auto parsed = simt::Module::parse(code.ptx, code.ptxName);
  if (!parsed)
    return Unexpected(parsed.error());
  for (const LaunchKernel &kernel : given) {
    const simt::KernelInfo *info = (*parsed)->find(kernel.name);
    if (!info)
      return makeError(ErrorCode::Corrupt,
                       "{}: has no kernel {}, which the program launches; compile the artifact "
                       "again",
                       code.ptxName, kernel.name);
    if (info->parameters.size() != kernel.parameters.size())
      return makeError(ErrorCode::Corrupt,
                       "{}: kernel {} takes {} parameters, found {} in the program; compile the "
                       "artifact again",
                       code.ptxName, kernel.name, info->parameters.size(),
                       kernel.parameters.size());
  }
  module = std::move(*parsed);
  kernels.assign(given.begin(), given.end());
  return {};
}

Result<simt::LaunchReport> SimtDevice::run(const DeviceLaunch &launch, bool measure) {
  std::lock_guard lock(mutex);
  const LaunchKernel &kernel = kernels[launch.kernel];
  simt::Arguments arguments;
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    if (kernel.parameters[i] == LaunchKernel::Parameter::Pointer)
      arguments.add(launch.arguments[i]);
    else
      arguments.add(static_cast<uint32_t>(launch.arguments[i]));
  }
  simt::LaunchOptions options;
  options.grid = launch.grid;
  options.block = {kernel.threads, 1, 1};
  options.dynamicSharedBytes = kernel.sharedBytes;
  options.checks = checks ? simt::Checks::All : simt::Checks::None;
  options.memoryStatistics = measure;
  options.maxInstructions = kMaxInstructions;
  return simt::launch(device, module, kernel.name, options, arguments);
}

Result<std::unique_ptr<Queue>> SimtDevice::createQueue() {
  return std::make_unique<SimtQueue>(*this);
}

Result<void> SimtQueue::copy(uint64_t to, uint64_t from, int64_t bytes) {
  count(Phase::Other, bytes);
  std::vector<std::byte> data(static_cast<size_t>(bytes));
  return device.exclusively([&](simt::Device &d) {
    return d.copyOut(data.data(), from, data.size()).and_then([&] {
      return d.copyIn(to, data.data(), data.size());
    });
  });
}

Result<void> SimtQueue::launch(const DeviceLaunch &launch) {
  Result<simt::LaunchReport> report = device.run(launch, measuring);
  if (!report)
    return makeError(report.error().code, "site '{}': {}", launch.site, report.error().message);
  if (!report->findings.empty())
    return makeError(ErrorCode::Corrupt,
                     "site '{}': the simulator found {} mistakes in its kernel, the first one: {}",
                     launch.site, report->findings.size(), report->findings.front().message);
  if (!measuring)
    return {};
  PhaseCost &cost = of(launch.phase);
  ++cost.launches;
  cost.instructions += report->statistics.warpInstructions;
  for (const auto &[kind, traffic] : report->statistics.traffic)
    if (kind.starts_with("global"))
      cost.bytes += traffic.bytes;
  return {};
}

/// Ranks work on memory of the host.
Result<void> SimtQueue::exchange(comm::Communicator &ranks, comm::Collective collective) {
  count(Phase::Comm, collective.bytes());
  const auto address = reinterpret_cast<uint64_t>(collective.data);
  std::vector<std::byte> staging(static_cast<size_t>(collective.bytes()));
  collective.data = staging.data();
  return device
      .exclusively(
          [&](simt::Device &d) { return d.copyOut(staging.data(), address, staging.size()); })
      .and_then([&] { return ranks.run(collective); })
      .and_then([&] {
        return device.exclusively(
            [&](simt::Device &d) { return d.copyIn(address, staging.data(), staging.size()); });
      });
}

Result<std::shared_ptr<Device>> easyquant::runtime::openSimtDevice(const std::string &chip,
                                                                   bool checks) {
  return std::make_shared<SimtDevice>(chip, checks);
}
