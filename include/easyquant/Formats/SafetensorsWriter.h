//===- SafetensorsWriter.h - Streaming safetensors files ----------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_SAFETENSORSWRITER_H
#define EASYQUANT_FORMATS_SAFETENSORSWRITER_H

#include "easyquant/Formats/Safetensors.h"
#include "easyquant/Support/Result.h"
#include "easyquant/Support/StreamedFile.h"

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace easyquant::formats {

/// Writes one safetensors file: all tensors are declared first, then their bytes are streamed in
/// the order of declaration, so that no more than one piece is in memory at a time. The header is
/// padded with spaces so that the data section starts at a multiple of kDataAlignment (the section
/// can be mapped and used in place). The bytes written depend on the arguments alone.
///
/// The file is written under a temporary name; finish() gives it its own, and what was there before
/// stays until then. Unless it succeeds, nothing of it is left.
class SafetensorsWriter {
public:
  static constexpr int64_t kDataAlignment = 4096;

  struct Tensor {
    std::string name;
    /// A safetensors type name: "F32", "I8", ...
    std::string dtype;
    std::vector<int64_t> shape;
  };

  /// Creates the file and writes its header. Errors: InvalidArgument (a name that is
  /// empty, repeated or not printable, an unknown type, an impossible shape), IO.
  static Result<SafetensorsWriter> create(const std::filesystem::path &path,
                                          std::vector<Tensor> tensors,
                                          const std::map<std::string, std::string> &metadata = {});

  /// Appends bytes to the tensor `name`, which may come in any number of pieces but must be the
  /// first declared tensor that is not complete yet. Errors: InvalidArgument, IO (disk full, ...).
  Result<void> write(std::string_view name, std::span<const std::byte> bytes);

  /// Checks that every tensor is complete, flushes the file to the disk and gives it its name.
  Result<void> finish();

  const std::filesystem::path &path() const { return file.path(); }
  /// The tensors with their places in the data section, in the order of declaration.
  std::span<const SafetensorsTensor> tensors() const { return layout; }
  /// First byte of the data section, counted from the start of the file.
  int64_t dataOffset() const { return dataBegin; }

private:
  SafetensorsWriter(StreamedFile file, std::vector<SafetensorsTensor> layout, int64_t dataBegin)
      : file(std::move(file)), layout(std::move(layout)), dataBegin(dataBegin) {}
  void skipComplete();

  StreamedFile file;
  std::vector<SafetensorsTensor> layout;
  int64_t dataBegin = 0;
  /// The tensor being written, and the bytes of the data section written so far.
  size_t current = 0;
  int64_t written = 0;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_SAFETENSORSWRITER_H
