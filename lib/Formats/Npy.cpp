//===- Npy.cpp - Arrays of NumPy ------------------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/Npy.h"

#include "Text.h"

#include <charconv>
#include <optional>

using namespace easyquant;
using namespace easyquant::formats;

namespace {
/// The literal of a dictionary with the keys that the format has, in any order.
class HeaderText {
public:
  HeaderText(std::string_view text, std::string_view fileName) : text(text), fileName(fileName) {}

  Result<void> parse();

  std::string descr;
  std::vector<int64_t> shape;
  bool isFortran = false;

private:
  bool take(std::string_view token) {
    skipSpace();
    if (!text.starts_with(token))
      return false;
    text.remove_prefix(token.size());
    return true;
  }
  void skipSpace() { text.remove_prefix(std::min(text.find_first_not_of(" \n"), text.size())); }
  std::optional<std::string> takeString();
  bool takeBool(bool &value);
  bool takeShape();
  Unexpected fail(std::string_view expected) const {
    return Unexpected(Error{ErrorCode::Corrupt,
                            fmt::format("{}: the header of a .npy file has {} where {} is expected",
                                        fileName, quote(text.substr(0, 32)), expected)});
  }

  std::string_view text, fileName;
};
} // namespace

std::optional<std::string> HeaderText::takeString() {
  skipSpace();
  if (text.empty() || (text[0] != '\'' && text[0] != '"'))
    return {};
  const size_t end = text.find(text[0], 1);
  if (end == std::string_view::npos)
    return {};
  std::string value(text.substr(1, end - 1));
  text.remove_prefix(end + 1);
  return value;
}

bool HeaderText::takeBool(bool &value) {
  value = take("True");
  return value || take("False");
}

bool HeaderText::takeShape() {
  if (!take("("))
    return false;
  while (!take(")")) {
    int64_t extent = 0;
    skipSpace();
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
    if (error != std::errc() || extent < 0)
      return false;
    text.remove_prefix(end - text.data());
    shape.push_back(extent);
    if (!take(",")) // behind the last one it may be there
      return take(")");
  }
  return true;
}

Result<void> HeaderText::parse() {
  bool hasDescr = false, hasOrder = false, hasShape = false;
  if (!take("{"))
    return fail("a dictionary");
  while (!take("}")) {
    const std::optional<std::string> key = takeString();
    if (!key || !take(":"))
      return fail("a key");
    if (key == "descr" && !hasDescr) {
      std::optional<std::string> value = takeString();
      if (!value)
        return fail("the type of elements, such as '<f4',");
      descr = *value;
      hasDescr = true;
    } else if (key == "fortran_order" && !hasOrder) {
      if (!takeBool(isFortran))
        return fail("True or False");
      hasOrder = true;
    } else if (key == "shape" && !hasShape) {
      if (!takeShape())
        return fail("a shape, such as (2, 3),");
      hasShape = true;
    } else {
      return makeError(ErrorCode::Corrupt,
                       "{}: the header of a .npy file has the key {}; expected descr, "
                       "fortran_order and shape, once each",
                       fileName, quote(*key));
    }
    if (!take(",")) {
      if (!take("}"))
        return fail("a comma");
      break;
    }
  }
  if (!hasDescr || !hasOrder || !hasShape)
    return makeError(ErrorCode::Corrupt,
                     "{}: the header of a .npy file lacks one of descr, fortran_order and shape",
                     fileName);
  return {};
}

static std::optional<DType> dtypeOf(std::string_view descr) {
  static constexpr std::pair<std::string_view, DType> kTypes[] = {
      {"|b1", DType::Bool}, {"|i1", DType::I8},  {"|u1", DType::U8},  {"<f2", DType::F16},
      {"<f4", DType::F32},  {"<f8", DType::F64}, {"<i2", DType::I16}, {"<i4", DType::I32},
      {"<i8", DType::I64},  {"<u2", DType::U16}, {"<u4", DType::U32}, {"<u8", DType::U64}};
  for (auto [name, type] : kTypes)
    if (name == descr)
      return type;
  return {};
}

Result<NpyHeader> formats::parseNpyHeader(std::span<const std::byte> file,
                                          std::string_view fileName) {
  const std::string_view bytes(reinterpret_cast<const char *>(file.data()), file.size());
  static constexpr std::string_view kMagic = "\x93NUMPY";
  if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + 4)
    return makeError(ErrorCode::Corrupt, "{}: no .npy file, as numpy.save writes it", fileName);
  const auto at = [&](size_t i) { return static_cast<uint8_t>(bytes[kMagic.size() + i]); };
  const unsigned version = at(0);
  const size_t lengthBytes = version == 1 ? 2 : 4, start = kMagic.size() + 2 + lengthBytes;
  if (version < 1 || version > 3 || at(1) != 0)
    return makeError(ErrorCode::Unsupported,
                     "{}: version {}.{} of .npy files; expected 1.0, 2.0 or 3.0", fileName, version,
                     at(1));
  size_t length = 0;
  for (size_t i = lengthBytes; i-- > 0 && bytes.size() >= start;)
    length = length << 8 | at(2 + i);
  if (bytes.size() < start || length > bytes.size() - start)
    return makeError(ErrorCode::Corrupt,
                     "{}: a header of {} bytes is announced, which is longer than the file; it is "
                     "truncated",
                     fileName, length);
  HeaderText text(bytes.substr(start, length), fileName);
  if (auto parsed = text.parse(); !parsed)
    return Unexpected(parsed.error());
  const std::optional<DType> dtype = dtypeOf(text.descr);
  if (!dtype)
    return makeError(ErrorCode::Unsupported,
                     "{}: elements of {}; expected little-endian integers, floats or booleans",
                     fileName, quote(text.descr));
  if (text.isFortran && text.shape.size() > 1)
    return makeError(ErrorCode::Unsupported,
                     "{}: the array is in Fortran's order; save numpy.ascontiguousarray of it",
                     fileName);
  NpyHeader header{*dtype, std::move(text.shape), static_cast<int64_t>(start + length)};
  const std::optional<int64_t> expected = tensorBytes(header.dtype, header.shape);
  if (const auto found = std::ssize(file) - header.dataOffset; !expected || *expected != found)
    return makeError(ErrorCode::Corrupt,
                     "{}: shape {} of {} does not take the {} bytes that follow", fileName,
                     shapeText(header.shape), dtypeName(header.dtype), found);
  return header;
}
