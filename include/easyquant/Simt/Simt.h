//===- Simt.h - Functional simulator of PTX kernels ----------- -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Executes kernels given as PTX text on the host, with checks that a GPU does not make. Warps have
// 32 lanes under an active mask; lanes that went apart meet again at the lowest program counter;
// blocks run one after another, so results are the same in every run. What each instruction does
// follows NVIDIA's "PTX ISA"; see docs/guide/simulator.md for what is simulated and how exactly.
//
//   auto module = simt::Module::parse(text, "kernels.ptx");
//   simt::Device device;
//   uint64_t x = *device.allocate(4096);
//   device.copyIn(x, host, 4096);
//   simt::Arguments arguments;
//   arguments.add(x).add(1024);
//   auto report = simt::launch(device, **module, "scale", {{4, 1, 1}, {256, 1, 1}}, arguments);
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SIMT_SIMT_H
#define EASYQUANT_SIMT_SIMT_H

#include "easyquant/Support/Json.h"
#include "easyquant/Support/Result.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::simt {

namespace ast {
struct Module;
} // namespace ast
struct DecodedKernel;
class Memory;

/// One parameter of a kernel: its name, PTX type ("u64", "f32", "b8") and size.
struct KernelParameterInfo {
  std::string name, type;
  uint32_t bytes, alignment;
  uint32_t pointeeAlignment; ///< of what a pointer points to, as the kernel claims (`.ptr .align`)
};

struct KernelInfo {
  std::string name;
  std::vector<KernelParameterInfo> parameters;
  std::array<uint32_t, 3> maxThreads;      ///< `.maxntid`; zeros: not said.
  std::array<uint32_t, 3> requiredThreads; ///< `.reqntid`; zeros: not said.
};

/// PTX text, parsed. Kernels are decoded when they are first launched.
class Module {
public:
  /// `name` is the file's, for messages. Errors name line and text.
  static Result<std::shared_ptr<const Module>> parse(std::string text, std::string name);
  ~Module();
  Module(const Module &) = delete;

  const std::vector<KernelInfo> &kernels() const { return kernelInfos; }
  /// Null if there is none of that name.
  const KernelInfo *find(std::string_view kernel) const;
  /// The `.target`, as sm_80.
  std::string_view target() const;
  const ast::Module &syntax() const { return *tree; }

private:
  Module();
  std::unique_ptr<ast::Module> tree;
  std::vector<KernelInfo> kernelInfos;
};

/// Memory of a simulated GPU, and the global variables of the modules that ran on it.
class Device {
public:
  Device();
  ~Device();
  Device(Device &&) noexcept;

  /// Address of `bytes` bytes, aligned to 256. They count as uninitialised until written. `name`
  /// stands in messages about accesses that miss it.
  Result<uint64_t> allocate(size_t bytes, std::string name = {});
  Result<void> free(uint64_t address);
  /// The range has to lie in one allocation.
  Result<void> copyIn(uint64_t address, const void *host, size_t bytes);
  Result<void> copyOut(void *host, uint64_t address, size_t bytes) const;
  Result<void> fill(uint64_t address, uint8_t value, size_t bytes);
  /// How many of the bytes nobody has written since they were allocated.
  Result<size_t> uninitialisedBytes(uint64_t address, size_t bytes) const;
  /// Address and size of a `.global` or `.const` variable of a module.
  Result<std::pair<uint64_t, size_t>> variable(const std::shared_ptr<const Module> &module,
                                               std::string_view name);

  /// For launch().
  struct State;
  State &state() { return *pimpl; }

private:
  std::unique_ptr<State> pimpl;
};

/// The bytes of a kernel's parameters, each aligned to its size.
class Arguments {
public:
  template <typename T> Arguments &add(const T &value) { return addBytes(&value, sizeof(T)); }
  Arguments &addBytes(const void *data, size_t bytes) {
    values.emplace_back(static_cast<const std::byte *>(data),
                        static_cast<const std::byte *>(data) + bytes);
    return *this;
  }
  std::vector<std::vector<std::byte>> values;
};

enum class Checks {
  None, ///< Only what would make the simulation itself impossible: bounds, alignment, traps.
  All,  ///< Also uninitialised reads, races, asynchronous copies, divergent barriers.
};

struct LaunchOptions {
  std::array<uint32_t, 3> grid = {1, 1, 1}, block = {1, 1, 1};
  uint32_t dynamicSharedBytes = 0;
  Checks checks = Checks::All;
  bool memoryStatistics = true; ///< Count sectors and bank conflicts.
  bool backwards = false;       ///< Blocks begin in reverse: a GPU promises no order.
  uint64_t maxInstructions = 0; ///< Warp instructions of the launch; 0: no limit.
  std::FILE *output = stdout;   ///< Where printf in the kernel writes.
};

/// What a check found.
struct Finding {
  enum Kind {
    OutOfBounds,
    Misaligned,
    Uninitialised,
    Race,
    AsyncRead,
    DivergentBarrier,
    Deadlock,
    ReadOnly,
    Trap,
    InstructionLimit,
    BadOperand
  };
  Kind kind;
  uint32_t line;                         ///< The line in the PTX text.
  std::array<uint32_t, 3> block, thread; ///< The first that it happened to.
  uint64_t count;                        ///< (thread, access) pairs at this instruction.
  std::string message;                   ///< All of it, for people.
};
const char *nameOf(Finding::Kind kind);

/// Numbers of one instruction of the kernel.
struct InstructionStatistics {
  uint32_t line;
  std::string_view text;
  const char *opClass;
  uint64_t issued = 0, lanes = 0;         ///< Warp instructions; lanes that took part.
  uint64_t requests = 0, bytes = 0;       ///< Memory requests of warps; bytes asked for.
  uint64_t sectors = 0;                   ///< Global and local: 32-byte sectors touched.
  uint64_t wavefronts = 0, conflicts = 0; ///< Shared: passes; passes more than the least.
};

struct Statistics {
  uint64_t warpInstructions = 0, laneInstructions = 0;
  uint64_t barriers = 0;          ///< Block barriers completed.
  uint64_t divergentBranches = 0; ///< Branches at which a warp went apart.
  uint64_t blocks = 0, threads = 0;
  uint32_t sharedBytes = 0, localBytesPerThread = 0;
  std::map<std::string, uint64_t> byClass; ///< Warp instructions.
  struct Traffic {
    uint64_t requests = 0, bytes = 0, sectors = 0, wavefronts = 0, conflicts = 0;
  };
  /// "global load", "global store", "global atomic", "shared load", ..., "local load", ...
  std::map<std::string, Traffic> traffic;
  std::vector<InstructionStatistics> instructions; ///< Those that ran, in the order of the text.

  Json::Object toJson() const;
};

struct LaunchReport {
  Statistics statistics;
  std::vector<Finding> findings; ///< One an instruction and kind; the first hundred.
  bool completed = true;         ///< False: a finding ended the launch; results are not whole.
};

/// Runs a kernel to its end. Errors: no such kernel, arguments that do not fit, an instruction that
/// the simulator does not know (quoted), a shape that no GPU takes. What goes wrong while running
/// is a finding.
Result<LaunchReport> launch(Device &device, const std::shared_ptr<const Module> &module,
                            std::string_view kernel, const LaunchOptions &options,
                            const Arguments &arguments);

} // namespace easyquant::simt

#endif // EASYQUANT_SIMT_SIMT_H
