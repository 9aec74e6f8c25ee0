//===- Result.h - Errors as values outside MLIR -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Numerics, Formats and Runtime know neither MLIR nor LLVM and throw nothing across their borders.
// They return a Result: a value, or an Error whose message names the file, the tensor or site, what
// was found, what was expected and what to do.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_SUPPORT_RESULT_H
#define EASYQUANT_SUPPORT_RESULT_H

#include <fmt/core.h>
#include <tl/expected.hpp>

#include <string>
#include <utility>

namespace easyquant {

/// What kind of mistake it was; the C ABI passes it on (see easyquant/Runtime/easyquant.h).
enum class ErrorCode {
  InvalidArgument = 1, ///< The caller asked for something that cannot be (token out of range, ...).
  NotFound = 2,        ///< A file or tensor that should be there is not.
  Corrupt = 3,         ///< A file does not say what its format or its checksum demands.
  Unsupported = 4,     ///< Well-formed, but not something this build or this machine can do.
  OutOfRange = 5,      ///< A limit of the model, the session or the machine would be exceeded.
  IO = 6,              ///< The operating system refused (disk full, permission, ...).
  Interrupted = 7,     ///< The caller asked to end before it was done.
};

struct Error {
  ErrorCode code;
  std::string message;
};

/// tl::expected is std::expected for C++20: MLIR's headers do not compile as C++23 here.
template <typename T> using Result = tl::expected<T, Error>;

/// `return Unexpected(result.error());` hands an error on.
using Unexpected = tl::unexpected<Error>;

/// `return makeError(ErrorCode::Corrupt, "{}: header of {} bytes ...", path, n);`
template <typename... Args>
Unexpected makeError(ErrorCode code, fmt::format_string<Args...> format, Args &&...args) {
  return Unexpected(Error{code, fmt::format(format, std::forward<Args>(args)...)});
}

} // namespace easyquant

#endif // EASYQUANT_SUPPORT_RESULT_H
