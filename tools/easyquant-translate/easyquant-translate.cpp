//===- easyquant-translate.cpp - Model files to lm IR ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Import/ImportModel.h"

#include "mlir/Support/FileUtilities.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/ToolOutputFile.h"

using namespace easyquant;
namespace cl = llvm::cl;

static int fail(llvm::StringRef message) {
  llvm::errs() << "error: " << message << '\n';
  return 1;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  cl::OptionCategory category("easyquant-translate options");
  cl::opt<std::string> huggingFace("import-hf", cl::value_desc("folder"), cl::cat(category),
                                   cl::desc("Write the model of a Hugging Face folder as lm IR"));
  cl::opt<std::string> gguf("import-gguf", cl::value_desc("file"), cl::cat(category),
                            cl::desc("Write the model of a GGUF file as lm IR"));
  cl::opt<std::string> output("o", cl::value_desc("file"), cl::init("-"), cl::cat(category),
                              cl::desc("Output file (default: standard output)"));
  cl::HideUnrelatedOptions(category);
  cl::ParseCommandLineOptions(argc, argv, "EasyQuant: model files to lm IR\n");

  if (huggingFace.empty() == gguf.empty())
    return fail("expected one of --import-hf FOLDER and --import-gguf FILE; see --help");
  auto kind =
      gguf.empty() ? formats::ModelSource::Kind::HuggingFace : formats::ModelSource::Kind::GGUF;
  const std::string &path = gguf.empty() ? huggingFace : gguf;
  Result<formats::ModelSource> source = formats::ModelSource::open(path);
  if (!source)
    return fail(source.error().message);
  if (source->kind() != kind)
    return fail(path + (gguf.empty() ? ": not a folder; use --import-gguf for a GGUF file"
                                     : ": a folder; use --import-hf for a Hugging Face folder"));

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module = importModel(context, *source);
  std::string message;
  std::unique_ptr<llvm::ToolOutputFile> file = mlir::openOutputFile(output, &message);
  if (!file)
    return fail(message);
  module->print(file->os());
  file->os() << '\n';
  file->os().flush();
  if (std::error_code error = file->os().error()) {
    file->os().clear_error();
    return fail(output + ": cannot write: " + error.message());
  }
  file->keep();
  return 0;
}
