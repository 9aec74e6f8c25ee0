//===- ModelSource.cpp - A model on disk, whatever its container ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ModelSource.h"

#include "easyquant/Formats/Codecs/GGMLBlocks.h"
#include "easyquant/Formats/DType.h"
#include "easyquant/Support/Checksum.h"

#include "StoredRows.h"
#include "Text.h"
#include "easyquant/Formats/ModelTensors.h"

#include <algorithm>
#include <cmath>
#include <unordered_set>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

namespace {
/// A weight with the bytes behind it.
struct Weight {
  StoredRows stored;
  /// Codes; where they lie in several tensors, `stored` has no type.
  std::optional<StoredWeight> codes = {};
};

/// A part of a weight in codes.
struct Part {
  size_t weight = 0;
  numerics::WeightTensor part = numerics::WeightTensor::Codes;
  bool isOrder = false; ///< in place of `part`
};

constexpr size_t kHashPiece = size_t(16) << 20;
} // namespace

struct ModelSource::Impl {
  Kind kind = Kind::HuggingFace;
  fs::path path, assistant;
  Checkpoint checkpoint;
  std::vector<ModelTensor> tensors;
  std::vector<Weight> weights; ///< of `tensors`
  std::unordered_map<std::string, size_t> indexByName;
  std::unordered_map<std::string, Part> partByName;

  std::string where(const std::string &name) const {
    return path.string() + ": tensor " + quote(name);
  }

  Result<void> resolve();
  /// Lists the weights that a configuration alone calls for: nothing is there to read.
  void expect();
  /// True if the file has the weight in codes; the names of its tensors go into `used`.
  Result<bool> addCodes(const ExpectedTensor &tensor, std::unordered_set<std::string> &used);
  Result<void> addBlocks(size_t index, std::string_view storedName,
                         std::unordered_set<std::string> &used);
  void setCodes(size_t index, StoredWeight codes);
  template <typename T>
  Result<void> readPart(std::string_view name, int64_t firstRow, int64_t rows,
                        std::span<T> out) const;
  Result<void> addWeight(ExpectedTensor &tensor, std::unordered_set<std::string> &used);
  /// A tensor of the container, if it is of that shape and weights can have its type.
  Result<StoredTensor> findTensor(const std::string &name, const std::vector<int64_t> &shape,
                                  bool isVector) const;
  Result<void> convert(size_t index, int64_t firstRow, int64_t rows, std::span<float> out) const;
};

int64_t ModelTensor::elements() const { return elementCount(shape).value_or(0); }
bool ModelTensor::isFloat() const {
  return storedType == "F32" || storedType == "F16" || storedType == "BF16";
}

//===----------------------------------------------------------------------===//
// Opening
//===----------------------------------------------------------------------===//

Result<ModelSource> ModelSource::open(const fs::path &path, const fs::path &assistant) {
  std::error_code error;
  fs::file_status status = fs::status(path, error);
  if (!fs::exists(status))
    return makeError(ErrorCode::NotFound, "{}: no such file or folder", path.string());

  bool isFolder = fs::is_directory(status);
  if (!isFolder && path.extension() == ".safetensors")
    return makeError(
        ErrorCode::InvalidArgument,
        "{}: expected the folder with config.json that holds this file, or a GGUF file",
        path.string());
  const bool isConfiguration = !isFolder && path.extension() == ".json";
  auto impl = std::make_unique<Impl>();
  impl->kind = isFolder || isConfiguration ? Kind::HuggingFace : Kind::GGUF;
  impl->path = path;
  Result<Checkpoint> checkpoint = isConfiguration ? openConfiguration(path)
                                  : isFolder      ? openHuggingFace(path)
                                                  : openGGUF(path);
  if (!checkpoint)
    return Unexpected(checkpoint.error());
  impl->checkpoint = std::move(*checkpoint);
  impl->assistant = assistant;
  if (!assistant.empty())
    if (Result<void> added = addAssistant(impl->checkpoint, path, assistant); !added)
      return Unexpected(added.error());
  ModelConfig &config = impl->checkpoint.config;
  auto isThere = [&](const std::string &name) { return impl->checkpoint.tensors.contains(name); };
  config.hasDraftHead =
      canDraft(config) &&
      (isConfiguration || holdsDraftHead(config, impl->kind == Kind::GGUF, isThere));
  if (isConfiguration)
    impl->expect();
  else if (Result<void> resolved = impl->resolve(); !resolved)
    return Unexpected(resolved.error());
  return ModelSource(std::move(impl));
}

