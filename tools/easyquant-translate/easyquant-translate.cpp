//===- easyquant-translate.cpp - Model files to lm IR and back ------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Export/ExportHuggingFace.h"
#include "easyquant/Import/ImportModel.h"
#include "easyquant/Support/OutOfMemory.h"
#include "easyquant/Support/Version.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MLProgram/IR/MLProgram.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/AsmState.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace easyquant;
namespace cl = llvm::cl;

static int fail(llvm::StringRef message) {
  llvm::errs() << "error: " << message << '\n';
  return 1;
}

/// Writes the IR of the model at `path` to `output`.
static int importFrom(const std::string &path, formats::ModelSource::Kind kind,
                      int64_t longestContext, bool drafts, const std::string &assistant,
                      const std::string &output) {
  Result<formats::ModelSource> source = formats::ModelSource::open(path, assistant);
  if (!source)
    return fail(source.error().message);
  if (source->kind() != kind)
    return fail(path + (kind == formats::ModelSource::Kind::GGUF
                            ? ": a folder; use --import-hf for a Hugging Face folder"
                            : ": not a folder; use --import-gguf for a GGUF file"));
  mlir::MLIRContext context;
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  mlir::OwningOpRef<mlir::ModuleOp> module = importModel(context, *source, longestContext, drafts);
  if (!module)
    return 1;
  std::string message;
  std::unique_ptr<llvm::ToolOutputFile> file = mlir::openOutputFile(output, &message);
  if (!file)
    return fail(message);
  module->print(file->os());
  file->os().flush();
  if (std::error_code error = file->os().error()) {
    file->os().clear_error();
    return fail(output + ": cannot write: " + error.message());
  }
  file->keep();
  return 0;
}

/// Writes the model whose IR is in `input` to `folder`.
static int exportTo(const std::string &folder, const std::string &input) {
  mlir::MLIRContext context;
  context.loadDialect<lm::LMDialect, equant::EquantDialect, mlir::func::FuncDialect,
                      mlir::ml_program::MLProgramDialect, mlir::tensor::TensorDialect>();
  llvm::SourceMgr sources;
  mlir::SourceMgrDiagnosticHandler handler(sources, &context);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(input, sources, &context);
  return !module || failed(exportHuggingFace(*module, folder)) ? 1 : 0;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::OptionCategory category("easyquant-translate options");
  cl::opt<std::string> input(cl::Positional, cl::init("-"), cl::desc("<module of --export-hf>"));
  cl::opt<std::string> huggingFace("import-hf", cl::value_desc("folder"), cl::cat(category),
                                   cl::desc("Write the model of a Hugging Face folder as lm IR"));
  cl::opt<std::string> gguf("import-gguf", cl::value_desc("file"), cl::cat(category),
                            cl::desc("Write the model of a GGUF file as lm IR"));
  cl::opt<std::string> exported(
      "export-hf", cl::value_desc("folder"), cl::cat(category),
      cl::desc("Write the model of an lm module as a Hugging Face folder with F32 weights"));
  cl::opt<std::string> output("o", cl::value_desc("file"), cl::init("-"), cl::cat(category),
                              cl::desc("Where --import-* writes (default: standard output)"));
  cl::opt<int64_t> longestContext("context", cl::value_desc("tokens"), cl::init(0),
                                  cl::cat(category),
                                  cl::desc("Longest context, for which --import-* makes tables of "
                                           "positions (default: the model's)"));
  cl::opt<std::string> draftHead(
      "draft-head", cl::value_desc("auto|none"), cl::init("auto"), cl::cat(category),
      cl::desc("Whether --import-* takes the head that drafts tokens, if there is one: auto, none "
               "(default: auto)"));
  cl::opt<std::string> assistant(
      "assistant", cl::value_desc("folder"), cl::cat(category),
      cl::desc("Hugging Face folder of the model that drafts for the one of --import-*"));
  cl::opt<bool> list("list-architectures", cl::cat(category),
                     cl::desc("Print a Markdown table of the architectures that can be imported"));
  cl::SetVersionPrinter([](llvm::raw_ostream &os) {
    os << versionOf("easyquant-translate", LLVM_VERSION_STRING) << '\n';
  });
  mlir::registerAsmPrinterCLOptions();
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "EasyQuant: model files to lm IR and back\n");

  if (list) {
    llvm::outs() << formats::architectureTable();
    return 0;
  }
  if (!huggingFace.empty() + !gguf.empty() + !exported.empty() != 1)
    return fail("expected one of --import-hf FOLDER, --import-gguf FILE and --export-hf FOLDER; "
                "see --help");
  if (longestContext < 0)
    return fail("--context " + std::to_string(longestContext) + ": expected a number of tokens");
  if (draftHead != "auto" && draftHead != "none")
    return fail("--draft-head " + draftHead + ": expected auto or none");
  const bool drafts = draftHead == "auto";
  if (!assistant.empty() && (!drafts || !exported.empty()))
    return fail("--assistant " + assistant +
                ": goes with --import-hf and --import-gguf, and not "
                "with --draft-head none");
  setInput(!exported.empty() ? input : !gguf.empty() ? gguf : huggingFace);
  return runTool([&] {
    if (!exported.empty())
      return exportTo(exported, input);
    if (!gguf.empty())
      return importFrom(gguf, formats::ModelSource::Kind::GGUF, longestContext, drafts, assistant,
                        output);
    return importFrom(huggingFace, formats::ModelSource::Kind::HuggingFace, longestContext, drafts,
                      assistant, output);
  });
}
