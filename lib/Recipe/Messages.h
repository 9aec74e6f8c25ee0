//===- Messages.h - What recipes say of wrong values ------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//
//
// Private to lib/Recipe.
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RECIPE_MESSAGES_H
#define EASYQUANT_LIB_RECIPE_MESSAGES_H

#include "easyquant/Support/DidYouMean.h"
#include "easyquant/Support/Result.h"

namespace easyquant::recipe {

template <typename... Args> Unexpected invalid(fmt::format_string<Args...> format, Args &&...args) {
  return makeError(ErrorCode::InvalidArgument, format, std::forward<Args>(args)...);
}

/// "a, b and c".
inline std::string enumeration(llvm::ArrayRef<std::string> names) {
  if (names.size() < 2)
    return llvm::join(names, "");
  return llvm::join(names.drop_back(), ", ") + " and " + names.back();
}

/// There is no such `what`.
inline Unexpected unknown(std::string_view what, std::string_view found,
                          llvm::ArrayRef<std::string> names) {
  return invalid("unknown {} '{}'; legal are {}{}", what, found, enumeration(names),
                 didYouMean(found, names));
}

} // namespace easyquant::recipe

#endif // EASYQUANT_LIB_RECIPE_MESSAGES_H
