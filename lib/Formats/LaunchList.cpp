//===- LaunchList.cpp - A model as a list of launches ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/LaunchList.h"

#include "CacheFields.h"
#include "CollectiveFields.h"

#include "easyquant/Support/FieldReader.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::formats;

namespace {

using Kind = LaunchArgument::Kind;
using Parameter = LaunchKernel::Parameter;

constexpr const char *kLaunchFormat = "easyquant-gpu-program";
constexpr int64_t kLaunchVersion = 7;

/// In the order of Kind.
struct KindInfo {
  const char *name;
  Parameter parameter;
  size_t numbers; ///< that may follow the name
};
constexpr KindInfo kKinds[] = {
    {"weights", Parameter::Pointer, 1},
    {"arena", Parameter::Pointer, 1},
    {"cache", Parameter::Pointer, 1},
    {"sequences", Parameter::Pointer, 0},
    {"row_places", Parameter::Pointer, 0},
    {"pages", Parameter::Pointer, 0},
    {"pieces", Parameter::Pointer, 1},
    {"partials", Parameter::Pointer, 0},
    {"partial_counters", Parameter::Pointer, 0},
    {"state", Parameter::Pointer, 1},
    {"states", Parameter::Pointer, 0},
    {"row_states", Parameter::Pointer, 0},
    {"recurrent", Parameter::Pointer, 0},
    {"constants", Parameter::Pointer, 1},
    {"tokens", Parameter::Pointer, 0},
    {"logit_rows", Parameter::Pointer, 0},
    {"logits", Parameter::Pointer, 0},
    {"hidden", Parameter::Pointer, 0},
    {"next_hidden", Parameter::Pointer, 0},
    {"rows", Parameter::I32, 0},
    {"rank", Parameter::I32, 0},
    {"i32", Parameter::I32, 1},
};
const KindInfo &infoOf(Kind kind) { return kKinds[static_cast<size_t>(kind)]; }

/// Limits of every GPU.
constexpr int64_t kMaxThreads = 1024, kMaxSharedBytes = 227 * 1024, kMaxGridX = kMaxInt32,
                  kMaxGridOther = 65535;
/// Times as many rows as a step has: a row for each choice of an expert.
constexpr int64_t kMaxMultiple = 4096;
/// No program has more; sizes beyond it would not be sums of what fits an int64.
constexpr int64_t kMaxBytes = int64_t(1) << 50;
constexpr Bounds kBytes = {0, kMaxBytes};

//===----------------------------------------------------------------------===//
// Fields, for reading and for writing
//===----------------------------------------------------------------------===//

/// ["arena", offset]; an offset of 0 is left out.
Json toJson(const LaunchArgument &argument) {
  Json::Array value{Json(std::string(infoOf(argument.kind).name))};
  if (argument.kind == Kind::Integer)
    value.emplace_back(argument.integer);
  if (argument.offset != 0)
    value.emplace_back(argument.offset);
  return Json(std::move(value));
}

std::optional<LaunchArgument> argumentOf(const Json &value) {
  if (!value.isArray() || value.size() == 0)
    return std::nullopt;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    if (!value[0].is(kKinds[i].name) || value.size() > kKinds[i].numbers + 1)
      continue;
    LaunchArgument argument;
    argument.kind = static_cast<Kind>(i);
    const bool isInteger = argument.kind == Kind::Integer;
    if (value.size() > 1) {
      std::optional<int64_t> number = value[1].integer();
      if (!number || *number > (isInteger ? kMaxInt32 : kMaxBytes) ||
          *number < (isInteger ? -kMaxInt32 - 1 : 0))
        return std::nullopt;
      (isInteger ? argument.integer : argument.offset) = *number;
    }
    return isInteger && value.size() == 1 ? std::nullopt : std::optional(argument);
  }
  return std::nullopt;
}

} // namespace

