//===- SliceProgram.h - Slices of a model, compiled and run -----*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calibrated methods ask what a part of a layer computes: for statistics, or with a candidate in
// the place of a weight. A slice goes the way of every model (launches, LLVM, a
// shared object) to code for this machine, and takes its weights at run time as float matrices.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_CALIBRATION_SLICEPROGRAM_H
#define EASYQUANT_CALIBRATION_SLICEPROGRAM_H

#include "easyquant/Calibration/ModelConstants.h"
#include "easyquant/Calibration/Slice.h"
#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Support/MappedMemory.h"

#include <functional>
#include <map>
#include <memory>
#include <span>

namespace easyquant::calibration {

class HostProgram; // a loaded shared object

struct EngineOptions {
  /// Threads of the compiled code; 0: one per core. Results are the same bits for any number.
  unsigned threads = 0;
  /// The longest sequence.
  int64_t length = 2048;
  /// Tokens that go through a slice at a time: longer sequences are run in chunks of it, but for
  /// slices that sum over tokens.
  int64_t maxRows = 512;
  /// Instruction set; empty: the best of this machine.
  std::string isa;
};

/// Errors: OutOfRange (there is not that much memory).
Result<Buffer> allocateMemory(int64_t bytes);

/// Memory that the programs of one compiler use in turn.
struct Workspace {
  Buffer arena, cache;
};

/// Called for every chunk that runs through an equant.observe, in the order of execution. `rows`
/// are the activations of tokens `position` .. of the sequence and live as long as the call.
using Observer = llvm::function_ref<void(const Observation &observation, int64_t position,
                                         numerics::ConstMatrix rows)>;

/// A compiled slice with its weights.
class SliceProgram {
public:
  llvm::ArrayRef<SliceWeight> weights() const { return slice.weights; }
  llvm::ArrayRef<Observation> observations() const { return slice.observations; }

  /// Reads every weight as the model has it; fails with a diagnostic that names the weight.
  mlir::LogicalResult load(const ModelConstants &constants);
  /// Replaces the weight `global`: N x K, or 1 x C for a vector. Errors: NotFound, InvalidArgument
  /// (another shape).
  Result<void> setWeight(llvm::StringRef global, numerics::ConstMatrix values);
  /// The memory of a weight in use, N x K (a vector: 1 x C, a rotation table: positions x D). A
  /// null matrix if the slice reads no such global.
  numerics::Matrix weight(llvm::StringRef global);

  /// Runs one sequence from its first token on. `inputs` are the slice's inputs that are
  /// activations, in order, T rows each; `tokens` is the one that is tokens, if one is. `outputs`
  /// get T rows each, or the shape of a weight, and may be none of the inputs. Errors:
  /// InvalidArgument (counts, rows or columns that do not fit, a sequence longer than
  /// EngineOptions::length). Nothing checks that values are finite.
  Result<void> run(llvm::ArrayRef<numerics::ConstMatrix> inputs,
                   llvm::ArrayRef<numerics::Matrix> outputs, Observer observer = nullptr,
                   std::span<const int32_t> tokens = {});

private:
  friend class SliceCompiler;
  SliceProgram() = default;
  Result<int64_t> check(llvm::ArrayRef<numerics::ConstMatrix> inputs,
                        llvm::ArrayRef<numerics::Matrix> outputs,
                        std::span<const int32_t> tokens) const;
  numerics::Matrix view(const SliceWeight &weight) const;

  OutlinedSlice slice; // without its module
  llvm::SmallVector<mlir::Type> inputTypes, outputTypes;
  Buffer weightMemory;
  std::shared_ptr<const HostProgram> program;
  std::shared_ptr<Workspace> workspace;
  EngineOptions options;
};

/// Compiles slices; slices that compute the same on other weights share their code.
class SliceCompiler {
public:
  /// Errors: Unsupported (this CPU runs none of the instruction sets), NotFound (no OpenMP
  /// runtime).
  static Result<SliceCompiler> create(const EngineOptions &options);
  SliceCompiler(SliceCompiler &&) noexcept;
  ~SliceCompiler();

  /// A program whose weights are zero: load them or set them. Fails with a diagnostic. The programs
  /// of one compiler share their memory: only one of them may run at a time.
  mlir::FailureOr<SliceProgram> compile(const Slice &slice);
  const EngineOptions &options() const { return settings; }
  /// How many different programs there are.
  size_t programs() const { return cache.size(); }

  /// What a pass that compiles slices depends on.
  static void getDependentDialects(mlir::DialectRegistry &registry);

private:
  SliceCompiler() = default;

  EngineOptions settings;
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>();
  std::map<std::string, std::shared_ptr<const HostProgram>> cache; ///< by the slice's text
};

} // namespace easyquant::calibration

#endif // EASYQUANT_CALIBRATION_SLICEPROGRAM_H
