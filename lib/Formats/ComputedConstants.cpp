//===- ComputedConstants.cpp - Files of computed tensors ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Formats/ComputedConstants.h"

#include "easyquant/Support/Folders.h"

#include "Text.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

using namespace easyquant;
using namespace easyquant::formats;
namespace fs = std::filesystem;

namespace {
constexpr const char *kStampKey = "stamp";
} // namespace

struct ComputedConstants::Impl {
  fs::path folder;
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> files;

  fs::path pathOf(std::string_view file) const { return folder / file; }
  Result<std::shared_ptr<const SafetensorsFile>> open(const std::string &file);
  struct Found {
    std::shared_ptr<const SafetensorsFile> file;
    const SafetensorsTensor *tensor;
  };
  Result<Found> find(const ComputedPlace &place);
  Result<void> readRows(const ComputedPlace &place, DType type, int64_t firstRow, int64_t rows,
                        std::span<std::byte> out);
};

//===----------------------------------------------------------------------===//
// Writing
//===----------------------------------------------------------------------===//

Result<void> ComputedConstants::write(std::string_view file, std::string_view stamp,
                                      std::span<const ComputedTensor> tensors) const {
  const fs::path path = impl->pathOf(file);
  if (stamp.empty())
    return makeError(ErrorCode::InvalidArgument, "{}: a computed file needs a stamp",
                     path.string());
  if (Result<void> made = makeFolders(path.parent_path()); !made)
    return made;
  if (Result<void> done = writeSealed(path, tensors, {{kStampKey, std::string(stamp)}}); !done)
    return done;
  std::lock_guard lock(impl->mutex);
  impl->files.erase(std::string(file));
  return {};
}

//===----------------------------------------------------------------------===//
// Reading
//===----------------------------------------------------------------------===//

/// The index of the first float that is not finite, or the number of floats.
static size_t firstNotFinite(std::span<const std::byte> bytes) {
  size_t count = bytes.size() / sizeof(float);
  for (size_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, bytes.data() + i * sizeof(float), sizeof(float));
    if (!std::isfinite(value))
      return i;
  }
  return count;
}

Result<std::shared_ptr<const SafetensorsFile>>
ComputedConstants::Impl::open(const std::string &file) {
  std::lock_guard lock(mutex);
  std::shared_ptr<const SafetensorsFile> &known = files[file];
  if (!known) {
    Result<SafetensorsFile> opened = openSealed(pathOf(file));
    if (!opened)
      return Unexpected(opened.error());
    known = std::make_shared<const SafetensorsFile>(std::move(*opened));
  }
  return known;
}

static std::string stampOf(const SafetensorsFile &file) {
  auto found = file.metadata().find(kStampKey);
  return found == file.metadata().end() ? "" : found->second;
}

Result<ComputedConstants::Impl::Found> ComputedConstants::Impl::find(const ComputedPlace &place) {
  const std::string where = pathOf(place.file).string() + ": tensor " + quote(place.name);
  Result<std::shared_ptr<const SafetensorsFile>> file = open(place.file);
  if (!file)
    return makeError(
        file.error().code,
        "{}, which holds the computed tensor {}; remove the work folder and compute it "
        "again",
        file.error().message, quote(place.name));
  if (std::string stamp = stampOf(**file); !place.stamp.empty() && stamp != place.stamp)
    return makeError(ErrorCode::Corrupt,
                     "{}: the file is of another run: its stamp is {}, expected {}; remove it and "
                     "compute it again",
                     where, quote(stamp), quote(place.stamp));
  const SafetensorsTensor *tensor = (*file)->find(place.name);
  if (!tensor)
    return makeError(ErrorCode::NotFound,
                     "{} is not in the file; remove the file and compute it again", where);
  if (tensor->dtype != place.type || tensor->shape != place.shape)
    return makeError(ErrorCode::Corrupt, "{}: expected {} {}, found {} {}", where,
                     dtypeName(place.type), shapeText(place.shape), dtypeName(tensor->dtype),
                     shapeText(tensor->shape));
  return Found{std::move(*file), tensor};
}

Result<void> ComputedConstants::Impl::readRows(const ComputedPlace &place, DType type,
                                               int64_t firstRow, int64_t rows,
                                               std::span<std::byte> out) {
  Result<Found> found = find(place);
  if (!found)
    return Unexpected(found.error());
  const std::string where = pathOf(place.file).string() + ": tensor " + quote(place.name);
  int64_t extent = place.shape.empty() ? 1 : place.shape.front();
  if (place.type != type)
    return makeError(ErrorCode::InvalidArgument, "{}: read as {}, but its elements are {}", where,
                     dtypeName(type), dtypeName(place.type));
  if (firstRow < 0 || rows < 0 || firstRow > extent - rows)
    return makeError(ErrorCode::InvalidArgument, "{}: {} rows from row {}: there are only {}",
                     where, rows, firstRow, extent);
  std::span<const std::byte> data = found->file->data(*found->tensor);
  int64_t rowBytes = extent == 0 ? 0 : int64_t(data.size()) / extent;
  if (int64_t(out.size()) != rows * rowBytes)
    return makeError(ErrorCode::InvalidArgument, "{}: a buffer of {} bytes for {} rows of {} bytes",
                     where, out.size(), rows, rowBytes);
  std::span<const std::byte> part = data.subspan(firstRow * rowBytes, rows * rowBytes);
  if (!part.empty())
    std::memcpy(out.data(), part.data(), part.size());
  if (part.size() >= MappedFile::kReleaseBytes)
    found->file->mapping().release(part);
  if (type == DType::F32)
    if (size_t at = firstNotFinite(out); at != out.size() / sizeof(float))
      return makeError(ErrorCode::Corrupt,
                       "{}: element {} of row {} is not finite; remove the file and compute it "
                       "again",
                       where, int64_t(at) % (rowBytes / int64_t(sizeof(float))),
                       firstRow + int64_t(at) / (rowBytes / int64_t(sizeof(float))));
  return {};
}

ComputedConstants::ComputedConstants(fs::path folder) : impl(std::make_unique<Impl>()) {
  impl->folder = std::move(folder);
}
ComputedConstants::ComputedConstants(ComputedConstants &&) noexcept = default;
ComputedConstants &ComputedConstants::operator=(ComputedConstants &&) noexcept = default;
ComputedConstants::~ComputedConstants() = default;

const fs::path &ComputedConstants::folder() const { return impl->folder; }

Result<bool> ComputedConstants::has(std::string_view file, std::string_view stamp) const {
  return isSealed(impl->pathOf(file), {{kStampKey, std::string(stamp)}});
}

Result<void> ComputedConstants::check(const ComputedPlace &place) const {
  if (auto found = impl->find(place); !found)
    return Unexpected(found.error());
  return {};
}

Result<void> ComputedConstants::readRows(const ComputedPlace &place, int64_t firstRow, int64_t rows,
                                         std::span<float> out) const {
  return impl->readRows(place, DType::F32, firstRow, rows, std::as_writable_bytes(out));
}
Result<void> ComputedConstants::readRows(const ComputedPlace &place, int64_t firstRow, int64_t rows,
                                         std::span<int8_t> out) const {
  return impl->readRows(place, DType::I8, firstRow, rows, std::as_writable_bytes(out));
}
Result<void> ComputedConstants::readRows(const ComputedPlace &place, int64_t firstRow, int64_t rows,
                                         std::span<int32_t> out) const {
  return impl->readRows(place, DType::I32, firstRow, rows, std::as_writable_bytes(out));
}
