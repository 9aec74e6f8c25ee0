//===- easyquant-compile.cpp - From a model to an artifact ----------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "JoinedRanks.h"

#include "easyquant/Execution/Ranks.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Formats/ModelSource.h"
#include "easyquant/Import/ImportModel.h"
#include "easyquant/Numerics/Blas.h"
#include "easyquant/Pipelines/Compile.h"
#include "easyquant/Pipelines/RegisterPasses.h"
#include "easyquant/Pipelines/WorkFolder.h"
#include "easyquant/Support/OneLine.h"
#include "easyquant/Support/OutOfMemory.h"
#include "easyquant/Support/StagedFolder.h"

#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/InitLLVM.h"

#include <csignal>
#include <unistd.h>

using namespace easyquant;
using namespace mlir;

namespace {
/// What the compiler works with, and how it says what went wrong.
struct Session {
  CommandLine line;
  JoinedRanks ranks;
  MLIRContext context;
  Progress progress;
  std::string firstError; ///< that has been printed

  Session(CommandLine line, JoinedRanks ranks, const DialectRegistry &registry)
      : line(std::move(line)), ranks(std::move(ranks)), context(registry),
        progress(context, this->ranks.rank() == 0 ? this->line.progress : ProgressFormat::None) {}

  void printError(const std::string &text) {
    const std::string message = escape(text);
    const bool isOther = ranks.rank() != 0 && !llvm::StringRef(message).starts_with("rank ");
    // In one write, since all ranks of a machine print to one place.
    const std::string rank = isOther ? "rank " + std::to_string(ranks.rank()) + ": " : "";
    llvm::errs() << "error: " + rank + message + "\n";
    if (firstError.empty())
      firstError = message;
  }
  void print(const Diagnostic &diagnostic) {
    // A user has no use for an empty source location in front of a message.
    if (diagnostic.getSeverity() == DiagnosticSeverity::Error)
      printError(diagnostic.str());
    else if (ranks.rank() == 0)
      llvm::errs() << "note: " + escape(diagnostic.str()) + "\n";
  }
  /// Paths that the user has named are as a line of text can have them.
  std::string escape(const std::string &message) const {
    const std::string paths[] = {line.model,
                                 line.output,
                                 line.options[recipe::option::workFolder],
                                 line.options[recipe::option::tokensFile],
                                 line.options[recipe::option::recipe],
                                 line.options[recipe::option::assistant]};
    return escapePaths(message, paths);
  }
  /// After errors have been printed.
  int fail() {
    ranks.fail(firstError);
    return 1;
  }
  int fail(const std::string &message) {
    printError(message);
    return fail();
  }
};
} // namespace

namespace option = easyquant::recipe::option;

/// What is wrong with the options, as far as it can be said before the model is opened.
static std::optional<std::string> check(CommandLine &line) {
  auto problem = takeFromRecipe(line.options);
  takeExportDefaults(line.options);
  if (line.search.empty())
    takeCalibratedDefaults(line.options);
  if (!problem)
    problem = checkOptions(line.options);
  if (!problem && line.options.has(option::exportFormat) && !line.pipeline.empty())
    problem = "--pipeline plans no checkpoint; leave --export out";
  // The front desk, which alone reads progress as JSON, makes tokens of text.
  const char *remedy = line.progress == ProgressFormat::JSON ? "--calib FILE" : "--tokens FILE";
  if (!problem && !line.options[option::dryRun] && line.pipeline.empty())
    problem = checkTokens(line.options, remedy);
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
               << line.model << "'";
  if (std::optional<int64_t> context = line.options.get(option::context))
    llvm::outs() << " --context " << *context;
  if (source.config().hasDraftHead && !whyNoDraftHead(line.options).empty())
    llvm::outs() << " --draft-head none";
  if (line.options.has(option::assistant))
    llvm::outs() << " --assistant '" << line.options[option::assistant] << "'";
  llvm::outs() << " | easyquant-opt -o /dev/null --pass-pipeline='";
  pm.printAsTextualPipeline(llvm::outs());
  llvm::outs() << "'\n";
}

