//===- CompressedTensorsWeights.cpp - Reading compressed-tensors ----------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// `quantization_config` of vLLM's llm-compressor (compressed-tensors 0.20).
//
//===----------------------------------------------------------------------===//

#include "CompressedTensors.h"
#include "StoredFormats.h"

#include "easyquant/Numerics/Hadamard.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;
using numerics::CodeFormat;
using numerics::Granularity;
using numerics::ScaleFormat;
using numerics::Scheme;

namespace {

/// QuantizationArgs: how a tensor is quantized.
struct Arguments {
  int64_t bits = 8, groupSize = 0;
  std::string type = "int", strategy;
  bool symmetric = true, dynamic = false;

  void read(FieldReader &fields);
  bool isFP8() const { return type == "float" && bits == 8; }
  bool isFP4() const { return type == "float" && bits == 4; }
};

/// What a target names: a class, a linear or a pattern of linears.
struct Target {
  std::string name;
  std::optional<NamePattern> pattern;

  bool matches(const std::string &site) const {
    return pattern ? pattern->matches(site) : name == site || name == "Linear";
  }
};

struct Group {
  std::string name, format;
  std::vector<Target> targets;
  Arguments weights;
  std::optional<Arguments> inputs;
};

/// Hadamard rotations of what linears read, and of the columns of their weights.
struct Rotation {
  int64_t block = 0;
  struct Place {
    std::vector<Target> targets, ignored;

    bool has(const std::string &site) const {
      auto matches = [&](const Target &target) { return target.matches(site); };
      return std::ranges::any_of(targets, matches) && std::ranges::none_of(ignored, matches);
    }
  };
  std::vector<Place> inputs, weights;
};

class CompressedTensorsWeights final : public StoredWeights {
public:
  Result<void> read(const Json &config, std::string_view file);
  Result<std::optional<StoredWeight>> find(const std::string &name, int64_t rows, int64_t columns,
                                           const TensorFinder &tensor) const override;
  std::span<const std::string_view> tensorNames() const override {
    static constexpr std::string_view names[] = {
        "weight_packed", "weight_scale",     "weight_zero_point",
        "weight_shape",  "weight_g_idx",     "weight_global_scale",
        "input_scale",   "input_zero_point", "input_global_scale"};
    return names;
  }

private:
  Result<Group> readGroup(const std::string &name, const Json &config, std::string_view place,
                          const std::string &format) const;
  Result<void> readTransforms(const Json &config, const std::string &place);
  Result<Rotation> readRotation(const Json &config, const std::string &place) const;
  /// The block of columns that the weight of a linear is rotated in; 0: it is in the plain basis.
  Result<int64_t> blockOf(const std::string &site, int64_t columns) const;
  /// The one that targets a linear; an exact name comes before patterns, and these before classes.
  const Group *groupOf(const std::string &site) const;

  std::vector<Group> groups;
  std::vector<Rotation> rotations;
};

} // namespace

void Arguments::read(FieldReader &fields) {
  fields.optional("num_bits", bits, Bounds{1, 16});
  fields.optional("type", type);
  fields.checkText(type == "int" || type == "float", "type", type, "\"int\" or \"float\"");
  fields.optional("symmetric", symmetric);
  fields.optional("strategy", strategy);
  fields.optional("group_size", groupSize, Bounds{-1, kMaxInt32});
  if (const Json *found = fields.find("dynamic"); found && found->is("local"))
    dynamic = true; // of groups, in units of a static scale
  else
    fields.optional("dynamic", dynamic);
  // Old files leave the strategy to what else there is.
  if (strategy.empty())
    strategy = groupSize > 0 ? "group" : groupSize == -1 ? "channel" : dynamic ? "token" : "tensor";
}

static Result<std::vector<Target>> readTargets(const std::vector<std::string> &names,
                                               const std::string &place) {
  std::vector<Target> targets;
  for (const std::string &name : names) {
    Target target{name, {}};
    if (name.starts_with("re:")) {
      auto pattern = NamePattern::compile(name.substr(3), place);
      if (!pattern)
        return Unexpected(pattern.error());
      target.pattern = std::move(*pattern);
    }
    targets.push_back(std::move(target));
  }
  return targets;
}