namespace easyquant::formats {

static std::span<const char *const> namesOf(LaunchKernel::Parameter) {
  static constexpr const char *names[] = {"pointer", "i32", "f32"};
  return names;
}

static std::span<const char *const> namesOf(Launch::Over) {
  static constexpr const char *names[] = {"rows", "logit_rows", "pieces"};
  return names;
}

template <typename Fields> void mapFields(Fields &fields, LaunchKernel &kernel) {
  fields.required("name", kernel.name);
  fields.required("parameters", kernel.parameters);
  std::array<std::array<int64_t, 2>, 3> grid;
  for (size_t i = 0; i < grid.size(); ++i)
    grid[i] = {kernel.grid[i].factor, kernel.grid[i].rowsPerBlock};
  fields.required("grid", grid, Bounds{0, kMaxInt32});
  if constexpr (Fields::kReads)
    for (size_t i = 0; i < grid.size(); ++i)
      kernel.grid[i] = {grid[i][0], grid[i][1]};
  fields.required("threads", kernel.threads, Bounds{1, kMaxThreads});
  fields.required("shared_bytes", kernel.sharedBytes, Bounds{0, kMaxSharedBytes});
}

template <typename Fields> void mapFields(Fields &fields, Launch &launch) {
  fields.required("site", launch.site);
  fields.required("phase", launch.phase);
  fields.optional("collective", launch.collective, Bounds());
  if (!launch.collective)
    fields.required("kernel", launch.kernel, Bounds());
  fields.required("over", launch.over);
  fields.required("min_rows", launch.minRows, Bounds{1, kMaxInt32});
  fields.required("max_rows", launch.maxRows, Bounds{0, kMaxInt32});
  std::optional<int64_t> multiple;
  if (launch.multiple != 1)
    multiple = launch.multiple;
  fields.optional("multiple", multiple, Bounds{1, kMaxMultiple});
  if constexpr (Fields::kReads)
    launch.multiple = multiple.value_or(1);
  std::optional<std::array<int64_t, 2>> result;
  if (launch.result)
    result = {static_cast<int64_t>(launch.result->argument), launch.result->columns};
  fields.optional("result", result, Bounds{0, kMaxInt32});
  if constexpr (Fields::kReads)
    if (result)
      launch.result = {static_cast<size_t>((*result)[0]), (*result)[1]};
  std::vector<Json> arguments;
  arguments.reserve(launch.arguments.size());
  for (const LaunchArgument &argument : launch.arguments)
    arguments.push_back(toJson(argument));
  fields.required("arguments", arguments);
  if constexpr (Fields::kReads)
    launch.arguments.resize(arguments.size());
  for (size_t i = 0; Fields::kReads && i < arguments.size(); ++i) {
    std::optional<LaunchArgument> argument = argumentOf(arguments[i]);
    fields.check(argument.has_value(), fmt::format("arguments[{}]", i), arguments[i].text(),
                 "where it comes from, such as [\"weights\", 4096]");
    launch.arguments[i] = argument.value_or(LaunchArgument());
  }
}

template <typename Fields>
static void mapBytes(Fields &fields, const char *key, std::vector<std::byte> &bytes) {
  std::string hex;
  for (std::byte byte : bytes)
    hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  fields.required(key, hex);
  const bool isHex = hex.size() % 2 == 0 && hex.find_first_not_of("0123456789abcdef") == hex.npos;
  fields.checkText(isHex, key, hex, "bytes as lower-case hex digits");
  if (!Fields::kReads || !isHex)
    return;
  auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  bytes.resize(hex.size() / 2);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<std::byte>(digit(hex[2 * i]) * 16 + digit(hex[2 * i + 1]));
}

template <typename Fields> void mapFields(Fields &fields, PieceCut &cut) {
  fields.required("min_rows", cut.minRows, Bounds{1, kMaxInt32});
  fields.required("max_rows", cut.maxRows, Bounds{0, kMaxInt32});
  fields.required("rows", cut.rows, Bounds{1, kMaxInt32});
  fields.required("tokens", cut.tokens, Bounds{0, kMaxInt32});
  fields.required("origin", cut.origin, Bounds{-kMaxInt32, 0});
  fields.required("window", cut.window, Bounds{0, kMaxInt32});
}

template <typename Fields> void mapFields(Fields &fields, ChoosingKernels &choosing) {
  fields.required("keep", choosing.keep, Bounds());
  fields.required("change", choosing.change, Bounds());
  fields.required("weigh", choosing.weigh, Bounds());
  fields.required("choose", choosing.choose, Bounds());
}

template <typename Fields> void mapFields(Fields &fields, DraftingLaunches &drafting) {
  fields.required("gather", drafting.gather, Bounds());
  fields.required("fixed_position", drafting.fixedPosition);
  fields.required("launches", drafting.launches);
}

template <typename Fields> void mapFields(Fields &fields, LaunchList &list) {
  fields.required("max_rows", list.maxRows, Bounds{1, kMaxInt32});
  fields.required("arena_bytes", list.arenaBytes, kBytes);
  fields.required("state_bytes", list.stateBytes, kBytes);
  // For one place. The runtime multiplies them by the number of places without a check for
  // overflow.
  fields.required("partial_bytes", list.partialBytes, Bounds{0, int64_t(1) << 30});
  fields.required("partial_counters", list.partialCounters, Bounds{0, int64_t(1) << 20});
  fields.required("cache", list.cache);
  fields.required("pieces", list.pieces);
  mapBytes(fields, "constants", list.constants);
  fields.required("kernels", list.kernels);
  fields.required("collectives", list.collectives);
  fields.required("launches", list.launches);
  fields.required("restore", list.restore);
  fields.required("choosing", list.choosing);
  fields.required("drafting", list.drafting);
}

template <typename Fields> static void mapHeader(Fields &fields) {
  std::string format = kLaunchFormat;
  fields.required("format", format);
  fields.checkText(format == kLaunchFormat, "format", format, "\"easyquant-gpu-program\"");
  fields.version("format_version", kLaunchVersion);
}

} // namespace easyquant::formats