void ModelSource::Impl::expect() {
  for (ExpectedTensor &tensor : expectedTensors(checkpoint.config)) {
    indexByName.emplace(tensor.name, tensors.size());
    tensors.push_back({std::move(tensor.name), std::move(tensor.shape), checkpoint.floatType});
    weights.emplace_back();
  }
}

/// Some writers of quantized checkpoints give every linear a bias, of zeros where the model has
/// none.
static bool isEmptyBias(std::string_view name, const StoredTensor &tensor) {
  return name.ends_with(".bias") &&
         std::ranges::all_of(tensor.data, [](std::byte byte) { return byte == std::byte(0); });
}

/// Finds the bytes of every weight that the configuration calls for, and refuses tensors that it
/// does not: a model whose biases were left out would run and be wrong.
Result<void> ModelSource::Impl::resolve() {
  std::unordered_set<std::string> used;
  for (ExpectedTensor &tensor : expectedTensors(checkpoint.config)) {
    Result<bool> isCodes = addCodes(tensor, used);
    if (!isCodes)
      return makeError(isCodes.error().code, "{}: {}", path.string(), isCodes.error().message);
    if (*isCodes)
      continue;
    if (Result<void> added = addWeight(tensor, used); !added)
      return added;
  }
  std::vector<std::string> unexpected;
  for (const auto &[name, stored] : checkpoint.tensors)
    if (!used.contains(name) &&
        !(kind == Kind::HuggingFace ? isRedundant(checkpoint.config, name)
                                    : isRedundantInGGUF(checkpoint.config, name)) &&
        !(checkpoint.quantization && isEmptyBias(name, stored)))
      unexpected.push_back(name);
  if (unexpected.empty() && checkpoint.quantization && partByName.empty())
    return makeError(ErrorCode::Corrupt,
                     "{}: config.json has a quantization_config, but no linear is quantized by it; "
                     "remove it if the weights are floats",
                     path.string());
  if (unexpected.empty())
    return {};
  return makeError(ErrorCode::Unsupported,
                   "{}: tensor {} (one of {}) has no place in a {} model of this configuration",
                   path.string(), quote(*std::min_element(unexpected.begin(), unexpected.end())),
                   unexpected.size(), checkpoint.config.architecture->name);
}

static FileTensorView viewOf(const StoredTensor &tensor) {
  return {tensor.typeName,
          tensor.shape,
          {reinterpret_cast<const uint8_t *>(tensor.data.data()), tensor.data.size()}};
}

static constexpr std::string_view kWeightSuffix = ".weight";

/// The codes of weight `index`, whose parts then have names.
void ModelSource::Impl::setCodes(size_t index, StoredWeight codes) {
  using numerics::WeightTensor;
  const numerics::Scheme &scheme = codes.site().weight;
  auto name = [&](WeightTensor part) {
    partByName.emplace(partName(codes.site().name, part), Part{index, part});
  };
  name(WeightTensor::Codes);
  name(WeightTensor::Scales);
  if (scheme.hasZeroPoints())
    name(WeightTensor::ZeroPoints);
  if (scheme.minima)
    name(WeightTensor::Minima);
  if (scheme.outer)
    name(WeightTensor::Outer);
  if (!codes.order().empty())
    partByName.emplace(orderName(codes.site().name), Part{.weight = index, .isOrder = true});
  weights[index].codes = std::move(codes);
}