Result<Group> CompressedTensorsWeights::readGroup(const std::string &name, const Json &config,
                                                  std::string_view place,
                                                  const std::string &format) const {
  Group group;
  group.name = name;
  group.format = format;
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::vector<std::string> targets;
  fields.required("targets", targets);
  fields.check(fields.has("weights"), "weights", "nothing", "an object");
  fields.object("weights", [&](FieldReader &weights) { group.weights.read(weights); });
  fields.object("input_activations",
                [&](FieldReader &inputs) { group.inputs.emplace().read(inputs); });
  if (fields.has("output_activations"))
    fields.failInWords(ErrorCode::Unsupported, "output_activations are not supported");
  fields.optional("format", group.format);
  if (fields.failed())
    return Unexpected(fields.result().error());
  auto read = readTargets(targets, std::string(place) + ": targets");
  if (!read)
    return Unexpected(read.error());
  group.targets = std::move(*read);
  return group;
}

Result<Rotation> CompressedTensorsWeights::readRotation(const Json &config,
                                                        const std::string &place) const {
  Rotation rotation;
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::string type;
  bool isRandom = false;
  fields.required("type", type);
  fields.optional("randomize", isRandom);
  fields.optional("head_dim", rotation.block, Bounds{0, kMaxInt32});
  const Json *apply = fields.find("apply");
  fields.check(apply && apply->isArray(), "apply", apply ? apply->describe() : "nothing",
               "an array");
  if (!fields.failed() &&
      (type != "hadamard" || isRandom || !numerics::isHadamardBlock(rotation.block)))
    fields.failInWords(ErrorCode::Unsupported,
                       "a transform {}{} with head_dim {} is not supported; expected "
                       "\"hadamard\" with a head_dim that is a power of two from {} to {}",
                       Json::describe(type), isRandom ? " that is randomized" : "", rotation.block,
                       numerics::kLeastHadamard, numerics::kLargestHadamard);
  if (fields.failed())
    return Unexpected(fields.result().error());
  for (size_t i = 0; i < apply->size(); ++i) {
    const std::string where = fmt::format("{}: apply[{}]", place, i);
    if (!(*apply)[i].isObject())
      return makeError(ErrorCode::Corrupt, "{}: expected an object, found {}", where,
                       (*apply)[i].describe());
    // The matrix is its own inverse, whatever `inverse` says.
    FieldReader one((*apply)[i], where, {.nullIsAbsent = true});
    std::vector<std::string> targets, ignored;
    std::string location;
    one.required("targets", targets);
    one.optional("ignore", ignored);
    one.required("location", location);
    if (!one.failed() && location != "input" && location != "weight_input")
      one.failInWords(ErrorCode::Unsupported,
                      "location {} is not supported; expected \"input\" or \"weight_input\"",
                      Json::describe(location));
    if (one.failed())
      return Unexpected(one.result().error());
    auto meant = readTargets(targets, where + ": targets"),
         left = readTargets(ignored, where + ": ignore");
    if (!meant || !left)
      return Unexpected((meant ? left : meant).error());
    (location == "input" ? rotation.inputs : rotation.weights)
        .push_back({std::move(*meant), std::move(*left)});
  }
  return rotation;
}

/// Checks the fields so far and calls `read` with the name, the object and the place of each of
/// `config_groups`.
static Result<void> readGroups(FieldReader &fields, const std::string &place,
                               const std::function<Result<void>(const std::string &, const Json &,
                                                                const std::string &)> &read) {
  const Json *configured = fields.find("config_groups");
  fields.check(configured && configured->isObject(), "config_groups",
               configured ? configured->describe() : "nothing", "an object");
  if (fields.failed())
    return fields.result();
  for (const auto &[name, group] : configured->members()) {
    const std::string where = place + ": config_groups: " + Json::describe(name);
    if (!group.isObject())
      return makeError(ErrorCode::Corrupt, "{}: expected an object, found {}", where,
                       group.describe());
    if (auto done = read(name, group, where); !done)
      return done;
  }
  return {};
}