//===----------------------------------------------------------------------===//
// What the fields have to be together
//===----------------------------------------------------------------------===//

/// For up to so many rows.
static void checkKernel(FieldReader &fields, const LaunchKernel &kernel, int64_t rows,
                        const std::string &where) {
  for (size_t i = 0; i < kernel.grid.size(); ++i) {
    const LaunchKernel::Extent &extent = kernel.grid[i];
    const int64_t most = i == 0 ? kMaxGridX : kMaxGridOther;
    const int64_t blocks =
        extent.rowsPerBlock == 0 ? 1 : (rows + extent.rowsPerBlock - 1) / extent.rowsPerBlock;
    fields.check(
        extent.factor >= 1 && extent.factor <= most / blocks, fmt::format("{}.grid[{}]", where, i),
        fmt::format("{} x {} blocks", extent.factor, blocks), fmt::format("1 to {}", most));
  }
}

/// Does a place lie in its memory?
static bool fits(const LaunchList &list, int64_t weightsBytes, const LaunchArgument &argument) {
  auto isInside = [&](int64_t size) { return argument.offset < size; };
  switch (argument.kind) {
  case Kind::Weights:
    return isInside(weightsBytes);
  case Kind::Arena:
    return isInside(list.arenaBytes);
  case Kind::Cache:
    return isInside(std::max(list.cache.pageBytes, list.cache.windowBytes));
  case Kind::Pieces:
    return isInside(std::ssize(list.pieces));
  case Kind::Partials:
    return isInside(list.partialBytes);
  case Kind::PartialCounters:
    return isInside(list.partialCounters);
  case Kind::State:
    return isInside(list.stateBytes);
  case Kind::Hidden:
  case Kind::NextHidden:
    return list.drafting.has_value();
  case Kind::Constants:
    return isInside(static_cast<int64_t>(list.constants.size()));
  default:
    return true;
  }
}