Result<bool> ModelSource::Impl::addCodes(const ExpectedTensor &tensor,
                                         std::unordered_set<std::string> &used) {
  if (!checkpoint.quantization || tensor.shape.size() != 2 || !tensor.name.ends_with(kWeightSuffix))
    return false;
  if (tensor.experts != 0 && tensor.stack.empty()) {
    if (!checkpoint.tensors.contains(expertName(tensor.name, 0)))
      return makeError(ErrorCode::Unsupported,
                       "experts in codes, as of {}, are not supported; give the float checkpoint, "
                       "or a GGUF file",
                       quote(expertName(tensor.name, 0)));
    return false;
  }
  const std::string site = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size());
  const std::string beside = tensor.stack.empty() ? site + "." : tensor.stack + "_";
  auto find = [&](std::string_view name) -> std::optional<FileTensorView> {
    auto found = checkpoint.tensors.find(beside + std::string(name));
    if (found == checkpoint.tensors.end())
      return std::nullopt;
    FileTensorView view = viewOf(found->second);
    if (!tensor.stack.empty() && view.shape.size() > 2) // rows of all experts, one below the other
      view.shape = {view.shape[0] * view.shape[1],
                    elementCount(std::span(view.shape).subspan(2)).value_or(0)};
    return view;
  };
  auto codes = checkpoint.quantization->find(site, tensor.shape[0] * tensor.stackParts,
                                             tensor.shape[1], find);
  if (!codes)
    return Unexpected(codes.error());
  if (!*codes)
    return false;
  for (std::string_view name : checkpoint.quantization->tensorNames())
    used.insert(beside + std::string(name));
  used.insert(tensor.name); // int-quantized has its codes under it
  (*codes)->takePart(tensor.stackParts, tensor.stackPart,
                     tensor.stacksRows ? tensor.shape[0] / tensor.experts : 1);
  indexByName.emplace(tensor.name, tensors.size());
  tensors.push_back({tensor.name, tensor.shape, numerics::toString((*codes)->site().weight)});
  weights.emplace_back();
  (*codes)->rowOrder = tensor.rows;
  setCodes(weights.size() - 1, std::move(**codes));
  return true;
}

/// The codes of a tensor of GGUF, where its type has a scheme. Floats are read as llama.cpp does.
Result<void> ModelSource::Impl::addBlocks(size_t index, std::string_view storedName,
                                          std::unordered_set<std::string> &used) {
  const ModelTensor &tensor = tensors[index];
  const StoredRows &all = weights[index].stored;
  const StoredTensor &stored = all.parts.front();
  const int64_t parts = std::max<int64_t>(1, all.stackParts);
  const auto scheme = schemeOf(stored.type->type);
  if (kind != Kind::GGUF || tensor.shape.size() != 2 || !scheme)
    return {};
  QuantizedSite site{.name = tensor.name.substr(0, tensor.name.size() - kWeightSuffix.size()),
                     .rows = tensor.shape[0] * parts,
                     .columns = tensor.shape[1],
                     .weight = *scheme};
  auto codec = ggmlReader(stored.type->type, site.rows, site.columns);
  if (!codec)
    return makeError(codec.error().code, "{}: {}", where(tensor.name), codec.error().message);
  const CodecTensor blocks = (*codec)->tensors().front();
  const std::string module(storedName.substr(0, storedName.size() - kWeightSuffix.size()));
  // What all of a tensor is multiplied with stands beside it, or is 1; llama.cpp does not round
  // activations by the scale that it may have for them.
  static constexpr float kOne = 1;
  auto codes = StoredWeight::open(
      std::move(site), std::move(*codec),
      [&](std::string_view name) -> std::optional<FileTensorView> {
        if (name == blocks.name)
          return FileTensorView{dtypeName(blocks.dtype), blocks.shape, viewOf(stored).bytes};
        auto found = checkpoint.tensors.find(module + "." + std::string(name));
        if (found != checkpoint.tensors.end())
          return viewOf(found->second);
        return FileTensorView{
            dtypeName(DType::F32), {1}, {reinterpret_cast<const uint8_t *>(&kOne), sizeof(kOne)}};
      });
  if (!codes)
    return makeError(codes.error().code, "{}: {}", path.string(), codes.error().message);
  if (scheme->outer) {
    for (const char *beside : {".scale", ".input_scale"})
      used.insert(module + beside);
    weights[index].stored.parts.front().type = nullptr; // floats are those of the codes, too
  }
  codes->rowOrder = all.order;
  codes->takePart(parts, all.stackPart, tensor.shape[0] / stored.shape.front());
  setCodes(index, std::move(*codes));
  return {};
}

