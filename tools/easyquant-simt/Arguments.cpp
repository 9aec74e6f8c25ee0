//===- Arguments.cpp - Arguments of a kernel from the command line --------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Arguments.h"

#include <charconv>
#include <cstdlib>
#include <map>

using namespace easyquant;
using namespace easyquant::simt;

namespace {
struct ElementType {
  const char *descr; ///< numpy has no bf16: its bits come as u2.
  unsigned bytes;
};
const std::map<std::string, ElementType> elementTypes = {
    {"i8", {"|i1", 1}},  {"u8", {"|u1", 1}},   {"i16", {"<i2", 2}}, {"u16", {"<u2", 2}},
    {"i32", {"<i4", 4}}, {"u32", {"<u4", 4}},  {"i64", {"<i8", 8}}, {"u64", {"<u8", 8}},
    {"f16", {"<f2", 2}}, {"bf16", {"<u2", 2}}, {"f32", {"<f4", 4}}, {"f64", {"<f8", 8}}};
} // namespace

static const char *const kForms =
    "in:FILE.npy, inout:FILE.npy, out:FILE.npy:TYPE:SHAPE, "
    "scratch:TYPE:SHAPE, value:FILE.npy or TYPE:NUMBER, where TYPE is i8 "
    "u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64 and SHAPE is like 128x64";

/// "f32:128x64"
static Result<Array> emptyArray(const std::string &text, const std::string &argument) {
  size_t colon = text.find(':');
  auto type = elementTypes.find(text.substr(0, colon));
  if (colon == std::string::npos || type == elementTypes.end())
    return makeError(ErrorCode::InvalidArgument, "--arg {}: expected TYPE:SHAPE such as f32:128x64",
                     argument);
  Array array{type->second.descr, {}, {}};
  uint64_t bytes = type->second.bytes;
  const char *at = text.c_str() + colon + 1, *end = text.c_str() + text.size();
  for (;;) {
    uint64_t dim = 0;
    auto [stop, error] = std::from_chars(at, end, dim);
    if (error != std::errc() || (dim && bytes > (1ull << 38) / dim))
      return makeError(ErrorCode::InvalidArgument, "--arg {}: '{}' is no shape such as 128x64",
                       argument, text.substr(colon + 1));
    array.shape.push_back(dim);
    bytes *= dim;
    if (stop == end)
      break;
    if (*stop != 'x')
      return makeError(ErrorCode::InvalidArgument, "--arg {}: '{}' is no shape such as 128x64",
                       argument, text.substr(colon + 1));
    at = stop + 1;
  }
  array.data.resize(bytes);
  return array;
}

Result<void> CommandLineArguments::addBuffer(const std::string &path, Array array, bool initialised,
                                             bool writesBack) {
  auto address = device.allocate(array.data.size(), path);
  if (!address)
    return Unexpected(address.error());
  if (initialised)
    if (auto copied = device.copyIn(*address, array.data.data(), array.data.size()); !copied)
      return copied;
  values.add(*address);
  kinds.push_back("pointer");
  buffers.push_back({writesBack ? path : "", std::move(array), *address});
  return {};
}

/// The bytes of `text` as a number of a type; empty: it is none.
static std::vector<std::byte> scalar(const std::string &type, const std::string &text) {
  unsigned bytes = elementTypes.at(type).bytes;
  uint64_t bits = 0;
  char *end = nullptr;
  if (type == "f16" || type == "bf16")
    return {};
  if (type[0] == 'f') {
    double value = std::strtod(text.c_str(), &end);
    auto single = static_cast<float>(value);
    std::memcpy(&bits, bytes == 8 ? static_cast<void *>(&value) : &single, bytes);
  } else {
    errno = 0;
    bool negative = text[0] == '-';
    bits = negative ? static_cast<uint64_t>(std::strtoll(text.c_str(), &end, 0))
                    : std::strtoull(text.c_str(), &end, 0);
    uint64_t limit =
        type[0] == 'i' ? (1ull << (8 * bytes - 1)) - !negative : ~0ull >> (64 - 8 * bytes);
    if (errno || (negative ? type[0] == 'u' || -bits > limit : bits > limit))
      return {};
  }
  if (end == text.c_str() || *end)
    return {};
  auto *data = reinterpret_cast<std::byte *>(&bits);
  return {data, data + bytes};
}

