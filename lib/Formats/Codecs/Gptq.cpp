//===- Gptq.cpp - GPTQ's packed weights -----------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
//   qweight  I32 [K·b/32, N]   codes of a row of W one behind the other, down a column
//   qzeros   I32 [G, N·b/32]   zero points of a group, row by row of W; version 1 has them less 1
//   scales   F16 [G, N]
//   g_idx    I32 [K]           the group of each column
//
// Codes and zero points count from 0 on, so that those of symmetric schemes have 2^(b-1) as their
// zero point. A code of 3 bits may lie in two words.
//
//===----------------------------------------------------------------------===//

#include "BitString.h"
#include "CheckpointFormats.h"
#include "StoredFormats.h"

#include "easyquant/Formats/ModelTensors.h"

#include <cstring>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::QuantizedMatrix;
using numerics::WeightTensor;

namespace {

class GptqCodec final : public WeightCodec {
public:
  GptqCodec(const numerics::Scheme &scheme, int64_t rows, int64_t columns, int version)
      : WeightCodec(scheme, rows, columns), version(version) {}

  std::vector<CodecTensor> tensors() const override;
  void pack(int64_t firstRow, const QuantizedMatrix &block,
            numerics::PackedWeight &out) const override;
  Result<std::vector<uint8_t>> take(const CodecTensor &tensor,
                                    numerics::PackedWeight &packed) const override;

protected:
  void unpackRows(int64_t firstRow, const StoredParts &stored,
                  QuantizedMatrix &rows) const override;

private:
  int64_t zeroWords() const { return wordsOf(rows, scheme.bits); }
  /// The zero points of group g.
  template <typename Byte> BitString<Byte> zeros(Byte *data, int64_t g) const {
    return {data + 4 * g * zeroWords(), 1, scheme.bits};
  }
  /// The codes of row n.
  template <typename Byte> BitString<Byte> codes(Byte *data, int64_t n) const {
    return {data + 4 * n, rows, scheme.bits};
  }
  uint32_t mask() const { return (1u << scheme.bits) - 1; }
  /// A zero point of 0 has no field of version 1: it would be all ones, and readers that add 1 to
  /// whole words carry into the next one.
  uint32_t storedZero(uint32_t field) const { return version == 1 ? (field - 1) & mask() : field; }

  const int version;
};

} // namespace

std::vector<CodecTensor> GptqCodec::tensors() const {
  CodecTensor zeroPoints{"qzeros", DType::I32, {groups(), zeroWords()}};
  if (scheme.symmetric) {
    zeroPoints.constant.resize(static_cast<size_t>(4 * groups() * zeroWords()));
    for (int64_t g = 0; g < groups(); ++g)
      for (int64_t n = 0; n < rows; ++n)
        zeros(zeroPoints.constant.data(), g).put(n, storedZero(fieldOf(0)));
  } else {
    zeroPoints.part = WeightTensor::ZeroPoints;
  }
  CodecTensor index{"g_idx", DType::I32, {columns}};
  index.constant.resize(static_cast<size_t>(4 * columns));
  for (int64_t k = 0; k < columns; ++k) {
    const int32_t group = scheme.groupSize ? static_cast<int32_t>(k / scheme.groupSize) : 0;
    std::memcpy(index.constant.data() + 4 * k, &group, 4);
  }
  return {{"qweight", DType::I32, {wordsOf(columns, scheme.bits), rows}, WeightTensor::Codes},
          std::move(zeroPoints),
          {"scales", scaleType(scheme.scales), {groups(), rows}, WeightTensor::Scales},
          std::move(index)};
}

void GptqCodec::pack(int64_t firstRow, const QuantizedMatrix &block,
                     numerics::PackedWeight &out) const {
  uint8_t *words = out[WeightTensor::Codes].data();
  // Neighbouring rows lie side by side.
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t r = 0; r < block.rows; ++r)
      codes(words, firstRow + r).put(k, fieldOf(block.codes[r * columns + k]));
  for (int64_t g = 0; g < groups(); ++g)
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t index = paramIndex(block.params, r, g);
      storeScale(out[WeightTensor::Scales].data(), g * rows + firstRow + r,
                 block.params.scales[index], scheme.scales);
      if (!scheme.symmetric)
        zeros(out[WeightTensor::ZeroPoints].data(), g)
            .put(firstRow + r, storedZero(fieldOf(zeroPointOf(scheme, block.params, index))));
    }
}

