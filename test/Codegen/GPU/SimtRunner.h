//===- SimtRunner.h - GPU kernels compiled and simulated --------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Kernel tests take the road that artifacts take, spec to PTX, and run the PTX in the simulator
// with all its checks: a test fails on anything that they find.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_CODEGEN_GPU_SIMTRUNNER_H
#define EASYQUANT_TEST_CODEGEN_GPU_SIMTRUNNER_H

#include "easyquant/Codegen/GPU/Attention.h"
#include "easyquant/Codegen/GPU/BlockScaled.h"
#include "easyquant/Codegen/GPU/Choose.h"
#include "easyquant/Codegen/GPU/Embedding.h"
#include "easyquant/Codegen/GPU/Experts.h"
#include "easyquant/Codegen/GPU/F32Linear.h"
#include "easyquant/Codegen/GPU/WeightOnly.h"
#include "easyquant/Simt/Simt.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

namespace easyquant::gpu {

/// Kernels of a chip, compiled together when the first one runs.
class KernelLibrary {
public:
  explicit KernelLibrary(ChipId id = ChipId::SM80);
  ~KernelLibrary();

  const Chip &target() const;
  /// Adds a kernel, unless it is there.
  template <typename Spec> Description add(const Spec &spec) {
    return getOrEmit(kernels(), spec, target());
  }
  template <typename Spec, typename Kernel> void add(const Spec &spec, const Kernel &kernel) {
    getOrEmit(kernels(), spec, kernel);
  }
  /// All kernels of the spec, for ever more rows. To compile them takes longer than to run them: a
  /// test that runs some adds those.
  std::vector<LinearKernel> add(const LinearSpec &spec) {
    return addAll(spec, linearKernels(spec, target()));
  }
  std::vector<WeightOnlyKernel> add(const WeightOnlySpec &spec) {
    return addAll(spec, weightOnlyKernels(spec, target()));
  }
  std::vector<BlockScaledKernel> add(const BlockScaledSpec &spec) {
    return addAll(spec, blockScaledKernels(spec, target()));
  }
  std::vector<F32LinearKernel> add(const F32LinearSpec &spec) {
    return addAll(spec, f32LinearKernels(spec, target()));
  }
  AttentionLaunches add(const AttentionSpec &spec);
  Description addRestore(const AttentionSpec &spec) { return getOrEmitRestore(kernels(), spec); }

  /// PTX of all kernels added so far; none can be added afterwards.
  const std::string &ptx();
  std::shared_ptr<const simt::Module> module();

private:
  template <typename Spec, typename Kernel>
  std::vector<Kernel> addAll(const Spec &spec, std::vector<Kernel> kernels) {
    for (const Kernel &kernel : kernels)
      add(spec, kernel);
    return kernels;
  }
  mlir::gpu::GPUModuleOp kernels();

  struct State;
  std::unique_ptr<State> state;
};

/// Device memory of exactly so many elements: an access beyond them is out of bounds.
template <typename T> class DeviceBuffer {
public:
  DeviceBuffer(simt::Device &device, size_t count, std::string name = "buffer")
      : device(device), count(count),
        where(device.allocate(std::max<size_t>(1, count) * sizeof(T), std::move(name)).value()) {}
  DeviceBuffer(simt::Device &device, const std::vector<T> &values, std::string name = "input")
      : DeviceBuffer(device, values.size(), std::move(name)) {
    EXPECT_TRUE(device.copyIn(where, values.data(), count * sizeof(T)));
  }
  uint64_t address() const { return where; }
  std::vector<T> read() const {
    std::vector<T> values(count);
    EXPECT_TRUE(device.copyOut(values.data(), where, count * sizeof(T)));
    return values;
  }
  /// Elements that nobody has written.
  size_t unwritten() const {
    return device.uninitialisedBytes(where, count * sizeof(T)).value() / sizeof(T);
  }

private:
  simt::Device &device;
  size_t count;
  uint64_t where;
};

/// A sequence without pages, window or state.
eq_sequence sequenceOf(int64_t rows, int64_t position, int64_t firstRow = 0);

/// The tables of a step, but for the pieces.
struct StepInput {
  StepInput(simt::Device &device, std::vector<eq_sequence> step);
  /// All rows are those of one sequence.
  StepInput(simt::Device &device, int64_t rows, int64_t position)
      : StepInput(device, {sequenceOf(rows, position)}) {}
  std::vector<eq_sequence> step;
  DeviceBuffer<eq_sequence> sequences;
  DeviceBuffer<formats::RowPlace> rowPlaces;
};
/// The pieces of a step and behind them no more: their number, then themselves.
struct PieceInput {
  PieceInput(simt::Device &device, const formats::PieceCut &cut,
             const std::vector<eq_sequence> &step);
  int64_t places = 0;
  DeviceBuffer<formats::Piece> pieces;
};

/// The value of a parameter.
struct Argument {
  template <typename T> Argument(const DeviceBuffer<T> &buffer) : value(buffer.address()) {}
  explicit Argument(uint64_t address) : value(address) {}
  Argument(int value) : value(static_cast<int32_t>(value)) {}
  Argument(int64_t value) : value(static_cast<int32_t>(value)) {}
  Argument(float value) : value(value) {}
  std::variant<uint64_t, int32_t, float> value;
};

/// Runs a kernel on `rows` rows; `arguments` by the names of the parameters, without `rows`.
simt::Statistics run(simt::Device &device, KernelLibrary &library, const Description &kernel,
                     int64_t rows, const std::map<std::string, Argument> &arguments,
                     simt::Checks checks = simt::Checks::All, bool backwards = false);

/// Shared memory is read and written without bank conflicts, nothing is in local memory, and what
/// cp.async copies comes in full sectors: so many bytes.
uint64_t expectSmoothCopies(const simt::Statistics &statistics);

/// float to the bits of f16 or bf16, to nearest even, and back.
uint16_t toHalf(float value, Float type);
float fromHalf(uint16_t bits, Float type);

} // namespace easyquant::gpu

#endif // EASYQUANT_TEST_CODEGEN_GPU_SIMTRUNNER_H
