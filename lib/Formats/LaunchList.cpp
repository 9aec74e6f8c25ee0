//===- GpuProgram.cpp - A model as a list of launches ---------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/GpuProgram.h"

#include "FieldReader.h"

#include <algorithm>

using namespace easyquant;
using namespace easyquant::runtime;

static constexpr const char *kPhaseNames[kPhases] = {"load", "quantize", "gemm", "attention",
                                                     "comm", "sync",     "other"};

const char *easyquant::runtime::nameOf(Phase phase) {
  return kPhaseNames[static_cast<size_t>(phase)];
}

std::array<uint32_t, 3> GpuKernel::gridFor(int64_t rows) const {
  std::array<uint32_t, 3> sizes{};
  for (size_t i = 0; i < 3; ++i) {
    const Extent &extent = grid[i];
    int64_t blocks =
        extent.rowsPerBlock == 0 ? 1 : (rows + extent.rowsPerBlock - 1) / extent.rowsPerBlock;
    sizes[i] = static_cast<uint32_t>(extent.factor * blocks);
  }
  return sizes;
}

namespace {

using Kind = GpuArgument::Kind;
using Parameter = GpuKernel::Parameter;

struct ArgumentKind {
  const char *name;
  Kind kind;
  Parameter parameter;
  size_t numbers; ///< that may follow the name
};
constexpr ArgumentKind kArgumentKinds[] = {
    {"weights", Kind::Weights, Parameter::Pointer, 1},
    {"arena", Kind::Arena, Parameter::Pointer, 2},
    {"cache", Kind::Cache, Parameter::Pointer, 2},
    {"state", Kind::State, Parameter::Pointer, 1},
    {"constants", Kind::Constants, Parameter::Pointer, 1},
    {"tokens", Kind::Tokens, Parameter::Pointer, 0},
    {"position", Kind::Position, Parameter::Pointer, 0},
    {"held", Kind::Held, Parameter::Pointer, 0},
    {"logits", Kind::Logits, Parameter::Pointer, 0},
    {"rows", Kind::Rows, Parameter::I32, 0},
    {"capacity", Kind::Capacity, Parameter::I32, 0},
    {"i32", Kind::Integer, Parameter::I32, 1},
};

/// Limits of every GPU.
constexpr int64_t kMaxThreads = 1024, kMaxSharedBytes = 227 * 1024, kMaxGridX = kMaxInt32,
                  kMaxGridOther = 65535;
/// No program has more; sizes beyond it would not be sums of what fits an int64.
constexpr int64_t kMaxBytes = int64_t(1) << 50;

class ProgramReader {
public:
  ProgramReader(FieldReader &reader, int64_t weightsBytes)
      : reader(reader), weightsBytes(weightsBytes) {}

  GpuProgram read(const Json &object, const std::string &where);

private:
  void readConstants(const Json &object, const std::string &where);
  GpuKernel readKernel(const Json &object, const std::string &where);
  void readLaunches(const Json &object, const std::string &where, const char *key,
                    std::vector<GpuLaunch> &launches);
  GpuLaunch readLaunch(const Json &object, const std::string &where);
  GpuArgument readArgument(const Json &value, const std::string &where, Parameter parameter);
  /// Does a place lie in its memory?
  bool fits(const GpuArgument &argument) const;

  FieldReader &reader;
  int64_t weightsBytes;
  GpuProgram program;
};

} // namespace

void ProgramReader::readConstants(const Json &object, const std::string &where) {
  std::string hex = reader.string(object, where, "constants");
  auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  if (hex.size() % 2 != 0 || hex.find_first_not_of("0123456789abcdef") != hex.npos)
    return reader.fail(ErrorCode::Corrupt, where + ".constants", Json::describe(hex),
                       "bytes as lower-case hex digits");
  for (size_t i = 0; i < hex.size(); i += 2)
    program.constants.push_back(static_cast<std::byte>(digit(hex[i]) * 16 + digit(hex[i + 1])));
}