Result<void> CompressedTensorsWeights::readTransforms(const Json &config,
                                                      const std::string &place) {
  FieldReader fields(config, place, {.nullIsAbsent = true});
  return readGroups(
      fields, place,
      [&](const std::string &, const Json &group, const std::string &where) -> Result<void> {
        auto read = readRotation(group, where);
        if (!read)
          return Unexpected(read.error());
        rotations.push_back(std::move(*read));
        return {};
      });
}

Result<int64_t> CompressedTensorsWeights::blockOf(const std::string &site, int64_t columns) const {
  int64_t block = 0;
  for (const Rotation &rotation : rotations) {
    auto has = [&](const Rotation::Place &place) { return place.has(site); };
    const auto ofInput = std::ranges::count_if(rotation.inputs, has);
    const auto ofWeight = std::ranges::count_if(rotation.weights, has);
    if (ofInput == 0 && ofWeight == 0)
      continue;
    if (ofInput != 1 || ofWeight != 1 || block != 0)
      return makeError(ErrorCode::Unsupported,
                       "site '{}': transform_config rotates its input {} times and its weight {} "
                       "times{}; expected each once",
                       site, ofInput, ofWeight, block ? " behind another rotation" : "");
    block = rotation.block;
  }
  if (block != 0 && columns % block != 0)
    return makeError(ErrorCode::Corrupt,
                     "site '{}': its {} columns are no whole blocks of {}, in which "
                     "transform_config rotates them",
                     site, columns, block);
  return block;
}

Result<void> CompressedTensorsWeights::read(const Json &config, std::string_view file) {
  const std::string place = fmt::format("{}: quantization_config", file);
  FieldReader fields(config, place, {.nullIsAbsent = true});
  std::string format, status = "compressed";
  fields.optional("format", format);
  fields.optional("quantization_status", status);
  if (status != "compressed")
    fields.failInWords(ErrorCode::Unsupported,
                       "quantization_status {} is not supported; expected \"compressed\"",
                       Json::describe(status));
  if (const Json *found = fields.find("sparsity_config"); found && found->size() != 0)
    fields.failInWords(ErrorCode::Unsupported,
                       "sparsity_config is not supported; import the float checkpoint that it was "
                       "made from");
  const Json *transforms = fields.find("transform_config");
  if (transforms)
    fields.check(transforms->isObject(), "transform_config", transforms->describe(), "an object");
  if (fields.has("kv_cache_scheme"))
    notes.emplace_back(
        "quantization_config has a kv_cache_scheme, which is not taken: the cache is "
        "what --kv-scheme says");
  auto done = readGroups(
      fields, place,
      [&](const std::string &name, const Json &group, const std::string &where) -> Result<void> {
        auto read = readGroup(name, group, where, format);
        if (!read)
          return Unexpected(read.error());
        groups.push_back(std::move(*read));
        return {};
      });
  if (!done)
    return done;
  if (transforms && transforms->size() != 0)
    return readTransforms(*transforms, place + ": transform_config");
  return {};
}

const Group *CompressedTensorsWeights::groupOf(const std::string &site) const {
  auto find = [&](auto isMeant) -> const Group * {
    for (const Group &group : groups)
      if (std::ranges::any_of(group.targets, isMeant))
        return &group;
    return nullptr;
  };
  if (const Group *named = find([&](const Target &target) { return target.name == site; }))
    return named;
  if (const Group *matched =
          find([&](const Target &target) { return target.pattern && target.matches(site); }))
    return matched;
  return find([&](const Target &target) { return target.matches(site); });
}