static OwningOpRef<ModuleOp> readModel(Session &session, formats::ModelSource &source) {
  const recipe::OptionValues &options = session.line.options;
  const bool isWhole = session.line.pipeline.empty() && session.line.search.empty();
  const std::string reason = whyNoDraftHead(options);
  if (isWhole && !reason.empty() && source.config().hasDraftHead &&
      options[option::draftHead] == "auto" && !options[option::dryRun] && session.ranks.rank() == 0)
    llvm::errs() << "note: " + oneLine(session.line.model) +
                        ": the head that drafts tokens is left out: " + reason + "\n";
  // Text and searches do not go through it.
  OwningOpRef<ModuleOp> module =
      importModel(session.context, source, options.get(option::context).value_or(0),
                  /*drafts=*/isWhole && reason.empty());
  if (module)
    session.progress.report("import", 1, 1);
  return module;
}

/// Says that weights of the source are codes already, where they are going to be rounded again.
static void noteCodes(const CommandLine &line, const formats::ModelSource &source) {
  const std::string scheme = line.options[option::scheme];
  if (!line.options.has(option::recipe) &&
      (scheme == "none" || scheme == recipe::kKeepScheme || scheme == recipe::kKeepA8Scheme))
    return;
  std::string codes;
  std::map<std::string, int64_t> counts;
  for (const formats::ModelTensor &tensor : source.tensors())
    if (!tensor.isFloat())
      ++counts[tensor.storedType];
  for (const auto &[type, count] : counts)
    codes += (codes.empty() ? "" : ", ") + type + " × " + std::to_string(count);
  if (!codes.empty())
    llvm::errs() << "note: " + oneLine(line.model) + " is quantized already (" + codes +
                        "), and its values are rounded once more; " +
                        (source.isQuantized() ? "--scheme keep takes its codes, and a" : "a") +
                        " float file of the model keeps more of it\n";
}

/// What ranks do together; behind it rank 0 goes on alone.
static LogicalResult quantize(Session &session, ModuleOp module) {
  auto pm = PassManager::on<ModuleOp>(&session.context);
  buildQuantizePipeline(pm, session.line.options);
  if (failed(pm.run(module)))
    return failure();
  if (Result<void> closed = session.ranks.close(); !closed) {
    session.printError(closed.error().message);
    return failure();
  }
  return success();
}

/// Compiles into the output folder, or prints the IR of a phase on the way there.
static int compile(Session &session, formats::ModelSource &source) {
  CommandLine &line = session.line;
  // The folder comes first: a user who may not write there shall learn it before any work is done.
  // Without an output, IR is wanted, and the weights that materialization writes go with the
  // folder.
  auto folder =
      line.output.empty()
          ? StagedFolder::scratch()
          : StagedFolder::create(line.output, {line.options[option::force], formats::kManifestFile,
                                               line.options.has(option::exportFormat)
                                                   ? "give another folder"
                                                   : "give another folder or --force"});
  if (!folder)
    return session.fail(folder.error().message);
  if (!folder->madeParent().empty())
    llvm::errs() << "note: " + oneLine(folder->madeParent()) + ": was missing and has been made\n";
  for (const std::string &note : source.notes())
    llvm::errs() << "note: " + oneLine(line.model) + ": " + note + "\n";
  noteCodes(line, source);
  OwningOpRef<ModuleOp> module = readModel(session, source);
  if (!module)
    return session.fail();
  const std::string output = folder->path();
  if (!line.options.has(option::workFolder))
    line.options.set(option::workFolder, output);
  auto pm = PassManager::on<ModuleOp>(&session.context);
  if (line.options.has(option::emitIRAfter)) {
    buildPipelineUntilPhase(pm, line.options, output);
    if (failed(pm.run(*module)))
      return session.fail();
    module->print(llvm::outs());
    return 0;
  }
  if (failed(quantize(session, *module)))
    return session.fail();
  buildArtifactPipeline(pm, line.options, output);
  // Code is verified where it is emitted. Behind each pass that lowers it that takes a quarter of
  // the time.
  pm.enableVerifier(false);
  if (failed(pm.run(*module)))
    return session.fail();
  if (Result<void> done = folder->commit(); !done)
    return session.fail(done.error().message);
  return 0;
}

/// The part of a rank that writes no artifact.
static int help(Session &session, formats::ModelSource &source) {
  OwningOpRef<ModuleOp> module = readModel(session, source);
  return module && succeeded(quantize(session, *module)) ? 0 : session.fail();
}

