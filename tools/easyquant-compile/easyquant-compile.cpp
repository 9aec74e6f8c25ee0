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
#include "easyquant/Pipelines/Compile.h"
#include "easyquant/Pipelines/RegisterPasses.h"
#include "easyquant/Pipelines/WorkFolder.h"
#include "easyquant/Support/StagedFolder.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/InitLLVM.h"

#include <csignal>

using namespace easyquant;
using namespace mlir;

static int fail(const llvm::Twine &message) {
  llvm::errs() << "error: " << message << "\n";
  return 1;
}

namespace option = easyquant::recipe::option;

/// What is wrong with the options, as far as it can be said before the model is opened.
static std::optional<std::string> check(CommandLine &line) {
  auto problem = takeFromRecipe(line.options);
  if (line.search.empty())
    takeCalibratedDefaults(line.options);
  if (!problem)
    problem = checkOptions(line.options);
  if (!problem && !line.options[option::dryRun] && line.pipeline.empty())
    problem = checkTokens(line.options);
  return problem;
}

/// The command that does, step by step, what this one would do.
static void dumpPipeline(MLIRContext &context, const CommandLine &line,
                         const formats::ModelSource &source) {
  auto pm = PassManager::on<ModuleOp>(&context);
  buildCompilePipeline(pm, line.options, line.output);
  // Locations name what is no site, such as norms.
  llvm::outs() << "easyquant-translate --mlir-print-debuginfo --import-"
               << (source.kind() == formats::ModelSource::Kind::GGUF ? "gguf" : "hf") << " '"
               << line.model << "' | easyquant-opt -o /dev/null --pass-pipeline='";
  pm.printAsTextualPipeline(llvm::outs());
  llvm::outs() << "'\n";
}

static OwningOpRef<ModuleOp> readModel(MLIRContext &context, formats::ModelSource &source,
                                       Progress &progress) {
  OwningOpRef<ModuleOp> module = importModel(context, source);
  if (module)
    progress.report("import", 1, 1);
  return module;
}

/// Compiles into the output folder, or prints the IR of a phase on the way there.
static int compile(MLIRContext &context, formats::ModelSource &source, CommandLine &line,
                   Progress &progress, bool keepsWork) {
  // First of all: who may not write there shall learn it before any work is done. Without an
  // output, IR is wanted: the weights that materialization writes go with the folder.
  auto folder =
      line.output.empty()
          ? StagedFolder::scratch()
          : StagedFolder::create(line.output, {line.options[option::force], formats::kManifestFile,
                                               "give another folder or --force"});
  if (!folder)
    return fail(folder.error().message);
  OwningOpRef<ModuleOp> module = readModel(context, source, progress);
  if (!module)
    return 1;
  const std::string output = folder->path();
  if (!line.options.has(option::workFolder))
    line.options.set(option::workFolder, output);
  auto pm = PassManager::on<ModuleOp>(&context);
  if (line.options.has(option::emitIRAfter)) {
    buildPipelineUntilPhase(pm, line.options, output);
    if (failed(pm.run(*module)))
      return 1;
    module->print(llvm::outs());
    return 0;
  }
  buildCompilePipeline(pm, line.options, output);
  if (failed(pm.run(*module)))
    return 1;
  if (Result<void> done = folder->commit(); !done)
    return fail(done.error().message);
  if (!keepsWork)
    removeWorkFolder(line.options[option::workFolder]);
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

  const bool keepsWork = line.options.has(option::workFolder);
  if (!keepsWork && !line.output.empty())
    line.options.set(option::workFolder, llvm::StringRef(line.output).rtrim('/').str() + ".work");
  if (auto problem = check(line))
    return fail(*problem);
  const bool isDryRun = line.options[option::dryRun];
  if (line.output.empty() && !line.options.has(option::emitIRAfter) && line.pipeline.empty() &&
      line.search.empty() && !isDryRun)
    return fail("no output folder; name one with -o OUT");
  Result<formats::ModelSource> source = formats::ModelSource::open(line.model);
  if (!source)
    return fail(source.error().message);
  if (line.options[option::dumpPipeline]) {
    dumpPipeline(context, line, *source);
    return 0;
  }

  if (line.pipeline.empty() && line.search.empty() && !isDryRun)
    return compile(context, *source, line, progress, keepsWork);
  auto pm = PassManager::on<ModuleOp>(&context);
  if (isDryRun)
    buildDryRunPipeline(pm, line.options);
  else if (!line.search.empty() && failed(buildSearchPipeline(pm, line.options, line.search)))
    return 1;
  else if (line.search.empty() && failed(parsePassPipeline(line.pipeline, pm)))
    return 1;
  OwningOpRef<ModuleOp> module = readModel(context, *source, progress);
  return module && succeeded(pm.run(*module)) ? 0 : 1;
}