/// The scheme of the weights, whose scales are of type `scales`.
static Result<Scheme> weightScheme(const Arguments &arguments, int64_t columns,
                                   const std::string &site, const FileTensorView &scales) {
  const bool hasGroups = arguments.strategy == "group" || arguments.strategy == "tensor_group";
  const bool isOfTensor = arguments.strategy == "tensor" && arguments.symmetric;
  if (!hasGroups && !isOfTensor && arguments.strategy != "channel")
    return makeError(ErrorCode::Unsupported,
                     "weights of strategy {}{} are not supported; expected \"channel\", \"group\" "
                     "or a symmetric \"tensor\"",
                     Json::describe(arguments.strategy),
                     arguments.symmetric ? "" : " with zero points");
  Scheme scheme = storedIntegers(static_cast<int>(arguments.bits), arguments.symmetric,
                                 hasGroups ? arguments.groupSize : 0, columns, ScaleFormat::F32);
  if (arguments.type == "float") {
    scheme.fullRange = false;
    if (!arguments.symmetric || (!arguments.isFP8() && !arguments.isFP4()))
      return makeError(ErrorCode::Unsupported,
                       "floats of {} bits {} are not supported; expected symmetric ones of 8 or 4",
                       arguments.bits, arguments.symmetric ? "" : "with zero points");
    scheme.codes = arguments.isFP8() ? CodeFormat::F8E4M3FN : CodeFormat::F4E2M1FN;
  }
  if (arguments.isFP4()) {
    // Two formats: scales of FP8 in units of an outer one (NVFP4), powers of two (MXFP4).
    scheme.outer = scales.typeName == dtypeName(DType::F8E4M3);
    scheme.scales = scheme.outer ? ScaleFormat::F8E4M3FN : ScaleFormat::F8E8M0FNU;
    return scheme;
  }
  auto format = scalesOfType(site, "weight_scale", scales.typeName);
  if (!format)
    return Unexpected(format.error());
  scheme.scales = *format;
  return scheme;
}

/// The scheme of activations; else why there is none.
static Result<Scheme> inputScheme(const Arguments &arguments, const Scheme &weight) {
  if (arguments.isFP4() && weight.outer && arguments.strategy == "tensor_group") {
    Scheme scheme = weight;
    scheme.dynamic = true; // of groups, in units of a static scale
    return scheme;
  }
  Scheme scheme{.bits = 8,
                .symmetric = arguments.symmetric,
                .granularity = arguments.dynamic ? Granularity::Token : Granularity::Tensor,
                .groupSize = arguments.strategy == "group" ? arguments.groupSize : 0,
                .dynamic = arguments.dynamic,
                .fullRange = !arguments.dynamic && arguments.symmetric};
  if (arguments.type == "float") {
    scheme.codes = CodeFormat::F8E4M3FN;
    scheme.fullRange = false;
  }
  const bool isToken = arguments.strategy == "token" ||
                       (arguments.strategy == "group" && numerics::isTokenGroup(scheme.groupSize));
  const bool isKnown = arguments.dynamic ? isToken : arguments.strategy == "tensor";
  const bool hasPlainZeroPoints =
      arguments.dynamic && !arguments.symmetric && scheme.groupSize == 0;
  if (arguments.bits != 8 || !isKnown || hasPlainZeroPoints || !numerics::checkScheme(scheme))
    return makeError(ErrorCode::Unsupported,
                     "its activations are {}, of strategy {}, with {} bits{}, which no scheme has",
                     arguments.dynamic ? "dynamic" : "static", Json::describe(arguments.strategy),
                     arguments.bits, arguments.symmetric ? "" : " and zero points");
  return scheme;
}

/// What static activations are rounded with.
static Result<void> readStaticInput(QuantizedSite &site, const TensorFinder &tensor) {
  if (site.input->dynamic && !site.input->outer)
    return {};
  auto scale =
      readNumber(site.name, site.input->outer ? "input_global_scale" : "input_scale", tensor);
  if (!scale)
    return Unexpected(scale.error());
  site.inputScale = static_cast<float>(*scale);
  if (site.input->outer)
    site.inputScale = 1 / site.inputScale; // files have what values are multiplied with
  if (site.input->symmetric)
    return {};
  auto zeroPoint = readNumber(site.name, "input_zero_point", tensor);
  if (!zeroPoint)
    return Unexpected(zeroPoint.error());
  site.inputZeroPoint = static_cast<int32_t>(*zeroPoint);
  return {};
}