/// Runs passes, and stops.
static int runPasses(Session &session, formats::ModelSource &source) {
  CommandLine &line = session.line;
  auto pm = PassManager::on<ModuleOp>(&session.context);
  if (line.options[option::dryRun])
    buildDryRunPipeline(pm, line.options);
  else if (!line.search.empty() && failed(buildSearchPipeline(pm, line.options, line.search)))
    return session.fail();
  else if (line.search.empty() && failed(parsePassPipeline(line.pipeline, pm)))
    return session.fail();
  OwningOpRef<ModuleOp> module = readModel(session, source);
  if (!module || failed(pm.run(*module)))
    return session.fail();
  Result<void> closed = session.ranks.close();
  return closed ? 0 : session.fail(closed.error().message);
}

/// Joins the ranks of the launcher, where passes can share work out.
static Result<void> join(Session &session) {
  if (session.ranks.isAlone())
    return {};
  if (auto opened = session.ranks.open(session.line); !opened)
    return opened;
  return execution::Ranks::join(session.context, *session.ranks.communicator());
}

static int run(Session &session) {
  CommandLine &line = session.line;
  const bool isDryRun = line.options[option::dryRun],
             compiles = line.pipeline.empty() && line.search.empty() && !isDryRun;
  const bool keepsWork = line.options.has(option::workFolder);
  if (keepsWork)
    line.options.set(option::workFolder, session.ranks.ownFolder(line.options[option::workFolder]));
  else if (!line.output.empty())
    line.options.set(
        option::workFolder,
        session.ranks.ownFolder(llvm::StringRef(line.output).rtrim('/').str() + ".work"));
  // What is printed is rank 0's alone.
  if (isDryRun || line.options[option::dumpPipeline] || line.options.has(option::emitIRAfter)) {
    if (session.ranks.rank() != 0)
      return 0;
  } else if (auto joined = join(session); !joined) {
    return session.fail(joined.error().message);
  }
  const recipe::OptionValues given = line.options;
  if (auto problem = check(line))
    return session.fail(*problem);
  if (line.output.empty() && !line.options.has(option::emitIRAfter) && compiles)
    return session.fail("no output folder; name one with -o OUT");
  Result<formats::ModelSource> source =
      formats::ModelSource::open(line.model, line.options[option::assistant]);
  if (!source)
    return session.fail(source.error().message);
  if (source->isQuantized() && !given.has(option::scheme) && !given.has(option::recipe)) {
    // A checkpoint that is quantized stays as it is, and other defaults are those beside this.
    line.options = given;
    line.options.set(option::scheme, std::string(recipe::kKeepScheme));
    if (auto problem = check(line))
      return session.fail(*problem);
  }
  if (auto problem = fitExport(line.options, source->config()))
    return session.fail(oneLine(line.model) + ": " + *problem);
  if (llvm::StringRef(line.model).ends_with(".json") && !isDryRun)
    return session.fail(oneLine(line.model) + ": a configuration alone has no weights to compile; "
                                              "give the folder that holds them, or --dry-run");
  if (auto same = session.ranks.agreeOn(*source); !same)
    return session.fail(same.error().message);
  if (line.options[option::dumpPipeline]) {
    dumpPipeline(session.context, line, *source);
    return 0;
  }
  if (!compiles)
    return runPasses(session, *source);
  const int status = session.ranks.rank() == 0 ? compile(session, *source) : help(session, *source);
  if (status == 0 && !keepsWork && !line.options.has(option::emitIRAfter))
    removeWorkFolder(line.options[option::workFolder]);
  return status;
}

static int start(int argc, char **argv) {
  registerPasses(); // with the targets, which options name
  CommandLine line = CommandLine::parse(argc, argv);
  Result<JoinedRanks> ranks = JoinedRanks::find(line);
  if (!ranks) {
    llvm::errs() << "error: " << ranks.error().message << "\n";
    return 1;
  }
  DialectRegistry registry;
  registerDialects(registry);
  Session session(std::move(line), std::move(*ranks), registry);
  ScopedDiagnosticHandler diagnostics(&session.context,
                                      [&](Diagnostic &diagnostic) { session.print(diagnostic); });
  setInput(session.line.model);
  try {
    return run(session);
  } catch (const std::bad_alloc &) {
    session.ranks.fail("out of memory");
    throw;
  }
}

int main(int argc, char **argv) {
  numerics::restartWithFittingBlas(argv);
  llvm::InitLLVM init(argc, argv);
  removeStagedFoldersOnSignal();
  // A file that grows beyond the process's limit is an error of that write, not of this program.
  std::signal(SIGXFSZ, SIG_IGN);
  llvm::install_bad_alloc_error_handler(
      [](void *, const char *, bool) { ::_exit(reportOutOfMemory()); });
  return runTool([&] { return start(argc, argv); });
}