Result<std::vector<uint8_t>> GptqCodec::take(const CodecTensor &tensor,
                                             numerics::PackedWeight &packed) const {
  if (version == 1 && tensor.part == WeightTensor::ZeroPoints)
    for (int64_t g = 0; g < groups(); ++g)
      for (int64_t n = 0; n < rows; ++n)
        if (zeros(packed[WeightTensor::ZeroPoints].data(), g).get(n) == mask())
          return makeError(ErrorCode::Unsupported,
                           "the zero point of row {}, group {} is 0 (the least code), and gptq "
                           "stores zero points less 1; take gptq_v2, which stores them as they "
                           "are, or a symmetric scheme",
                           n, g);
  return WeightCodec::take(tensor, packed);
}

void GptqCodec::unpackRows(int64_t firstRow, const StoredParts &stored,
                           QuantizedMatrix &block) const {
  for (int64_t k = 0; k < columns; ++k)
    for (int64_t r = 0; r < block.rows; ++r)
      block.codes[r * columns + k] =
          static_cast<int8_t>(codeOf(codes(stored[WeightTensor::Codes], firstRow + r).get(k)));
  for (int64_t r = 0; r < block.rows; ++r)
    for (int64_t g = 0; g < groups(); ++g) {
      const int64_t index = r * groups() + g;
      block.params.scales[index] =
          numerics::loadScale(stored[WeightTensor::Scales], g * rows + firstRow + r, scheme.scales);
      if (!scheme.symmetric) {
        const uint32_t field = zeros(stored[WeightTensor::ZeroPoints], g).get(firstRow + r);
        block.params.zeroPoints[index] = codeOf(version == 1 ? (field + 1) & mask() : field);
      }
    }
}

/// What a configuration and --export call it.
static const char *nameOfVersion(int version) { return version == 1 ? "gptq" : "gptq_v2"; }

static Result<std::unique_ptr<WeightCodec>> makeGptq(const numerics::Scheme &scheme, int64_t rows,
                                                     int64_t columns, int version) {
  const char *name = nameOfVersion(version);
  if (auto ok = checkStoredWeight(name, scheme, rows, columns); !ok)
    return Unexpected(ok.error());
  const bool isWidth = scheme.bits == 2 || scheme.bits == 3 || scheme.bits == 4 || scheme.bits == 8;
  if (!scheme.isInteger() || !isWidth)
    return makeError(ErrorCode::Unsupported,
                     "{} holds integers of 2, 3, 4 or 8 bits, found {}; take another scheme, or "
                     "compressed-tensors",
                     name, numerics::toString(scheme));
  for (auto [size, what] : {std::pair(rows, "rows"), {columns, "columns"}})
    if (size * scheme.bits % 32 != 0)
      return makeError(ErrorCode::Unsupported,
                       "{} packs {} bits into words of 32: {} {} do not fill them; leave the site "
                       "float, or take compressed-tensors",
                       name, scheme.bits, size, what);
  return std::make_unique<GptqCodec>(scheme, rows, columns, version);
}

Result<std::unique_ptr<WeightCodec>> formats::gptqCodec(const numerics::Scheme &scheme,
                                                        int64_t rows, int64_t columns) {
  return makeGptq(scheme, rows, columns, 1);
}

Result<std::unique_ptr<WeightCodec>> formats::gptqV2Codec(const numerics::Scheme &scheme,
                                                          int64_t rows, int64_t columns) {
  return makeGptq(scheme, rows, columns, 2);
}

//===----------------------------------------------------------------------===//
// The format
//===----------------------------------------------------------------------===//

namespace {

class GptqFormat final : public CheckpointFormat {
public:
  explicit GptqFormat(int version)
      : CheckpointFormat(nameOfVersion(version), /*isHalf=*/true), version(version) {}