Result<StoredTensor> ModelSource::Impl::findTensor(const std::string &name,
                                                   const std::vector<int64_t> &shape,
                                                   bool isVector) const {
  auto found = checkpoint.tensors.find(name);
  if (found == checkpoint.tensors.end())
    return makeError(ErrorCode::NotFound, "{} is missing; expected shape {}{}", where(name),
                     shapeText(shape),
                     checkpoint.quantization
                         ? ", or the tensors that the quant_method of config.json has in its place"
                         : "");
  const StoredTensor &stored = found->second;
  if (stored.shape != shape)
    return makeError(ErrorCode::Corrupt, "{}: expected shape {}, found {}", where(name),
                     shapeText(shape), shapeText(stored.shape));
  if (!stored.type)
    return makeError(
        ErrorCode::Unsupported, "{}: weights of type {} are not supported; expected {}",
        where(name), stored.typeName,
        kind == Kind::GGUF ? "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q2_K, Q3_K, "
                             "Q4_K, Q5_K, Q6_K, Q8_K, IQ4_NL, IQ4_XS, MXFP4 or NVFP4"
                           : "F32, F16 or BF16");
  // Rows are converted one by one, and a row of a vector is one element.
  if (isVector && stored.type->blockElements != 1)
    return makeError(ErrorCode::Unsupported,
                     "{}: a vector of type {} is not supported; expected F32, F16 or BF16",
                     where(name), stored.typeName);
  return stored;
}

