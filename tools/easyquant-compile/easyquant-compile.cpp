//===- easyquant-compile.cpp - From a model to an artifact ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CommandLine.h"

#include "easyquant/Formats/Manifest.h"
#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Import/ImportModel.h"
#include "easyquant/Pipelines/RegisterPasses.h"
#include "easyquant/Pipelines/WorkFolder.h"
#include "easyquant/Support/DidYouMean.h"
#include "easyquant/Support/StagedFolder.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/InitLLVM.h"

#include <array>
#include <csignal>

using namespace easyquant;
using namespace mlir;

static int fail(const llvm::Twine &message) {
  llvm::errs() << "error: " << message << "\n";
  return 1;
}

static LogicalResult runPipeline(ModuleOp module, const std::string &text) {
  PassManager pm(module.getContext());
  if (!text.empty() && failed(parsePassPipeline(text, pm)))
    return failure();
  return pm.run(module);
}

/// What is wrong with the options, as far as it can be said before the model is opened.
static std::optional<std::string> check(CommandLine &line) {
  auto problem = line.compile.takeFromRecipe();
  if (!problem)
    problem = line.compile.check();
  if (!problem && !line.dryRun && line.pipeline.empty())
    problem = line.compile.checkTokens();
  return problem;
}

/// The command that does, step by step, what this one would do.
static void dumpPipeline(const CommandLine &line, const formats::ModelSource &source) {
  // Locations name what is no site, such as norms.
  llvm::outs() << "easyquant-translate --mlir-print-debuginfo --import-"
               << (source.kind() == formats::ModelSource::Kind::GGUF ? "gguf" : "hf") << " '"
               << line.model << "' | easyquant-opt -o /dev/null --pass-pipeline='builtin.module("
               << pipelineText(compilePhases(line.compile, line.output)) << ")'\n";
}

static OwningOpRef<ModuleOp> readModel(MLIRContext &context, formats::ModelSource &source,
                                       Progress &progress) {
  OwningOpRef<ModuleOp> module = importModel(context, source);
  if (module)
    progress.report("import", 1, 1);
  return module;
}

/// Runs the phases until `line.emitAfter` and prints the module.
static int emitIR(ModuleOp module, const CommandLine &line, const std::vector<Phase> &phases) {
  auto until = phasesUntil(phases, line.emitAfter, line.compile);
  if (!until)
    return fail("unknown phase '" + line.emitAfter +
                "'; expected import, quantize, materialize or kernels" +
                didYouMean(line.emitAfter, std::array<llvm::StringRef, 4>{
                                               "import", "quantize", "materialize", "kernels"}));
  if (failed(runPipeline(module, pipelineText(*until))))
    return 1;
  module->print(llvm::outs());
  return 0;
}

/// Compiles into the output folder, or prints the IR of a phase on the way there.
static int compile(MLIRContext &context, formats::ModelSource &source, CommandLine &line,
                   Progress &progress, bool keepsWork) {
  // First of all: who may not write there shall learn it before any work is done. Without an
  // output, IR is wanted: the weights that materialization writes go with the folder.
  auto folder = line.output.empty()
                    ? StagedFolder::scratch()
                    : StagedFolder::create(line.output, {line.force, formats::kManifestFile,
                                                         "give another folder or --force"});
  if (!folder)
    return fail(folder.error().message);
  OwningOpRef<ModuleOp> module = readModel(context, source, progress);
  if (!module)
    return 1;
  if (line.compile.work.empty())
    line.compile.work = folder->path();
  std::vector<Phase> phases = compilePhases(line.compile, folder->path());
  if (!line.emitAfter.empty())
    return emitIR(*module, line, phases);

  if (failed(runPipeline(*module, pipelineText(phases))))
    return 1;
  if (Result<void> done = folder->commit(); !done)
    return fail(done.error().message);
  if (!keepsWork)
    removeWorkFolder(line.compile.work);
  return 0;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  removeStagedFoldersOnSignal();
  // A file that grows beyond the process's limit is an error of that write, not of this program.
  std::signal(SIGXFSZ, SIG_IGN);
  CommandLine line = CommandLine::parse(argc, argv);
  registerPasses();
  DialectRegistry registry;
  registerDialects(registry);
  MLIRContext context(registry);
  // A user has no use for an empty source location in front of a message.
  ScopedDiagnosticHandler diagnostics(&context, [](Diagnostic &diagnostic) {
    llvm::errs() << (diagnostic.getSeverity() == DiagnosticSeverity::Error ? "error: " : "note: ")
                 << diagnostic.str() << "\n";
  });
  Progress progress(context, line.progress);

  const bool keepsWork = !line.compile.work.empty();
  if (!keepsWork && !line.output.empty())
    line.compile.work = llvm::StringRef(line.output).rtrim('/').str() + ".work";
  if (auto problem = check(line))
    return fail(*problem);
  if (line.dryRun)
    line.pipeline = dryRunPipeline(line.compile);
  if (line.output.empty() && line.emitAfter.empty() && line.pipeline.empty())
    return fail("no output folder; name one with -o OUT");
  Result<formats::ModelSource> source = formats::ModelSource::open(line.model);
  if (!source)
    return fail(source.error().message);
  if (line.dumpPipeline) {
    dumpPipeline(line, *source);
    return 0;
  }

  if (line.pipeline.empty())
    return compile(context, *source, line, progress, keepsWork);
  OwningOpRef<ModuleOp> module = readModel(context, *source, progress);
  return module && succeeded(runPipeline(*module, line.pipeline)) ? 0 : 1;
}