/// The codec of a format by its name; by the scheme where the file does not say it.
static Result<WeightCodecMaker *> codecNamed(const std::string &format, const QuantizedSite &site) {
  static constexpr NamedCodec known[] = {{"pack-quantized", packQuantizedCodec},
                                         {"int-quantized", intQuantizedCodec},
                                         {"float-quantized", floatQuantizedCodec},
                                         {"nvfp4-pack-quantized", nvfp4PackCodec},
                                         {"mxfp4-pack-quantized", mxfp4PackCodec}};
  for (const NamedCodec &codec : known)
    if (format == codec.name)
      return codec.make;
  if (format == "naive-quantized")
    return site.weight.isInteger() ? intQuantizedCodec : floatQuantizedCodec;
  if (format.empty())
    return compressedTensorsCodec(site).make;
  return makeError(ErrorCode::Unsupported,
                   "format {} is not supported; expected \"pack-quantized\", \"int-quantized\", "
                   "\"float-quantized\", \"nvfp4-pack-quantized\" or \"mxfp4-pack-quantized\"",
                   Json::describe(format));
}

/// Files of older releases pad the fields of 3, 5 and 6 bits to words: their shape says so.
static Result<std::unique_ptr<WeightReader>>
readerOf(WeightCodecMaker *make, const QuantizedSite &site, const TensorFinder &tensor) {
  if (make == packQuantizedCodec && 32 % site.weight.bits != 0)
    if (const auto packed = tensor("weight_packed");
        packed && packed->shape == paddedShape(site.weight, site.rows, site.columns))
      return paddedPackReader(site.weight, site.rows, site.columns);
  auto codec = make(site.weight, site.rows, site.columns);
  if (!codec)
    return Unexpected(codec.error());
  return std::unique_ptr<WeightReader>(std::move(*codec));
}

Result<std::optional<StoredWeight>>
CompressedTensorsWeights::find(const std::string &name, int64_t rows, int64_t columns,
                               const TensorFinder &tensor) const {
  auto block = blockOf(name, columns);
  if (!block)
    return Unexpected(block.error());
  const auto scales = tensor("weight_scale");
  if (!scales) {
    if (tensor("weight_packed"))
      return makeError(ErrorCode::NotFound, "tensor '{}.weight_scale' is missing", name);
    if (*block)
      return makeError(ErrorCode::Unsupported,
                       "site '{}': transform_config rotates a linear that is float; expected "
                       "those that are quantized alone",
                       name);
    return std::nullopt;
  }
  const Group *group = groupOf(name);
  if (!group)
    return makeError(ErrorCode::Corrupt,
                     "tensor '{}.weight_scale': no group of quantization_config targets this "
                     "linear",
                     name);
  auto named = [&](const Error &error) {
    return makeError(error.code, "site '{}', of {}: {}", name, Json::describe(group->name),
                     error.message);
  };
  auto scheme = weightScheme(group->weights, columns, name, *scales);
  if (!scheme)
    return named(scheme.error());
  scheme->hadamard = *block;
  QuantizedSite site{.name = name, .rows = rows, .columns = columns, .weight = *scheme};
  std::string whyNotKept;
  if (group->inputs) {
    auto input = inputScheme(*group->inputs, *scheme);
    if (input) {
      site.input = *input;
      site.input->hadamard = *block;
    } else {
      whyNotKept = input.error().message;
    }
  }
  if (site.input)
    if (auto read = readStaticInput(site, tensor); !read)
      return Unexpected(read.error());
  auto make = codecNamed(group->format, site);
  if (!make)
    return named(make.error());
  auto codec = readerOf(*make, site, tensor);
  if (!codec)
    return named(codec.error());
  std::vector<int32_t> groups;
  if (const auto index = tensor("weight_g_idx")) {
    auto read = readGroupIndex(name + ".weight_g_idx", *scheme, columns, *index);
    if (!read)
      return Unexpected(read.error());
    groups = std::move(*read);
  }
  auto weight = StoredWeight::open(std::move(site), std::move(*codec), tensor);
  if (!weight)
    return Unexpected(weight.error());
  if (*block && !groups.empty())
    whyNotKept = "its columns are rotated, and not in the order of groups (act-order)";
  weight->setGroups(std::move(groups));
  if (!whyNotKept.empty())
    weight->whyNotKept = std::move(whyNotKept);
  return std::optional(std::move(*weight));
}

Result<std::unique_ptr<StoredWeights>> formats::readCompressedTensors(const Json &config,
                                                                      std::string_view file) {
  auto weights = std::make_unique<CompressedTensorsWeights>();
  if (auto read = weights->read(config, file); !read)
    return Unexpected(read.error());
  return std::unique_ptr<StoredWeights>(std::move(weights));
}
