//===- GGUFWriter.h - Streaming GGUF files ------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_GGUFWRITER_H
#define EASYQUANT_FORMATS_GGUFWRITER_H

#include "easyquant/Formats/GGUF.h"
#include "easyquant/Formats/ModelConfig.h"
#include "easyquant/Support/StreamedFile.h"

namespace easyquant::formats {

/// Key-value pairs of a header, in the order in which they are written.
class GGUFMetadata {
public:
  void add(std::string_view key, uint32_t value) { add(key, GGUFType::U32, value); }
  void add(std::string_view key, float value) { add(key, GGUFType::F32, value); }
  void add(std::string_view key, std::string_view text);
  void add(std::string_view key, std::span<const int32_t> numbers);
  void add(std::string_view key, const std::vector<bool> &flags);
  /// As it is in another file.
  void add(std::string_view key, const GGUFValue &value);

  uint64_t size() const { return count; }
  std::string_view bytes() const { return pairs; }

private:
  template <typename T> void add(std::string_view key, GGUFType type, T value);

  std::string pairs;
  uint64_t count = 0;
};

/// Adds what llama.cpp has to know of a model: the reverse of parseGGUFConfig(), apart from tokens,
/// and from the scalings "llama3" and "proportional", which are the tensor kGGUFRopeFactors.
/// Errors: Unsupported, naming what GGUF has no key for.
Result<void> addModelConfig(GGUFMetadata &metadata, const ModelConfig &config);

/// Writes one GGUF file of version 3: all tensors are declared first, then their bytes are streamed
/// in the order of declaration. The bytes written depend on the arguments alone; the file appears
/// whole or not at all.
class GGUFWriter {
public:
  struct Tensor {
    std::string name;
    GGMLType type = GGMLType::F32;
    std::vector<int64_t> shape; ///< outermost dimension first, whole blocks along the last
  };

  /// Creates the file and writes its header. Errors: InvalidArgument (a name that is empty,
  /// repeated, not printable or too long for llama.cpp; an impossible shape), IO.
  static Result<GGUFWriter> create(const std::filesystem::path &path, const GGUFMetadata &metadata,
                                   std::span<const Tensor> tensors);

  /// Appends bytes to the tensor `name`, which may come in any number of pieces but must be the
  /// first declared tensor that is not complete yet. Errors: InvalidArgument, IO.
  Result<void> write(std::string_view name, std::span<const std::byte> bytes);

  /// Checks that every tensor is complete, and gives the file its name.
  Result<void> finish();

private:
  struct Place {
    std::string name;
    int64_t bytes;
  };
  GGUFWriter(StreamedFile file, std::vector<Place> places)
      : file(std::move(file)), places(std::move(places)) {}

  StreamedFile file;
  std::vector<Place> places;
  /// The tensor being written, and how much of it is.
  size_t current = 0;
  int64_t written = 0;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_GGUFWRITER_H