GpuKernel ProgramReader::readKernel(const Json &object, const std::string &where) {
  GpuKernel kernel;
  kernel.name = reader.string(object, where, "name");
  const Json &parameters = reader.array(object, where, "parameters");
  for (size_t i = 0; !reader.failed() && i < parameters.size(); ++i) {
    const Json &name = parameters[i];
    if (name.is("pointer"))
      kernel.parameters.push_back(Parameter::Pointer);
    else if (name.is("i32"))
      kernel.parameters.push_back(Parameter::I32);
    else if (name.is("f32"))
      kernel.parameters.push_back(Parameter::F32);
    else
      reader.fail(ErrorCode::Corrupt, fmt::format("{}.parameters[{}]", where, i), name.describe(),
                  "pointer, i32 or f32");
  }
  const Json &grid = reader.array(object, where, "grid");
  if (!reader.failed() && grid.size() != 3)
    reader.fail(ErrorCode::Corrupt, where + ".grid", std::to_string(grid.size()) + " dimensions",
                "3");
  for (size_t i = 0; !reader.failed() && i < 3; ++i) {
    std::string at = fmt::format("{}.grid[{}]", where, i);
    if (!grid[i].isArray() || grid[i].size() != 2) {
      reader.fail(ErrorCode::Corrupt, at, grid[i].describe(), "[factor, rows per block]");
      break;
    }
    int64_t most = i == 0 ? kMaxGridX : kMaxGridOther;
    kernel.grid[i].factor = reader.integer(grid[i][0], at, 1, most);
    kernel.grid[i].rowsPerBlock = reader.integer(grid[i][1], at, 0, kMaxInt32);
    const GpuKernel::Extent &extent = kernel.grid[i];
    int64_t blocks = extent.rowsPerBlock == 0
                         ? 1
                         : (program.maxRows + extent.rowsPerBlock - 1) / extent.rowsPerBlock;
    if (!reader.failed() && extent.factor > most / blocks)
      reader.fail(ErrorCode::Corrupt, at, fmt::format("{} x {} blocks", extent.factor, blocks),
                  fmt::format("at most {}", most));
  }
  kernel.threads = static_cast<uint32_t>(reader.integer(object, where, "threads", 1, kMaxThreads));
  kernel.sharedBytes =
      static_cast<uint32_t>(reader.integer(object, where, "shared_bytes", 0, kMaxSharedBytes));
  return kernel;
}

bool ProgramReader::fits(const GpuArgument &argument) const {
  auto inside = [&](int64_t size) { return argument.offset >= 0 && argument.offset < size; };
  switch (argument.kind) {
  case Kind::Weights:
    return inside(weightsBytes);
  case Kind::Arena:
    // The step may lead to the last row at most.
    return inside(program.arenaBytes) && argument.step >= 0 &&
           argument.step <= (program.arenaBytes - argument.offset) / program.maxRows;
  case Kind::Cache:
    return argument.offset >= 0 && argument.offset <= program.cacheBytes && argument.step >= 0 &&
           argument.step < program.cacheBytesPerToken;
  case Kind::State:
    return inside(program.stateBytes);
  case Kind::Constants:
    return inside(static_cast<int64_t>(program.constants.size()));
  default:
    return true;
  }
}

GpuArgument ProgramReader::readArgument(const Json &value, const std::string &where,
                                        Parameter parameter) {
  GpuArgument argument;
  const ArgumentKind *kind = nullptr;
  if (value.isArray() && value.size() > 0 && value[0].isString())
    for (const ArgumentKind &known : kArgumentKinds)
      if (value[0].is(known.name) && value.size() <= known.numbers + 1)
        kind = &known;
  if (!kind) {
    reader.fail(ErrorCode::Corrupt, where, value.text(),
                "where it comes from, such as [\"weights\", 4096]");
    return argument;
  }
  argument.kind = kind->kind;
  if (kind->kind == Kind::Integer) {
    if (value.size() != 2)
      reader.fail(ErrorCode::Corrupt, where, "no number", "one");
    else
      argument.integer =
          static_cast<int32_t>(reader.integer(value[1], where, -kMaxInt32 - 1, kMaxInt32));
  } else {
    argument.offset = value.size() > 1 ? reader.integer(value[1], where, 0, kMaxBytes) : 0;
    argument.step = value.size() > 2 ? reader.integer(value[2], where, 0, kMaxBytes) : 0;
  }
  if (reader.failed())
    return argument;
  if (kind->parameter != parameter)
    reader.fail(ErrorCode::Corrupt, where, value[0].describe(), "what its kernel takes there");
  else if (!fits(argument))
    reader.fail(ErrorCode::Corrupt, where, value.text(), "a place inside its memory");
  return argument;
}