  Result<std::unique_ptr<WeightCodec>> codecFor(const QuantizedSite &site) const override {
    if (auto ok = checkWeightOnly(name, site); !ok)
      return Unexpected(ok.error());
    if (auto ok = checkHalfScales(name, site); !ok)
      return Unexpected(ok.error());
    return makeGptq(site.weight, site.rows, site.columns, version);
  }
  Json configuration(std::span<const QuantizedSite> sites,
                     std::span<const std::string> floats) const override;

private:
  const int version;
};

} // namespace

/// What `dynamic` calls a module: a regular expression that no other name fits.
static std::string patternOf(const std::string &site) {
  std::string pattern = "^";
  for (char c : site) {
    if (c == '.')
      pattern += '\\';
    pattern += c;
  }
  return pattern + '$';
}

/// Members of the configuration that a site may have of its own.
static Json::Object describeGptq(const numerics::Scheme &scheme) {
  return {
      {"bits", scheme.bits}, {"group_size", configuredGroup(scheme)}, {"sym", scheme.symmetric}};
}

Json GptqFormat::configuration(std::span<const QuantizedSite> sites,
                               std::span<const std::string> floats) const {
  const numerics::Scheme &common = sites.front().weight;
  Json::Object config = describeGptq(common), dynamic;
  bool hasZeroPoints = false;
  for (const QuantizedSite &site : sites) {
    hasZeroPoints |= !site.weight.symmetric;
    if (site.weight != common)
      dynamic["+:" + patternOf(site.name)] = describeGptq(site.weight);
  }
  for (const std::string &site : floats)
    if (site != kHeadModule) // which has a member of its own
      dynamic["-:" + patternOf(site)] = Json::Object();
  config["quant_method"] = "gptq";
  config["checkpoint_format"] = name;
  config["desc_act"] = false;
  config["static_groups"] = false;
  config[kHeadModule] = false;
  config["pack_dtype"] = "int32";
  if (!dynamic.empty())
    config["dynamic"] = std::move(dynamic);
  // gptqmodel takes asymmetric files of version 1 from writers alone that store zero points as it
  // does itself from this version on.
  if (version == 1 && hasZeroPoints)
    config["meta"] = Json::Object{{"quantizer", Json::Array{"gptqmodel:0.9.0"}}};
  return config;
}

const CheckpointFormat *formats::gptqFormat(int version) {
  static const GptqFormat one(1), two(2);
  return version == 1 ? &one : &two;
}

//===----------------------------------------------------------------------===//
// Reading: `quantization_config` of AutoGPTQ, GPTQModel and transformers
//===----------------------------------------------------------------------===//

namespace {

/// What all linears are, or those that a pattern of `dynamic` matches.
struct GptqSettings {
  int64_t bits = 4, groupSize = -1;

  void read(FieldReader &fields) {
    fields.optional("bits", bits, Bounds{2, 8});
    fields.optional("group_size", groupSize, Bounds{-1, kMaxInt32});
  }
};

struct GptqRule {
  NamePattern pattern;
  std::optional<GptqSettings> settings; ///< nothing: its linears are float
};

class GptqWeights final : public StoredWeights {
public:
  GptqWeights(GptqSettings common, int version) : common(common), version(version) {}

  Result<void> readRules(const Json &dynamic, std::string_view file);
  Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows, int64_t columns,
                                           const TensorFinder &tensor) const override;
  std::span<const std::string_view> tensorNames() const override {
    static constexpr std::string_view names[] = {"qweight", "qzeros", "scales", "g_idx"};
    return names;
  }

private:
  std::optional<GptqSettings> settingsOf(const std::string &name) const;

  const GptqSettings common;
  const int version;
  std::vector<GptqRule> rules;
};

} // namespace

