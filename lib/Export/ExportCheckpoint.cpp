//===- ExportCheckpoint.cpp - A quantized model as others store it --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CheckpointChange.h"
#include "GGUFCheckpoint.h"
#include "OnnxModel.h"

#include "easyquant/Dialect/Equant/IR/TensorParallel.h"
#include "easyquant/Export/HuggingFaceWriter.h"
#include "easyquant/Export/Passes.h"
#include "easyquant/Formats/ShardedSafetensors.h"
#include "easyquant/Support/Folders.h"
#include "easyquant/Support/ProgressAction.h"
#include "easyquant/Support/Threads.h"
#include "easyquant/Support/WriteFile.h"

namespace easyquant {
#define GEN_PASS_DEF_EXPORTCHECKPOINT
#include "easyquant/Export/Passes.h.inc"
} // namespace easyquant

using namespace mlir;
using namespace easyquant;
using namespace easyquant::equant;
using formats::CodecTensor;
using formats::DType;
using formats::SafetensorsWriter;
using formats::ShardedSafetensorsWriter;
namespace fs = std::filesystem;

namespace {

/// Writes the tensors of a checkpoint, one weight at a time.
class CheckpointWriter {
public:
  CheckpointWriter(const Checkpoint &checkpoint, const ConstantReader &reader)
      : checkpoint(checkpoint), reader(reader) {}

  Result<void> write(const fs::path &folder, int64_t maxShardBytes, unsigned threads,
                     llvm::function_ref<void(int64_t)> progress);

private:
  std::vector<SafetensorsWriter::Tensor> declarations() const;
  Result<void> writeFloats(const CheckpointTensor &tensor) {
    return readFloats(checkpoint, tensor, reader, [&](std::span<const std::byte> bytes) {
      return file->write(tensor.name, bytes);
    });
  }
  Result<void> writeWeight(const StoredSite &site, llvm::ThreadPoolInterface &pool);
  std::vector<CodecTensor> inputTensors(const StoredSite &site) const {
    return checkpoint.format.inputTensors(site.stored.site);
  }

  const Checkpoint &checkpoint;
  const ConstantReader &reader;
  std::optional<ShardedSafetensorsWriter> file;
};

struct ExportCheckpoint : public easyquant::impl::ExportCheckpointBase<ExportCheckpoint> {
  using ExportCheckpointBase::ExportCheckpointBase;

  void runOnOperation() override {
    if (failed(run()))
      signalPassFailure();
    markAllAnalysesPreserved();
  }

private:
  LogicalResult run();
  LogicalResult exportGraph(const formats::CheckpointFormat &format, const ConstantReader &reader);
  LogicalResult checkChange(const Checkpoint &checkpoint, const ConstantReader &reader);
  Result<void> writeFolder(const Checkpoint &checkpoint, const ConstantReader &reader);
  /// config.json and what else lies beside the weights.
  Result<void> writeCompanions(const ConstantReader &reader, DType floats,
                               const Json &quantization = {});
};

} // namespace

/// Under the name of its linear, as a checkpoint has it.
static std::string nameOf(const StoredSite &site, const CodecTensor &tensor) {
  return site.name() + "." + tensor.name;
}

std::vector<SafetensorsWriter::Tensor> CheckpointWriter::declarations() const {
  std::vector<SafetensorsWriter::Tensor> declared;
  for (const CheckpointTensor &tensor : checkpoint.tensors) {
    if (tensor.floats) {
      declared.push_back(
          {tensor.name, std::string(formats::dtypeName(checkpoint.floats)), tensor.shape});
      continue;
    }
    for (const auto &all : {tensor.site->stored.codec->tensors(), inputTensors(*tensor.site)})
      for (const CodecTensor &part : all)
        declared.push_back(
            {nameOf(*tensor.site, part), std::string(formats::dtypeName(part.dtype)), part.shape});
  }
  return declared;
}

Result<void> CheckpointWriter::writeWeight(const StoredSite &site,
                                           llvm::ThreadPoolInterface &pool) {
  auto append = [&](const CodecTensor &tensor, std::span<const uint8_t> bytes) {
    return file->write(nameOf(site, tensor), std::as_bytes(bytes));
  };
  if (auto done = readWeight(site, reader, pool, append); !done)
    return done;
  for (const CodecTensor &tensor : inputTensors(site))
    if (auto done = append(tensor, tensor.constant); !done)
      return done;
  return {};
}

