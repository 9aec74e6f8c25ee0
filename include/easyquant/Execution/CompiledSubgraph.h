//===- CompiledSubgraph.h - Subgraphs of a model, run -----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Calibrated methods ask what a part of a layer computes: for statistics, or with a candidate in
// the place of a weight. A subgraph goes the way of every model (launches, LLVM, a
// shared object) to code for this machine, and takes its weights at run time as float matrices.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_EXECUTION_COMPILEDSUBGRAPH_H
#define EASYQUANT_EXECUTION_COMPILEDSUBGRAPH_H

#include "easyquant/Execution/ModelConstants.h"
#include "easyquant/Execution/Subgraph.h"
#include "easyquant/Numerics/Matrix.h"
#include "easyquant/Support/MappedMemory.h"

#include <functional>
#include <map>
#include <memory>
#include <span>

namespace easyquant::execution {

class HostProgram; // a loaded shared object

struct EngineOptions {
  /// Threads of the compiled code; 0: one per core. Results are the same bits for any number.
  unsigned threads = 0;
  /// The longest sequence.
  int64_t length = 2048;
  /// Tokens that go through a subgraph at a time: longer sequences are run in chunks of it, but for
  /// subgraphs that sum over tokens.
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

/// Activations that an equant.observe shows. They live as long as the call.
struct ObservedRows {
  numerics::ConstMatrix rows;
  int64_t position = 0; ///< in the sequence, of the first token
  /// Where experts read them, row i is that of token position + order[i], and rows offsets[e] to
  /// offsets[e + 1] are those that chose expert e. Empty: row i is token position + i.
  std::span<const int32_t> order = {}, offsets = {};
};

/// Called for every chunk that runs through an equant.observe, in the order of execution.
using Observer = llvm::function_ref<void(const Observation &observation, const ObservedRows &rows)>;

/// A compiled subgraph with its weights.
class CompiledSubgraph {
public:
  llvm::ArrayRef<SubgraphWeight> weights() const { return subgraph.weights; }
  /// Elements of the weights of its linears: what one token multiplies.
  int64_t multiplications() const;
  llvm::ArrayRef<Observation> observations() const { return subgraph.observations; }

  /// Reads every weight as the model has it; fails with a diagnostic that names the weight.
  mlir::LogicalResult load(const ModelConstants &constants);
  /// Replaces the weight `global`: N x K, or 1 x C for a vector. Errors: NotFound, InvalidArgument
  /// (another shape).
  Result<void> setWeight(llvm::StringRef global, numerics::ConstMatrix values);
  /// The memory of a weight in use, N x K (a vector: 1 x C, a rotation table: positions x D). A
  /// null matrix if the subgraph reads no such global.
  numerics::Matrix weight(llvm::StringRef global);
  /// From here on the activations of Subgraph::roundings[number] are rounded by a scheme that
  /// numerics::roundsTokens knows; null: they are float, as after compiling.
  void roundInput(size_t number, equant::SchemeAttr scheme);

  /// Runs one sequence from its first token on. `inputs` are the subgraph's inputs that are
  /// activations, in order, T rows each; `tokens` is the one that is tokens, if one is. `outputs`
  /// get T rows each, or the shape of a weight, and may be none of the inputs. Errors:
  /// InvalidArgument (counts, rows or columns that do not fit, a sequence longer than
  /// EngineOptions::length). Nothing checks that values are finite.
  Result<void> run(llvm::ArrayRef<numerics::ConstMatrix> inputs,
                   llvm::ArrayRef<numerics::Matrix> outputs, Observer observer = nullptr,
                   std::span<const int32_t> tokens = {});

private:
  friend class SubgraphCompiler;
  CompiledSubgraph() = default;
  Result<int64_t> check(llvm::ArrayRef<numerics::ConstMatrix> inputs,
                        llvm::ArrayRef<numerics::Matrix> outputs,
                        std::span<const int32_t> tokens) const;
  numerics::Matrix view(const SubgraphWeight &weight) const;

  OutlinedSubgraph subgraph; // without its module
  llvm::SmallVector<mlir::Type> inputTypes, outputTypes;
  Buffer weightMemory;
  std::shared_ptr<const HostProgram> program;
  std::shared_ptr<Workspace> workspace;
  EngineOptions options;
};

/// Compiles subgraphs; subgraphs that compute the same on other weights share their code.
class SubgraphCompiler {
public:
  /// Errors: Unsupported (this CPU runs none of the instruction sets), NotFound (no OpenMP
  /// runtime).
  static Result<SubgraphCompiler> create(const EngineOptions &options);
  SubgraphCompiler(SubgraphCompiler &&) noexcept;
  ~SubgraphCompiler();

  /// A program whose weights are zero: load them or set them. Fails with a diagnostic. The programs
  /// of one compiler share their memory: only one of them may run at a time.
  mlir::FailureOr<CompiledSubgraph> compile(const Subgraph &subgraph);
  const EngineOptions &options() const { return settings; }
  /// How many different programs there are.
  size_t programs() const { return cache.size(); }

  /// What a pass that compiles subgraphs depends on.
  static void getDependentDialects(mlir::DialectRegistry &registry);

private:
  SubgraphCompiler() = default;

  EngineOptions settings;
  std::shared_ptr<Workspace> workspace = std::make_shared<Workspace>();
  std::map<std::string, std::shared_ptr<const HostProgram>> cache; ///< by the subgraph's text
};

} // namespace easyquant::execution

#endif // EASYQUANT_EXECUTION_COMPILEDSUBGRAPH_H