/// Logits are gathered; sums and the like are of rows of the arena.
static void checkExchange(FieldReader &fields, const LaunchList &list, const Launch &launch,
                          const std::string &where) {
  if (*launch.collective >= list.collectives.size())
    return fields.check(false, where + ".collective", std::to_string(*launch.collective),
                        fmt::format("one of the {} collectives", list.collectives.size()));
  const Collective &what = list.collectives[*launch.collective];
  fields.check(launch.over != Launch::Over::Pieces, where + ".over", "pieces",
               "rows of a collective");
  fields.check(launch.multiple == 1, where + ".multiple", std::to_string(launch.multiple),
               "none of a collective");
  if (launch.arguments.size() != 1)
    return fields.check(false, where + ".arguments", std::to_string(launch.arguments.size()),
                        "the one that a collective works on");
  const LaunchArgument &memory = launch.arguments.front();
  constexpr int64_t elementBytes = 4;
  const bool isThere =
      what.call == CollectiveCall::AllGather
          ? memory.kind == Kind::Logits
          : memory.kind == Kind::Arena &&
                what.columns * elementBytes <= (list.arenaBytes - memory.offset) / list.maxRows;
  fields.check(isThere, where + ".arguments[0]", toJson(memory).text(),
               "logits to be gathered, or rows of the arena to be reduced");
}

static void checkLaunch(FieldReader &fields, const LaunchList &list, int64_t weightsBytes,
                        const Launch &launch, const std::string &where) {
  if (launch.collective)
    return checkExchange(fields, list, launch, where);
  if (launch.kernel >= list.kernels.size())
    return fields.check(false, where + ".kernel", std::to_string(launch.kernel),
                        fmt::format("one of the {} kernels", list.kernels.size()));
  const LaunchKernel &kernel = list.kernels[launch.kernel];
  if (launch.arguments.size() != kernel.parameters.size())
    return fields.check(false, where + ".arguments", std::to_string(launch.arguments.size()),
                        fmt::format("the {} that {} takes", kernel.parameters.size(), kernel.name));
  for (size_t i = 0; i < launch.arguments.size(); ++i) {
    const LaunchArgument &argument = launch.arguments[i];
    const std::string at = fmt::format("{}.arguments[{}]", where, i);
    fields.check(infoOf(argument.kind).parameter == kernel.parameters[i], at,
                 toJson(argument).text(), "what its kernel takes there");
    fields.check(fits(list, weightsBytes, argument), at, toJson(argument).text(),
                 "a place inside its memory");
  }
  fields.check(launch.multiple <= kMaxInt32 / list.maxRows, where + ".multiple",
               std::to_string(launch.multiple),
               fmt::format("no more than 2^31 - 1 rows in a step of {}", list.maxRows));
  if (launch.result) {
    const bool isThere = launch.result->argument < launch.arguments.size();
    const LaunchArgument memory =
        isThere ? launch.arguments[launch.result->argument] : LaunchArgument();
    constexpr int64_t elementBytes = 4;
    const bool fits = memory.kind == Kind::Logits ||
                      (memory.kind == Kind::Arena &&
                       launch.result->columns * elementBytes <=
                           (list.arenaBytes - memory.offset) / list.maxRows / launch.multiple);
    fields.check(fits, where + ".result", std::to_string(launch.result->argument),
                 "an argument that is the logits, or rows of the arena");
  }
  if (launch.multiple > 1)
    checkKernel(fields, kernel, list.maxRows * launch.multiple, where + ".kernel");
  const auto pieces =
      std::count_if(launch.arguments.begin(), launch.arguments.end(),
                    [](const LaunchArgument &argument) { return argument.kind == Kind::Pieces; });
  fields.check(
      pieces == (launch.over == Launch::Over::Pieces ? 1 : 0), where + ".over",
      namesOf(launch.over)[static_cast<size_t>(launch.over)],
      fmt::format("pieces where it takes some, which are of one cut; it takes {}", pieces));
}