GpuLaunch ProgramReader::readLaunch(const Json &object, const std::string &where) {
  GpuLaunch launch;
  launch.site = reader.string(object, where, "site");
  std::string phase = reader.string(object, where, "phase");
  const char *const *known = std::find(std::begin(kPhaseNames), std::end(kPhaseNames), phase);
  if (known != std::end(kPhaseNames))
    launch.phase = static_cast<Phase>(known - std::begin(kPhaseNames));
  else if (!reader.failed())
    reader.fail(ErrorCode::Corrupt, where + ".phase", Json::describe(phase), "a phase");
  launch.kernel = static_cast<size_t>(
      reader.integer(object, where, "kernel", 0, static_cast<int64_t>(program.kernels.size()) - 1));
  const Json &last = reader.member(object, where, "last_rows", "true or false");
  if (!reader.failed() && !last.isBoolean())
    reader.fail(ErrorCode::Corrupt, where + ".last_rows", last.describe(), "true or false");
  launch.minRows = reader.integer(object, where, "min_rows", 1, kMaxInt32);
  launch.maxRows = reader.integer(object, where, "max_rows", 0, kMaxInt32);
  const Json &arguments = reader.array(object, where, "arguments");
  if (reader.failed())
    return launch;
  launch.lastRows = last.boolean();
  const GpuKernel &kernel = program.kernels[launch.kernel];
  if (arguments.size() != kernel.parameters.size())
    reader.fail(ErrorCode::Corrupt, where + ".arguments", std::to_string(arguments.size()),
                fmt::format("the {} that {} takes", kernel.parameters.size(), kernel.name));
  for (size_t i = 0; !reader.failed() && i < arguments.size(); ++i)
    launch.arguments.push_back(readArgument(arguments[i], fmt::format("{}.arguments[{}]", where, i),
                                            kernel.parameters[i]));
  return launch;
}

void ProgramReader::readLaunches(const Json &object, const std::string &where, const char *key,
                                 std::vector<GpuLaunch> &launches) {
  const Json &list = reader.array(object, where, key);
  for (size_t i = 0; !reader.failed() && i < list.size(); ++i) {
    std::string at = fmt::format("{}.{}[{}]", where, key, i);
    if (!list[i].isObject())
      return reader.fail(ErrorCode::Corrupt, at, list[i].describe(), "an object");
    launches.push_back(readLaunch(list[i], at));
  }
}

GpuProgram ProgramReader::read(const Json &object, const std::string &where) {
  program.maxRows = reader.integer(object, where, "max_rows", 1, kMaxInt32);
  program.arenaBytes = reader.integer(object, where, "arena_bytes", 0, kMaxBytes);
  program.stateBytes = reader.integer(object, where, "state_bytes", 0, kMaxBytes);
  program.cacheBytes = reader.integer(object, where, "cache_bytes", 0, kMaxBytes);
  program.cacheBytesPerToken = reader.integer(object, where, "cache_bytes_per_token", 0, kMaxInt32);
  if (!reader.failed())
    readConstants(object, where);
  const Json &kernels = reader.array(object, where, "kernels");
  for (size_t i = 0; !reader.failed() && i < kernels.size(); ++i) {
    std::string at = fmt::format("{}.kernels[{}]", where, i);
    if (!kernels[i].isObject())
      reader.fail(ErrorCode::Corrupt, at, kernels[i].describe(), "an object");
    else
      program.kernels.push_back(readKernel(kernels[i], at));
  }
  readLaunches(object, where, "launches", program.launches);
  readLaunches(object, where, "restore", program.restore);
  return std::move(program);
}

Result<GpuProgram> easyquant::runtime::parseGpuProgram(std::string_view text, std::string_view path,
                                                       const std::string &chip,
                                                       int64_t weightsBytes) {
  Result<Json> root = Json::parseObject(text, path);
  if (!root)
    return Unexpected(root.error());
  FieldReader reader(path);
  std::string format = reader.string(*root, "", "format");
  if (!reader.failed() && format != "easyquant-gpu-program")
    reader.fail(ErrorCode::Corrupt, "format", Json::describe(format), "\"easyquant-gpu-program\"");
  int64_t version = reader.integer(*root, "", "format_version", 0, kMaxInt64);
  if (!reader.failed() && version != 1)
    reader.fail(ErrorCode::Unsupported, "format_version", std::to_string(version),
                fmt::format("1 (EasyQuant {}); recompile the model with this version of EasyQuant",
                            EASYQUANT_VERSION));
  const Json &chips = reader.object(*root, "", "chips");
  if (!reader.failed() && !chips.find(chip))
    return makeError(ErrorCode::NotFound, "{}: has no program for {}; compile the artifact again",
                     path, chip);
  GpuProgram program;
  const Json &object = reader.object(chips, "chips", chip.c_str());
  if (!reader.failed())
    program = ProgramReader(reader, weightsBytes).read(object, "chips." + chip);
  if (reader.failed())
    return Unexpected(reader.takeError());
  return program;
}