Result<void> CommandLineArguments::add(const std::string &text) {
  size_t colon = text.find(':');
  std::string kind = text.substr(0, colon),
              rest = colon == std::string::npos ? "" : text.substr(colon + 1);
  if (rest.empty())
    return makeError(ErrorCode::InvalidArgument, "--arg {}: expected {}", text, kForms);
  if (kind == "in" || kind == "inout" || kind == "value") {
    auto array = readNpy(rest);
    if (!array)
      return Unexpected(array.error());
    if (kind != "value")
      return addBuffer(rest, std::move(*array), true, kind == "inout");
    values.addBytes(array->data.data(), array->data.size());
    kinds.push_back("value");
    return {};
  }
  if (kind == "out" || kind == "scratch") {
    // The path may have colons of its own; type and shape have none.
    size_t shape = rest.rfind(':'), type = shape ? rest.rfind(':', shape - 1) : std::string::npos;
    if (kind == "scratch")
      type = std::string::npos;
    else if (shape == std::string::npos || type == std::string::npos || type == 0)
      return makeError(ErrorCode::InvalidArgument, "--arg {}: expected out:FILE.npy:TYPE:SHAPE",
                       text);
    auto array = emptyArray(kind == "scratch" ? rest : rest.substr(type + 1), text);
    if (!array)
      return Unexpected(array.error());
    return addBuffer(kind == "scratch" ? text : rest.substr(0, type), std::move(*array), false,
                     kind == "out");
  }
  if (!elementTypes.contains(kind))
    return makeError(ErrorCode::InvalidArgument,
                     "--arg {}: '{}' is no kind of argument; expected {}", text, kind, kForms);
  auto bytes = scalar(kind, rest);
  if (bytes.empty())
    return makeError(ErrorCode::InvalidArgument,
                     "--arg {}: '{}' is no {} (halves are given by their bits, as u16)", text, rest,
                     kind);
  values.addBytes(bytes.data(), bytes.size());
  kinds.push_back(kind);
  return {};
}

Result<void> CommandLineArguments::check(const KernelInfo &kernel) const {
  for (size_t i = 0; i < std::min(kinds.size(), kernel.parameters.size()); ++i) {
    const KernelParameterInfo &parameter = kernel.parameters[i];
    const std::string &kind = kinds[i];
    bool isFloat = kind[0] == 'f', wantsFloat = parameter.type[0] == 'f';
    bool open = parameter.type[0] == 'b' || kind == "value";
    bool fits =
        kind == "pointer" ? parameter.bytes == 8 && !wantsFloat : open || isFloat == wantsFloat;
    if (!fits || values.values[i].size() != parameter.bytes)
      return makeError(ErrorCode::InvalidArgument,
                       "{}: argument {} is a {} of {} bytes, but parameter {} is .{} of {} bytes",
                       kernel.name, i + 1, kind, values.values[i].size(), parameter.name,
                       parameter.type, parameter.bytes);
  }
  return {};
}

Result<uint64_t> CommandLineArguments::writeBack() const {
  uint64_t missing = 0;
  for (const Buffer &buffer : buffers) {
    if (buffer.path.empty())
      continue;
    Array array = buffer.array;
    if (auto copied = device.copyOut(array.data.data(), buffer.address, array.data.size()); !copied)
      return Unexpected(copied.error());
    missing += device.uninitialisedBytes(buffer.address, array.data.size()).value_or(0);
    if (auto written = writeNpy(buffer.path, array); !written)
      return Unexpected(written.error());
  }
  return missing;
}