/// The head has no ranks and no states of sequences; its states alone are read.
static void checkDrafting(FieldReader &fields, const LaunchList &list, int64_t weightsBytes,
                          const std::string &where) {
  const DraftingLaunches &drafting = *list.drafting;
  using enum Parameter;
  fields.check(drafting.gather < list.kernels.size() &&
                   list.kernels[drafting.gather].parameters ==
                       std::vector{Pointer, I32, Pointer, Pointer, I32, I32},
               where + ".gather", std::to_string(drafting.gather),
               fmt::format("one of the {} kernels that gathers rows", list.kernels.size()));
  fields.check(list.choosing.has_value(), where, "a head",
               "kernels that choose tokens beside it, by which it does");
  for (size_t i = 0; i < drafting.launches.size() && !fields.failed(); ++i) {
    const Launch &launch = drafting.launches[i];
    const std::string at = fmt::format("{}.launches[{}]", where, i);
    fields.check(!launch.collective, at + ".collective", "one", "a kernel: it runs on one rank");
    if (!launch.collective)
      checkLaunch(fields, list, weightsBytes, launch, at);
    for (const LaunchArgument &argument : launch.arguments)
      fields.check(argument.kind != Kind::States && argument.kind != Kind::RowStates &&
                       argument.kind != Kind::Recurrent,
                   at + ".arguments", toJson(argument).text(),
                   "what the head has: it keeps nothing of a sequence");
  }
}

/// Each takes so many pointers, and numbers behind them.
static void checkChoosing(FieldReader &fields, const LaunchList &list, const std::string &where) {
  struct Expected {
    const char *name;
    size_t kernel, pointers, numbers;
  };
  const ChoosingKernels &choosing = *list.choosing;
  for (const auto &[name, kernel, pointers, numbers] :
       {Expected{"keep", choosing.keep, 3, 3}, Expected{"change", choosing.change, 2, 1},
        Expected{"weigh", choosing.weigh, 6, 1}, Expected{"choose", choosing.choose, 7, 1}}) {
    std::vector<Parameter> parameters(pointers, Parameter::Pointer);
    parameters.insert(parameters.end(), numbers, Parameter::I32);
    fields.check(kernel < list.kernels.size() && list.kernels[kernel].parameters == parameters,
                 fmt::format("{}.{}", where, name), std::to_string(kernel),
                 fmt::format("one of the {} kernels that takes {} pointers and {} i32",
                             list.kernels.size(), pointers, numbers));
  }
}

Result<LaunchList> formats::parseLaunchList(std::string_view text, std::string_view path,
                                            const std::string &chip, int64_t weightsBytes) {
  Result<Json> root = Json::parseObject(text, path);
  if (!root)
    return makeError(root.error().code, "{}; copy or compile the artifact again",
                     root.error().message);
  FieldReader fields(*root, path);
  mapHeader(fields);
  LaunchList list;
  bool isThere = true;
  fields.object("chips", [&](FieldReader &chips) {
    if (isThere = chips.has(chip.c_str()); isThere)
      chips.required(chip.c_str(), list);
  });
  if (!fields.failed() && (!fields.has("chips") || !isThere))
    return makeError(ErrorCode::NotFound, "{}: has no program for {}; compile the artifact again",
                     path, chip);
  if (!fields.failed()) {
    const std::string where = "chips." + chip;
    for (size_t i = 0; i < list.kernels.size(); ++i)
      checkKernel(fields, list.kernels[i], list.maxRows, fmt::format("{}.kernels[{}]", where, i));
    for (auto [key, launches] :
         {std::pair("launches", &list.launches), std::pair("restore", &list.restore)})
      for (size_t i = 0; i < launches->size() && !fields.failed(); ++i)
        checkLaunch(fields, list, weightsBytes, (*launches)[i],
                    fmt::format("{}.{}[{}]", where, key, i));
    if (list.choosing && !fields.failed())
      checkChoosing(fields, list, where + ".choosing");
    if (list.drafting && !fields.failed())
      checkDrafting(fields, list, weightsBytes, where + ".drafting");
  }
  if (Result<void> done = fields.result(); !done)
    return Unexpected(done.error());
  return list;
}

std::string formats::launchListText(const std::map<std::string, LaunchList> &chips) {
  FieldWriter fields;
  mapHeader(fields);
  fields.required("chips", chips);
  return fields.take().text() + "\n";
}
