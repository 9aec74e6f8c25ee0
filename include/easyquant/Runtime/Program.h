//===- Program.h - The compiled code of an artifact -------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Opens the code for this processor, after LLVM's OpenMP runtime that it calls, and binds the entry
// of one instruction set: the program ABI of docs/Architecture.md.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_RUNTIME_PROGRAM_H
#define EASYQUANT_RUNTIME_PROGRAM_H

#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/Step.h"
#include "easyquant/Support/Result.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

namespace easyquant::runtime {

/// The CPU features that the instruction sets of EasyQuant are made of.
struct CpuFeatures {
  std::set<std::string_view> present; ///< of those that instruction sets need
  const formats::Processor *processor = &formats::hostProcessor();

  /// The features of this CPU that the operating system has enabled.
  static CpuFeatures host();
};

/// Has one of `entries` (instruction set to symbol, from the manifest) code for this processor?
bool hasCodeFor(const formats::Processor &processor,
                const std::map<std::string, std::string> &entries);

/// The one of `entries` (instruction set to symbol, from the manifest) to run: `requested`, or for
/// "" and "auto" the best that `features` allow. `path` names the artifact in messages. Errors:
/// InvalidArgument (no such instruction set), Unsupported (not compiled in, or the CPU lacks it;
/// the message names the missing features, or the processors that there is code for).
Result<std::string> selectIsa(std::string_view requested,
                              const std::map<std::string, std::string> &entries,
                              const CpuFeatures &features, std::string_view path);

/// What a program calls before each of its kernels (eq_services).
struct ProfilerHook {
  decltype(eq_services::mark) function = nullptr; ///< null: nothing
  void *context = nullptr;
};

/// LLVM's OpenMP runtime, opened once for the process and never closed: its workers outlive any
/// model.
class OpenMP {
public:
  /// Prefers a libomp.so.5 that the process has already loaded, then one beside this library or
  /// executable or in ../lib from there, then the system's search path. Errors: NotFound, naming
  /// what was tried; Unsupported (not an OpenMP runtime).
  static Result<const OpenMP *> get();

  /// For the parallel regions that the calling thread is about to enter: `threads` >= 1 of them,
  /// which libomp has and need not start. Costs nothing where the regions before had as many.
  /// Errors: OutOfRange (the system does not grant them, or memory for them).
  Result<void> prepare(int32_t threads) const;

  /// Calls work(context, slot), which must not throw, in so many threads, those of regions before:
  /// slot 0, and others up to threads - 1 as libomp has them. Errors: those of prepare().
  Result<void> run(int32_t threads, void (*work)(void *, int32_t), void *context) const;

private:
  static Result<OpenMP> open();

  /// ident_t of libomp's kmp.h: where in a program a call stands.
  struct Place {
    int32_t reserved1 = 0, flags = 2, reserved2 = 0, reserved3 = 0;
    const char *source = ";unknown;unknown;0;0;;";
  };
  using Region = void (*)(int32_t *globalThread, int32_t *boundThread, ...);
  static void meet(int32_t *globalThread, int32_t *boundThread, const OpenMP *openmp);

  void (*setNumThreads)(int) = nullptr;
  size_t (*stackBytes)() = nullptr;
  void (*fork)(const Place *, int32_t argumentCount, Region, ...) = nullptr;
  int (*threadNumber)() = nullptr;
  int (*threadCount)() = nullptr;
};

/// The loaded code for this processor with one entry bound. Immutable; may be called from several
/// threads at once.
class Program {
public:
  /// `symbol` is the entry's name in the manifest, `draftSymbol` that of the head that drafts,
  /// empty where there is none. Errors: Corrupt (cannot be loaded, lacks a symbol), and those of
  /// OpenMP::get.
  static Result<Program> load(const std::string &path, const std::string &symbol,
                              const std::string &draftSymbol = {});

  const std::string &path() const { return file; }

  /// Lets the calling thread have `threads` for its steps: OpenMP::prepare.
  Result<void> prepare(int32_t threads) const { return openmp->prepare(threads); }
  /// OpenMP::run.
  Result<void> inThreads(int32_t threads, void (*work)(void *, int32_t), void *context) const {
    return openmp->run(threads, work, context);
  }

  /// One step; 0 or an ErrorCode: Interrupted. The caller has prepared its threads, and checked
  /// tokens and sizes.
  int32_t run(const eq_step &step) const { return entry(&step); }
  /// The same of the head that drafts, which the program has.
  int32_t draft(const eq_step &step) const { return draftEntry(&step); }

private:
  struct Close {
    void operator()(void *handle) const;
  };
  std::string file;
  const OpenMP *openmp = nullptr;
  std::unique_ptr<void, Close> library;
  eq_step_function entry = nullptr, draftEntry = nullptr;
};

} // namespace easyquant::runtime

#endif // EASYQUANT_RUNTIME_PROGRAM_H
