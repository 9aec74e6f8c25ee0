//===- Launch.cpp - One launch from its arguments to its report -----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Checks.h"
#include "Decoder.h"
#include "Host.h"
#include "MBarrier.h"

#include <algorithm>
#include <cstring>
#include <deque>

using namespace easyquant;
using namespace easyquant::simt;

/// Warp instructions that a warp runs before the next one of its block gets its turn.
static constexpr uint64_t kQuantum = 1 << 14;
/// Rounds of quanta after which a block that does not end lets other blocks run beside it.
static constexpr unsigned kPatience = 1 << 8;
static constexpr size_t kResidentBlocks = 64;
static constexpr size_t kMostFindings = 100;

Launch::Launch(Device::State &memory, const DecodedKernel &decoded, const LaunchOptions &options,
               std::vector<std::byte> parameters)
    : memory(memory), decoded(decoded), options(options), parameters(std::move(parameters)),
      perInstruction(decoded.code.size()) {
  if (options.checks == Checks::All) {
    checker = std::make_unique<Checker>(*this);
    for (auto &allocation : memory.allocations)
      allocation->shadow.reset();
  }
}
Launch::~Launch() = default;

LaunchReport Launch::run() {
  LaunchReport report;
  std::deque<std::unique_ptr<Block>> active;
  uint64_t blocks = uint64_t(options.grid[0]) * options.grid[1] * options.grid[2], next = 0;
  try {
    while (next < blocks || !active.empty()) {
      if (active.empty() || (next < blocks && active.size() < kResidentBlocks)) {
        const uint64_t number = options.backwards ? blocks - 1 - next : next;
        active.push_front(std::make_unique<Block>(*this, placeIn(options.grid, number), number));
        ++next;
      }
      bool ended = false;
      for (unsigned round = 0; round < kPatience && !ended; ++round) {
        ended = active.front()->run(kQuantum);
        if (options.maxInstructions && executed > options.maxInstructions) {
          const Warp &warp = *active.front()->warps[0];
          this->report(
              Finding::InstructionLimit, warp.pending.empty() ? warp.pc : warp.pending[0].pc,
              *active.front(), 0,
              fmt::format("the limit of {} warp instructions is reached: an endless loop, or "
                          "a limit too low",
                          options.maxInstructions));
          throw Stop();
        }
      }
      if (ended) {
        active.pop_front();
      } else { // it may wait for another block
        active.push_back(std::move(active.front()));
        active.pop_front();
      }
    }
  } catch (const Stop &) {
    report.completed = false;
  }
  report.statistics = statistics();
  std::sort(findings.begin(), findings.end(), [](const Finding &a, const Finding &b) {
    return std::pair(a.line, a.kind) < std::pair(b.line, b.kind);
  });
  report.findings = std::move(findings);
  for (auto &allocation : memory.allocations)
    allocation->shadow.reset();
  return report;
}

std::string Launch::quote(uint32_t pc) const {
  uint32_t line = decoded.code[pc].line;
  return fmt::format("line {}: {}", line, decoded.module->line(line));
}

void Launch::report(Finding::Kind kind, uint32_t pc, const Block &block, unsigned thread,
                    const std::string &what, uint64_t count) {
  auto [known, isNew] = findingIndex.try_emplace({kind, pc}, findings.size());
  if (!isNew) {
    if (known->second < findings.size())
      findings[known->second].count += count;
    return;
  }
  if (findings.size() >= kMostFindings)
    return;
  auto at = placeIn(options.block, thread);
  Finding finding{kind, decoded.code[pc].line, block.id, at, count, {}};
  finding.message =
      fmt::format("{}: {}:{}: {}\n    block ({},{},{}) thread ({},{},{}) {}", nameOf(kind),
                  decoded.module->name, finding.line, decoded.module->line(finding.line),
                  block.id[0], block.id[1], block.id[2], at[0], at[1], at[2], what);
  findings.push_back(std::move(finding));
}

// ---- the way in --------------------------------------------------------------------------------