Result<void> CheckpointWriter::write(const fs::path &folder, int64_t maxShardBytes,
                                     unsigned threads, llvm::function_ref<void(int64_t)> progress) {
  // transformers asks for the key "format".
  auto created = ShardedSafetensorsWriter::create(folder, "model", declarations(), maxShardBytes,
                                                  {{"format", "pt"}});
  if (!created)
    return Unexpected(created.error());
  file.emplace(std::move(*created));
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
  int64_t written = 0;
  for (const CheckpointTensor &tensor : checkpoint.tensors) {
    if (auto done = tensor.floats ? writeFloats(tensor) : writeWeight(*tensor.site, pool); !done)
      return done;
    progress(++written);
  }
  return file->finish();
}

Result<void> ExportCheckpoint::writeFolder(const Checkpoint &checkpoint,
                                           const ConstantReader &reader) {
  const fs::path folder = output.getValue();
  if (auto made = makeFolders(folder); !made)
    return made;
  auto progress = [&](int64_t done) {
    ProgressAction::report(&getContext(), "export", done, std::ssize(checkpoint.tensors));
  };
  if (checkpoint.format.isGGUF())
    return writeGGUF(checkpoint, reader, {folder / "model.gguf", vocabulary.getValue()}, threads,
                     progress);
  if (auto done =
          CheckpointWriter(checkpoint, reader).write(folder, maxShardBytes, threads, progress);
      !done)
    return done;
  return writeCompanions(reader, checkpoint.floats, checkpoint.configuration());
}

Result<void> ExportCheckpoint::writeCompanions(const ConstantReader &reader, DType floats,
                                               const Json &quantization) {
  const fs::path folder = output.getValue();
  const std::string config =
      formats::huggingFaceConfigText(reader.source().config(), floats, quantization);
  if (auto done = writeFile(folder / "config.json", config); !done)
    return done;
  if (auto done = formats::copyCompanions(reader.source(), folder); !done)
    return done;
  for (const std::string &name : copyFiles) {
    const fs::path file = name;
    std::error_code error;
    fs::copy_file(file, folder / file.filename(), fs::copy_options::overwrite_existing, error);
    if (error)
      return makeError(ErrorCode::IO, "{}: {}", name, error.message());
  }
  return {};
}

LogicalResult ExportCheckpoint::exportGraph(const formats::CheckpointFormat &format,
                                            const ConstantReader &reader) {
  OnnxModel model(format, opset < 0 ? std::nullopt : std::optional<int64_t>(opset));
  if (failed(model.build(getOperation(), reader)))
    return failure();
  auto progress = [&](int64_t done) {
    ProgressAction::report(&getContext(), "export", done, model.constants());
  };
  Result<void> written = makeFolders(output.getValue());
  if (written)
    written = model.write(output.getValue(), reader, threads, progress);
  if (written)
    written = writeCompanions(reader, DType::F32);
  if (!written)
    return emitError(getOperation().getLoc()) << written.error().message;
  return success();
}

/// Fails where codes that are kept do not mean the same there, unless that is accepted.
LogicalResult ExportCheckpoint::checkChange(const Checkpoint &checkpoint,
                                            const ConstantReader &reader) {
  const Location loc = getOperation().getLoc();
  llvm::DefaultThreadPool pool(llvm::hardware_concurrency(threads));
  auto change = measureChange(checkpoint, reader, pool);
  if (!change)
    return emitError(loc) << change.error().message;
  if (!change->isAny())
    return success();
  if (!closest)
    return emitError(loc) << checkpoint.format.name << " does not hold the numbers of "
                          << reader.source().path().filename().string() << ": the closest that it "
                          << "holds, with which " << change->describe()
                          << ", are accepted by --closest";
  emitRemark(loc) << checkpoint.format.name << " holds the closest numbers: " << change->describe();
  return success();
}

LogicalResult ExportCheckpoint::run() {
  ModuleOp module = getOperation();
  auto fail = [&] { return emitError(module.getLoc()); };
  if (output.empty())
    return fail() << "option output is missing: the folder to write the checkpoint to";
  if (auto chosen = chooseThreads(threads); !chosen)
    return fail() << chosen.error().message;
  auto format = formats::findCheckpointFormat(exportFormat.getValue());
  if (!format)
    return fail() << format.error().message;
  if (degreeOf(module) > 1)
    return fail() << "the module is shared out among ranks; export it before equant-shard";
  FailureOr<ConstantReader> reader = ConstantReader::open(module);
  if (failed(reader))
    return failure();
  if ((*format)->isGraph())
    return exportGraph(**format, *reader);
  Checkpoint checkpoint(**format);
  if (failed(checkpoint.collect(module, *reader)))
    return failure();
  if (failed(checkChange(checkpoint, *reader)))
    return failure();
  if (auto written = writeFolder(checkpoint, *reader); !written)
    return fail() << written.error().message;
  return success();
}
