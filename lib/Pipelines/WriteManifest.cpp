//===- WriteManifest.cpp - Complete the artifact --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "AttributeJSON.h"

#include "easyquant/Conversion/EquantToKernels/EquantToKernels.h"
#include "easyquant/Conversion/GPUKernels/GPUKernels.h"
#include "easyquant/Dialect/Equant/IR/Equant.h"
#include "easyquant/Dialect/LM/IR/LM.h"
#include "easyquant/Pipelines/Passes.h"
#include "easyquant/Support/Checksum.h"
#include "easyquant/Support/WriteFile.h"

#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"

namespace easyquant {
#define GEN_PASS_DEF_WRITEMANIFEST
#include "easyquant/Pipelines/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
namespace fs = llvm::sys::fs;
namespace json = llvm::json;

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
  std::string describeTarget();
  LogicalResult writeText(StringRef name, const std::string &text);
  LogicalResult writeJSON(StringRef name, json::Value value);
  LogicalResult writeChecksum(StringRef name, StringRef checksumFile);
  FailureOr<json::Object> describeFiles();
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
FailureOr<json::Object> WriteManifest::describeFiles() {
  json::Object files;
  std::error_code code;
  for (fs::directory_iterator it(output, code), end; it != end && !code; it.increment(code)) {
    StringRef name = llvm::sys::path::filename(it->path());
    if (name == "manifest.json")
      continue;
    uint64_t bytes;
    if (std::error_code sizeError = fs::file_size(it->path(), bytes))
      return error(it->path(), sizeError);
    Result<std::string> checksum = checksumOfFile(it->path());
    if (!checksum)
      return getOperation().emitError() << checksum.error().message;
    files[name.str()] =
        json::Object{{"bytes", static_cast<int64_t>(bytes)}, {"xxh3_128", *checksum}};
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

LogicalResult WriteManifest::writeJSON(StringRef name, json::Value value) {
  return writeText(name, llvm::formatv("{0:2}\n", value).str());
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

/// What `compile --recipe` takes to do the same again.
LogicalResult WriteManifest::writeRecipe() {
  Attribute recipe = getOperation()->getAttr(equant::kRecipeAttr);
  return recipe ? writeJSON("recipe.json", toJSON(recipe)) : success();
}

/// "cpu", "sm_80,sm_90a,cpu"
std::string WriteManifest::describeTarget() {
  std::vector<std::string> targets;
  if (auto gpu = getOperation()->getAttrOfType<DictionaryAttr>(kGPUProgramAttr))
    for (NamedAttribute chip : gpu.getAs<DictionaryAttr>("chips"))
      targets.push_back(chip.getName().str());
  auto program = getOperation()->getAttrOfType<DictionaryAttr>(kProgramAttr);
  auto entries = program ? program.getAs<DictionaryAttr>("entries") : nullptr;
  if (targets.empty() || (entries && !entries.empty()))
    targets.push_back("cpu");
  return llvm::join(targets, ",");
}

LogicalResult WriteManifest::write() {
  ModuleOp module = getOperation();
  if (failed(copyTokenizerFiles()) || failed(writeRecipe()))
    return failure();
  json::Object manifest{{"format", "easyquant-artifact"},
                        {"format_version", 1},
                        {"easyquant_version", EASYQUANT_VERSION},
                        {"target", describeTarget()}};
  for (auto [key, name] :
       {std::pair<StringRef, StringRef>("model", lm::kModelAttr), {"program", kProgramAttr}}) {
    auto dictionary = module->getAttrOfType<DictionaryAttr>(name);
    if (!dictionary)
      return missing(name);
    manifest[key] = toJSON(dictionary);
  }
  (*manifest.getObject("program"))["abi"] = 3;
  if (auto gpu = module->getAttrOfType<DictionaryAttr>(kGPUProgramAttr))
    manifest["gpu"] = toJSON(gpu);
  auto report = module->getAttrOfType<DictionaryAttr>(equant::kReportAttr);
  if (!report)
    return missing(equant::kReportAttr);
  for (NamedAttribute part : report)
    manifest[part.getName().getValue()] = toJSON(part.getValue());

  FailureOr<json::Object> files = describeFiles();
  if (failed(files))
    return failure();
  manifest["files"] = std::move(*files);
  if (failed(writeJSON("manifest.json", std::move(manifest))))
    return failure();
  return writeChecksum("manifest.json", "manifest.xxh128");
}