Result<void> ModelSource::Impl::addWeight(ExpectedTensor &tensor,
                                          std::unordered_set<std::string> &used) {
  const bool isGGUF = kind == Kind::GGUF;
  if (isGGUF)
    tensor.takeGGUFStack(
        [&](const std::string &name) { return checkpoint.tensors.contains(name); });
  const std::vector<std::string> names = isGGUF ? std::vector{tensor.ggufName} : tensor.parts();
  Weight weight;
  StoredRows &rows = weight.stored;
  rows.transposed = tensor.isConv1D && !isGGUF;
  if (isGGUF ? tensor.ggufParts > 1 : !tensor.stack.empty()) {
    rows.stackParts = isGGUF ? tensor.ggufParts : tensor.stackParts;
    rows.stackPart = isGGUF ? tensor.isSecondInGGUF : tensor.stackPart;
    rows.stacksRows = isGGUF || tensor.stacksRows;
  }
  for (const std::string &name : names) {
    auto part = findTensor(name, isGGUF ? tensor.ggufShape() : tensor.partShape(),
                           tensor.shape.size() == 1);
    if (!part)
      return Unexpected(part.error());
    if (!rows.parts.empty() && part->typeName != rows.parts.front().typeName)
      return makeError(ErrorCode::Unsupported,
                       "{}: experts of one type are supported, found {} behind {}", where(name),
                       part->typeName, rows.parts.front().typeName);
    rows.parts.push_back(std::move(*part));
    used.insert(name);
  }
  rows.order = isGGUF ? tensor.ggufRows : tensor.rows;
  rows.isLogarithm = isGGUF && tensor.isLogarithm;
  if (!isGGUF)
    rows.offset = tensor.offset;

  indexByName.emplace(tensor.name, tensors.size());
  tensors.push_back({std::move(tensor.name), std::move(tensor.shape), rows.parts.front().typeName});
  weights.push_back(std::move(weight));
  return addBlocks(weights.size() - 1, names.front(), used);
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

Result<void> ModelSource::Impl::convert(size_t index, int64_t firstRow, int64_t rows,
                                        std::span<float> out) const {
  const ModelTensor &tensor = tensors[index];
  const Weight &weight = weights[index];
  if (!weight.stored.isThere() && !weight.codes)
    return makeError(ErrorCode::NotFound,
                     "{}: a configuration alone has no weights; give the folder that holds them",
                     path.string());
  if (!weight.stored.isThere() || !weight.stored.parts.front().type)
    return rows == 0 ? Result<void>() : weight.codes->dequantize(firstRow, rows, out);
  const int64_t all = tensor.shape.front();
  return weight.stored.read(all, tensor.elements() / all, firstRow, rows, out);
}

Result<void> ModelSource::read(std::string_view name, std::span<float> out) const {
  const ModelTensor *tensor = find(name);
  return readRows(name, 0, tensor ? tensor->shape.front() : 0, out);
}

Result<void> ModelSource::readRows(std::string_view name, int64_t firstRow, int64_t rows,
                                   std::span<float> out) const {
  if (impl->partByName.contains(std::string(name)))
    return impl->readPart(name, firstRow, rows, out);
  auto found = impl->indexByName.find(std::string(name));
  if (found == impl->indexByName.end())
    return makeError(ErrorCode::NotFound, "{}: tensor {} is not part of the model",
                     impl->path.string(), quote(name));
  const ModelTensor &tensor = impl->tensors[found->second];
  const int64_t columns = tensor.elements() / tensor.shape.front();
  if (firstRow < 0 || rows < 0 || firstRow > tensor.shape.front() - rows)
    return makeError(ErrorCode::InvalidArgument, "{}: {} rows from row {}: there are only {}",
                     impl->where(tensor.name), rows, firstRow, tensor.shape.front());
  if (out.size() != static_cast<size_t>(rows * columns))
    return makeError(ErrorCode::InvalidArgument, "{}: a buffer of {} floats for {} rows of {}",
                     impl->where(tensor.name), out.size(), rows, columns);
  if (Result<void> done = impl->convert(found->second, firstRow, rows, out); !done)
    return done;

  const StoredRows &stored = impl->weights[found->second].stored;
  if (stored.offset != 0.0f)
    for (float &value : out)
      value += stored.offset;
  if (stored.isLogarithm)
    for (float &value : out) // not a number where it is no -exp
      value = static_cast<float>(std::log(-static_cast<double>(value)));
  if (out.size_bytes() >= MappedFile::kReleaseBytes)
    stored.release();
  auto bad =
      std::find_if(out.begin(), out.end(), [](float value) { return !std::isfinite(value); });
  if (bad != out.end())
    return makeError(ErrorCode::Corrupt,
                     "{}: the value in row {}, column {} is {}; the weights are damaged",
                     impl->where(tensor.name), firstRow + (bad - out.begin()) / columns,
                     (bad - out.begin()) % columns, *bad);
  return {};
}

void ModelSource::release(std::string_view name) const {
  if (auto found = impl->indexByName.find(std::string(name)); found != impl->indexByName.end())
    impl->weights[found->second].stored.release();
}

//===----------------------------------------------------------------------===//
// Codes
//===----------------------------------------------------------------------===//

std::string formats::partName(std::string_view site, numerics::WeightTensor part) {
  using numerics::WeightTensor;
  const char *suffix = part == WeightTensor::Codes        ? "codes"
                       : part == WeightTensor::ZeroPoints ? "zero_point"
                       : part == WeightTensor::Minima     ? "minimum"
                       : part == WeightTensor::Outer      ? "outer"
                                                          : "scale";
  return fmt::format("{}.weight_{}", site, suffix);
}

std::string formats::orderName(std::string_view site) {
  return fmt::format("{}.weight_order", site);
}

const StoredWeight *ModelSource::storedWeight(std::string_view site) const {
  auto found = impl->indexByName.find(std::string(site) + ".weight");
  if (found == impl->indexByName.end() || !impl->weights[found->second].codes)
    return nullptr;
  return &*impl->weights[found->second].codes;
}

std::vector<std::string> ModelSource::notes() const {
  std::vector<std::string> notes;
  if (impl->checkpoint.config.isTextPart)
    notes.emplace_back("the parts for pictures and sound are left out");
  if (const ModelConfig &config = impl->checkpoint.config;
      config.draftLayers != 0 && !config.hasDraftHead)
    notes.emplace_back(config.draftLayers == 1
                           ? "it has no weights of the head that drafts tokens, or one with an "
                             "embedding of its own: drafts are left out"
                           : "the heads that draft tokens are left out: more than one is not "
                             "supported");
  if (const auto &quantization = impl->checkpoint.quantization)
    notes.insert(notes.end(), quantization->notes.begin(), quantization->notes.end());
  return notes;
}

bool ModelSource::isQuantized() const {
  bool hasCodes = false;
  for (size_t i = 0; i < impl->weights.size(); ++i) {
    const bool isKept = impl->weights[i].codes.has_value();
    hasCodes |= isKept && impl->tensors[i].name.starts_with(config().architecture->layerPrefix);
    if (!isKept && !impl->tensors[i].isFloat())
      return false;
  }
  return hasCodes;
}

std::optional<std::vector<int64_t>> ModelSource::partShape(std::string_view name) const {
  auto found = impl->partByName.find(std::string(name));
  if (found == impl->partByName.end())
    return std::nullopt;
  const QuantizedSite &site = impl->weights[found->second.weight].codes->site();
  if (found->second.isOrder)
    return std::vector{site.columns};
  switch (found->second.part) {
  case numerics::WeightTensor::Codes:
    return std::vector{site.rows, site.columns};
  case numerics::WeightTensor::Outer:
    return std::vector{site.rows, int64_t(1)};
  default:
    return std::vector{site.rows, numerics::groupCount(site.columns, site.weight.groupSize)};
  }
}

template <typename T>
Result<void> ModelSource::Impl::readPart(std::string_view name, int64_t firstRow, int64_t rows,
                                         std::span<T> out) const {
  auto found = partByName.find(std::string(name));
  if (found == partByName.end())
    return makeError(ErrorCode::NotFound, "{}: tensor {} is not part of the model", path.string(),
                     quote(name));
  if (rows == 0)
    return {};
  const StoredWeight &weight = *weights[found->second.weight].codes;
  if constexpr (std::is_same_v<T, int32_t>)
    if (found->second.isOrder && firstRow >= 0 && rows <= std::ssize(weight.order()) - firstRow &&
        rows == std::ssize(out)) {
      std::ranges::copy(weight.order().subspan(firstRow, rows), out.begin());
      return {};
    }
  auto read = weight.codes(firstRow, rows);
  if (!read)
    return makeError(read.error().code, "{}: {}", path.string(), read.error().message);
  std::span<const T> values;
  if (found->second.isOrder) {
    // It was asked for as another type, or with another length.
  } else if constexpr (std::is_same_v<T, int8_t>) {
    if (found->second.part == numerics::WeightTensor::Codes)
      values = read->codes;
  } else if constexpr (std::is_same_v<T, int32_t>) {
    if (found->second.part == numerics::WeightTensor::ZeroPoints)
      values = read->params.zeroPoints;
  } else if (found->second.part == numerics::WeightTensor::Scales) {
    values = read->params.scales;
  } else if (found->second.part == numerics::WeightTensor::Minima) {
    values = read->params.minima;
  } else if (found->second.part == numerics::WeightTensor::Outer) {
    read->params.outer.resize(rows, read->params.outerOf(0)); // of the tensor
    values = read->params.outer;
  }
  if (values.empty() || values.size() != out.size())
    return makeError(ErrorCode::InvalidArgument, "{}: a buffer of {} elements for {}",
                     where(std::string(name)), out.size(), values.size());
  std::ranges::copy(values, out.begin());
  return {};
}

Result<void> ModelSource::readRows(std::string_view name, int64_t firstRow, int64_t rows,
                                   std::span<int8_t> out) const {
  return impl->readPart(name, firstRow, rows, out);
}
Result<void> ModelSource::readRows(std::string_view name, int64_t firstRow, int64_t rows,
                                   std::span<int32_t> out) const {
  return impl->readPart(name, firstRow, rows, out);
}

//===----------------------------------------------------------------------===//
// What the source says of itself
//===----------------------------------------------------------------------===//

ModelSource::ModelSource(std::unique_ptr<Impl> impl) : impl(std::move(impl)) {}
ModelSource::ModelSource(ModelSource &&) noexcept = default;
ModelSource &ModelSource::operator=(ModelSource &&) noexcept = default;
ModelSource::~ModelSource() = default;

ModelSource::Kind ModelSource::kind() const { return impl->kind; }
std::string_view ModelSource::kindName() const {
  return impl->kind == Kind::HuggingFace ? "huggingface" : "gguf";
}
const fs::path &ModelSource::path() const { return impl->path; }
const fs::path &ModelSource::assistantPath() const { return impl->assistant; }
const ModelConfig &ModelSource::config() const { return impl->checkpoint.config; }
std::span<const ModelTensor> ModelSource::tensors() const { return impl->tensors; }

std::string ModelSource::name() const {
  return impl->kind == Kind::GGUF ? impl->path.stem().string() : nameOfModel(impl->path);
}

const ModelTensor *ModelSource::find(std::string_view name) const {
  auto found = impl->indexByName.find(std::string(name));
  return found == impl->indexByName.end() ? nullptr : &impl->tensors[found->second];
}

int64_t ModelSource::parameters() const {
  int64_t total = 0;
  for (const ModelTensor &tensor : impl->tensors)
    total += tensor.elements();
  return total;
}

std::map<std::string, int64_t> ModelSource::storedTypes() const {
  std::map<std::string, int64_t> counts;
  for (const ModelTensor &tensor : impl->tensors)
    ++counts[tensor.storedType];
  return counts;
}

Result<std::string> ModelSource::hash() const {
  Checksum checksum;
  for (const MappedFile *file : impl->checkpoint.files) {
    std::span<const std::byte> rest = file->bytes();
    while (!rest.empty()) {
      std::span<const std::byte> piece = rest.first(std::min(rest.size(), kHashPiece));
      checksum.update(piece.data(), piece.size());
      file->release(piece);
      rest = rest.subspan(piece.size());
    }
  }
  return checksum.hex();
}
