//===- ComputedConstants.h - Files of computed tensors ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// What a quantization method computes (equalization factors, scales, zero points, codes) goes into
// safetensors files of a work folder, one a pass and layer, so that a model never has to be in
// memory whole. A file appears complete or not at all and carries a stamp, a text that identifies
// everything that it was computed from: the files are the journal of a run that can be resumed.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_FORMATS_COMPUTEDCONSTANTS_H
#define EASYQUANT_FORMATS_COMPUTEDCONSTANTS_H

#include "easyquant/Formats/SealedFile.h"

#include <memory>

namespace easyquant::formats {

/// Where a computed tensor is expected to be, and as what.
struct ComputedPlace {
  std::string file;  ///< in the work folder: "smooth_3.safetensors"
  std::string stamp; ///< that the file must carry; empty: any
  std::string name;
  DType type = DType::F32;
  std::vector<int64_t> shape;
};

/// A work folder. Reading is thread-safe; a file is mapped at its first use and stays so.
class ComputedConstants {
public:
  explicit ComputedConstants(std::filesystem::path folder);
  ComputedConstants(ComputedConstants &&) noexcept;
  ComputedConstants &operator=(ComputedConstants &&) noexcept;
  ~ComputedConstants();

  const std::filesystem::path &folder() const;

  /// Is there a file with this stamp? Then its layer need not be computed again. Errors: Corrupt,
  /// naming the file, where it is damaged, and so as good as none.
  Result<bool> has(std::string_view file, std::string_view stamp) const;

  /// Writes a file under a temporary name and renames it, making the folder if need be. Errors:
  /// InvalidArgument (an empty stamp, a name twice, bytes that do not fill a shape, a float that is
  /// not finite, naming it), IO.
  Result<void> write(std::string_view file, std::string_view stamp,
                     std::span<const ComputedTensor> tensors) const;

  /// Is the tensor there with its type and shape, in a file of its stamp? Errors, naming file and
  /// tensor: NotFound (file, tensor), Corrupt (a damaged file, another type or shape, another
  /// stamp).
  Result<void> check(const ComputedPlace &place) const;

  /// Rows firstRow .. firstRow + rows - 1 into `out`, which has that many times elements / shape[0]
  /// elements; a vector has one element a row. Errors: those of check, InvalidArgument (rows or
  /// size of `out`; a type that is not the one of `out`), Corrupt (a float that is not finite).
  Result<void> readRows(const ComputedPlace &place, int64_t firstRow, int64_t rows,
                        std::span<float> out) const;
  Result<void> readRows(const ComputedPlace &place, int64_t firstRow, int64_t rows,
                        std::span<int8_t> out) const;
  Result<void> readRows(const ComputedPlace &place, int64_t firstRow, int64_t rows,
                        std::span<int32_t> out) const;

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace easyquant::formats

#endif // EASYQUANT_FORMATS_COMPUTEDCONSTANTS_H