static Result<std::vector<std::byte>>
packArguments(const DecodedKernel &decoded, const KernelInfo &info, const Arguments &arguments) {
  if (arguments.values.size() != info.parameters.size()) {
    std::string expected;
    for (const KernelParameterInfo &parameter : info.parameters)
      expected +=
          fmt::format("{}.{} {}", expected.empty() ? "" : ", ", parameter.type, parameter.name);
    return makeError(ErrorCode::InvalidArgument, "{}: {} arguments given, but it takes {}: ({})",
                     info.name, arguments.values.size(), info.parameters.size(), expected);
  }
  std::vector<std::byte> bytes(decoded.parameterBytes);
  for (size_t i = 0; i < arguments.values.size(); ++i) {
    const auto &value = arguments.values[i];
    const KernelParameter &place = decoded.parameters[i];
    if (value.size() != place.bytes)
      return makeError(ErrorCode::InvalidArgument,
                       "{}: argument {} has {} bytes, but parameter {} is .{} of {} bytes",
                       info.name, i + 1, value.size(), info.parameters[i].name,
                       info.parameters[i].type, place.bytes);
    if (const uint32_t align = info.parameters[i].pointeeAlignment; align > 1) {
      uint64_t address = 0;
      std::memcpy(&address, value.data(), std::min(value.size(), sizeof(address)));
      if (address % align != 0)
        return makeError(ErrorCode::InvalidArgument,
                         "{}: argument {} ({}) is {:#x}, but the kernel claims a multiple of {}",
                         info.name, i + 1, info.parameters[i].name, address, align);
    }
    std::copy(value.begin(), value.end(), bytes.begin() + place.offset);
  }
  return bytes;
}

static Result<void> checkShape(const KernelInfo &info, const LaunchOptions &options,
                               const DecodedKernel &decoded) {
  uint64_t threads = uint64_t(options.block[0]) * options.block[1] * options.block[2];
  if (!threads || threads > 1024 || options.block[0] > 1024 || options.block[1] > 1024 ||
      options.block[2] > 64)
    return makeError(ErrorCode::InvalidArgument,
                     "block {},{},{}: a block has 1 to 1024 threads, at most 1024,1024,64",
                     options.block[0], options.block[1], options.block[2]);
  if (!options.grid[0] || !options.grid[1] || !options.grid[2] || options.grid[0] > 0x7fffffffu ||
      options.grid[1] > 65535 || options.grid[2] > 65535)
    return makeError(
        ErrorCode::InvalidArgument,
        "grid {},{},{}: a grid has at least one block and at most 2147483647,65535,65535",
        options.grid[0], options.grid[1], options.grid[2]);
  uint64_t most = uint64_t(info.maxThreads[0]) * info.maxThreads[1] * info.maxThreads[2];
  if (most && threads > most)
    return makeError(ErrorCode::InvalidArgument, "{}: {} threads a block, but .maxntid allows {}",
                     info.name, threads, most);
  if (info.requiredThreads[0] && info.requiredThreads != options.block)
    return makeError(ErrorCode::InvalidArgument, "{}: block {},{},{}, but .reqntid is {},{},{}",
                     info.name, options.block[0], options.block[1], options.block[2],
                     info.requiredThreads[0], info.requiredThreads[1], info.requiredThreads[2]);
  uint64_t shared = uint64_t(decoded.staticSharedBytes) + options.dynamicSharedBytes;
  if (shared > 227 * 1024)
    return makeError(ErrorCode::OutOfRange,
                     "{}: {} bytes of shared memory ({} static), but no GPU has more than {}",
                     info.name, shared, decoded.staticSharedBytes, 227 * 1024);
  return {};
}

Result<LaunchReport> simt::launch(Device &device, const std::shared_ptr<const Module> &module,
                                  std::string_view kernel, const LaunchOptions &options,
                                  const Arguments &arguments) {
  const KernelInfo *info = module->find(kernel);
  if (!info) {
    std::string names;
    for (const KernelInfo &known : module->kernels())
      names += "\n  " + known.name;
    return makeError(ErrorCode::NotFound, "{}: no kernel '{}'. Its kernels:{}",
                     module->syntax().name, kernel, names.empty() ? " none" : names);
  }
  if (const char *missing = missingOnHost())
    return makeError(ErrorCode::Unsupported, "the PTX simulator needs {}", missing);
  auto image = device.state().load(module);
  if (!image)
    return Unexpected(image.error());
  std::unique_ptr<DecodedKernel> &decoded = (*image)->decodedKernels[info->name];
  if (!decoded) {
    auto made = decodeKernel(**image, info->name);
    if (!made)
      return Unexpected(made.error());
    decoded = std::move(*made);
  }
  if (auto fits = checkShape(*info, options, *decoded); !fits)
    return Unexpected(fits.error());
  auto packed = packArguments(*decoded, *info, arguments);
  if (!packed)
    return Unexpected(packed.error());
  try {
    return Launch(device.state(), *decoded, options, std::move(*packed)).run();
  } catch (const std::bad_alloc &) {
    return makeError(ErrorCode::OutOfRange, "{}: the simulation needs more memory than there is",
                     info->name);
  }
}