Result<void> GptqWeights::readRules(const Json &dynamic, std::string_view file) {
  for (const auto &[key, value] : dynamic.members()) {
    const std::string place = fmt::format("{}: quantization_config: dynamic", file);
    const bool isFloat = key.starts_with("-:");
    auto pattern =
        NamePattern::compile(isFloat || key.starts_with("+:") ? key.substr(2) : key, place);
    if (!pattern)
      return Unexpected(pattern.error());
    GptqRule rule{std::move(*pattern), {}};
    if (!isFloat) {
      if (!value.isObject())
        return makeError(ErrorCode::Corrupt, "{}: {}: expected an object, found {}", place,
                         Json::describe(key), value.describe());
      rule.settings = common;
      FieldReader fields(value, place, {.nullIsAbsent = true});
      rule.settings->read(fields);
      if (fields.failed())
        return fields.result();
    }
    rules.push_back(std::move(rule));
  }
  return {};
}

std::optional<GptqSettings> GptqWeights::settingsOf(const std::string &name) const {
  for (const GptqRule &rule : rules)
    if (rule.pattern.matches(name))
      return rule.settings;
  return common;
}

Result<std::optional<StoredWeight>> GptqWeights::find(const std::string &name, int64_t rows,
                                                      int64_t columns,
                                                      const TensorFinder &tensor) const {
  if (!tensor("qweight"))
    return std::nullopt;
  const auto settings = settingsOf(name);
  if (!settings)
    return makeError(ErrorCode::Corrupt,
                     "tensor '{}.qweight': quantization_config says that this linear is float",
                     name);
  auto codec = codecBesideZeroPoints(
      name, static_cast<int>(settings->bits), settings->groupSize, columns, tensor,
      [&](const numerics::Scheme &scheme) { return makeGptq(scheme, rows, columns, version); });
  if (!codec)
    return Unexpected(codec.error());
  const numerics::Scheme scheme = (*codec)->scheme;
  std::vector<int32_t> groups;
  if (const auto index = tensor("g_idx")) {
    auto read = readGroupIndex(name + ".g_idx", scheme, columns, *index);
    if (!read)
      return Unexpected(read.error());
    groups = std::move(*read);
  }
  // It has been read: the codec shall find what it writes.
  const CodecTensor inOrder = (*codec)->tensors()[3];
  auto weight = StoredWeight::open(
      {.name = name, .rows = rows, .columns = columns, .weight = scheme}, std::move(*codec),
      [&](std::string_view suffix) {
        return suffix == inOrder.name
                   ? FileTensorView{dtypeName(inOrder.dtype), inOrder.shape, inOrder.constant}
                   : tensor(suffix);
      });
  if (!weight)
    return Unexpected(weight.error());
  weight->setGroups(std::move(groups));
  return std::optional(std::move(*weight));
}

Result<std::unique_ptr<StoredWeights>> formats::readGptq(const Json &config,
                                                         std::string_view file) {
  const std::string place = fmt::format("{}: quantization_config", file);
  FieldReader fields(config, place, {.nullIsAbsent = true});
  GptqSettings common;
  common.read(fields);
  // Files of AutoGPTQ, which has version 1 alone, do not say it.
  std::string version = "gptq", pack = "int32";
  const bool saysVersion = fields.has("checkpoint_format");
  fields.optional("checkpoint_format", version);
  fields.optional("pack_dtype", pack);
  if (version != "gptq" && version != "gptq_v2")
    fields.failInWords(ErrorCode::Unsupported,
                       "checkpoint_format {} is not supported; expected \"gptq\" or \"gptq_v2\"",
                       Json::describe(version));
  if (pack != "int32")
    fields.failInWords(ErrorCode::Unsupported, "pack_dtype {} is not supported; expected \"int32\"",
                       Json::describe(pack));
  const Json *dynamic = fields.find("dynamic");
  if (dynamic)
    fields.check(dynamic->isObject(), "dynamic", dynamic->describe(), "an object");
  if (fields.failed())
    return Unexpected(fields.result().error());
  auto weights = std::make_unique<GptqWeights>(common, version == "gptq" ? 1 : 2);
  if (!saysVersion)
    weights->notes.emplace_back(
        "quantization_config names no checkpoint_format, which is taken for "
        "\"gptq\": zero points are stored less 1");
  if (dynamic)
    if (auto read = weights->readRules(*dynamic, file); !read)
      return Unexpected(read.error());
  return std::unique_ptr<StoredWeights>(std::move(weights));
}
