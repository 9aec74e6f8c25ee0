//===- WriteManifest.cpp - Complete the artifact --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Conversion/GPUToNVVM/GPUToNVVM.h"
#include "easyquant/Conversion/LaunchesToLLVM/LaunchesToLLVM.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Formats/InstructionSets.h"
#include "easyquant/Formats/Manifest.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Support/AttributeJson.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/Version.h"
#include "easyquant/Support/WriteFile.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

namespace easyquant {
#define GEN_PASS_DEF_WRITEMANIFEST
#include "easyquant/Pipelines/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
namespace fs = llvm::sys::fs;

namespace {

struct WriteManifest : public easyquant::impl::WriteManifestBase<WriteManifest> {
  using WriteManifestBase::WriteManifestBase;

  void runOnOperation() override {
    if (failed(write()))
      signalPassFailure();
  }

  LogicalResult write();
  LogicalResult copyTokenizerFiles();
  LogicalResult writeRecipe();
  LogicalResult writeText(StringRef name, const std::string &text);
  LogicalResult writeChecksum(StringRef name, StringRef checksumFile);
  /// What the passes before have left at the module.
  FailureOr<formats::Manifest> readModule();
  FailureOr<std::map<std::string, formats::Manifest::File>> describeFiles();
  LogicalResult missing(StringRef attribute) {
    return getOperation().emitError()
           << "the module has no attribute '" << attribute
           << "'; run the passes that come before easyquant-write-manifest";
  }
  InFlightDiagnostic error(StringRef file, std::error_code code) {
    return getOperation().emitError() << file << ": " << code.message();
  }
};

} // namespace

LogicalResult WriteManifest::copyTokenizerFiles() {
  for (const std::string &file : copyFiles) {
    llvm::SmallString<128> target(output);
    llvm::sys::path::append(target, llvm::sys::path::filename(file));
    if (fs::exists(target))
      return getOperation().emitError()
             << file << ": the artifact already has a file of that name; rename this one";
    if (std::error_code code = fs::copy_file(file, target))
      return error(file, code);
  }
  return success();
}

/// Size and checksum of every file of the folder, by name.
FailureOr<std::map<std::string, formats::Manifest::File>> WriteManifest::describeFiles() {
  std::map<std::string, formats::Manifest::File> files;
  std::error_code code;
  for (fs::directory_iterator it(output, code), end; it != end && !code; it.increment(code)) {
    StringRef name = llvm::sys::path::filename(it->path());
    if (name == formats::kManifestFile)
      continue;
    uint64_t bytes;
    if (std::error_code sizeError = fs::file_size(it->path(), bytes))
      return error(it->path(), sizeError);
    Result<std::string> checksum = checksumOfFile(it->path());
    if (!checksum)
      return getOperation().emitError() << checksum.error().message;
    files[name.str()] = {static_cast<int64_t>(bytes), *checksum};
  }
  if (code)
    return error(output, code);
  return files;
}

LogicalResult WriteManifest::writeText(StringRef name, const std::string &text) {
  if (auto done = writeFile(std::filesystem::path(output.getValue()) / name.str(), text); !done)
    return getOperation().emitError() << done.error().message;
  return success();
}

/// As `xxh128sum NAME` prints it.
LogicalResult WriteManifest::writeChecksum(StringRef name, StringRef checksumFile) {
  llvm::SmallString<128> path(output);
  llvm::sys::path::append(path, name);
  Result<std::string> checksum = checksumOfFile(path.str().str());
  if (!checksum)
    return getOperation().emitError() << checksum.error().message;
  return writeText(checksumFile, llvm::formatv("{0}  {1}\n", *checksum, name).str());
}

LogicalResult WriteManifest::writeRecipe() {
  Attribute recipe = getOperation()->getAttr(equant::kRecipeAttr);
  return recipe ? writeText(formats::kRecipeFile, toJson(recipe).document()) : success();
}

/// "cpu", "sm_80,sm_90a,cpu,aarch64"
static std::string describeTarget(const formats::Manifest &manifest) {
  std::vector<std::string> targets;
  if (manifest.gpu)
    for (const auto &[name, chip] : manifest.gpu->chips)
      targets.push_back(name);
  for (const formats::Processor &processor : formats::kProcessors)
    if (llvm::any_of(formats::instructionSetsOf(processor), [&](const std::string &isa) {
          return manifest.program.entries.contains(isa);
        }))
      targets.emplace_back(processor.target);
  return llvm::join(targets, ",");
}

FailureOr<formats::Manifest> WriteManifest::readModule() {
  ModuleOp module = getOperation();
  Json::Object parts;
  for (auto [key, name] :
       {std::pair<StringRef, StringRef>("model", lm::kModelAttr), {"program", kProgramAttr}}) {
    auto dictionary = module->getAttrOfType<DictionaryAttr>(name);
    if (!dictionary)
      return missing(name);
    parts[key.str()] = toJson(dictionary);
  }
  // What a model does not have has no attribute, and null in a manifest.
  Json::Object model = parts["model"].members();
  model.try_emplace("bos_token_id");
  parts["model"] = Json(std::move(model));
  if (Attribute online = module->getAttr(equant::kOnlineAttr))
    parts["online"] = toJson(online);
  if (Attribute gpu = module->getAttr(kGPUProgramAttr))
    parts["gpu"] = toJson(gpu);
  auto report = module->getAttrOfType<DictionaryAttr>(equant::kReportAttr);
  if (!report)
    return missing(equant::kReportAttr);
  for (NamedAttribute part : report)
    parts[part.getName().str()] = toJson(part.getValue());
  Result<formats::Manifest> manifest =
      formats::readManifestParts(Json(std::move(parts)), "attributes of the module");
  if (!manifest)
    return module.emitError() << manifest.error().message;
  return std::move(*manifest);
}

LogicalResult WriteManifest::write() {
  if (failed(copyTokenizerFiles()) || failed(writeRecipe()))
    return failure();
  FailureOr<formats::Manifest> manifest = readModule();
  if (failed(manifest))
    return failure();
  manifest->writer = EASYQUANT_VERSION;
  manifest->target = describeTarget(*manifest);
  auto files = describeFiles();
  if (failed(files))
    return failure();
  manifest->files = std::move(*files);
  if (failed(writeText(formats::kManifestFile, formats::manifestText(*manifest))))
    return failure();
  return writeChecksum(formats::kManifestFile, formats::kManifestChecksumFile);
}
