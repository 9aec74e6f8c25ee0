//===- TestFiles.h - Files and errors of tests --------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_SUPPORT_TESTFILES_H
#define EASYQUANT_TEST_SUPPORT_TESTFILES_H

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unistd.h>

namespace easyquant::test {

/// A folder that is removed with everything in it.
class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "easyquant-test-XXXXXX").string();
    path = ::mkdtemp(name.data());
  }
  ~TemporaryFolder() { std::filesystem::remove_all(path); }

  std::filesystem::path operator/(std::string_view name) const { return path / name; }
  std::filesystem::path path;
};

inline void putFile(const std::filesystem::path &path, std::string_view text) {
  std::ofstream(path, std::ios::binary) << text;
}

inline std::string readFile(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Whether `message` has all of `parts`.
inline bool mentions(const std::string &message, std::initializer_list<std::string_view> parts) {
  for (std::string_view part : parts)
    if (message.find(part) == std::string::npos)
      return false;
  return true;
}

} // namespace easyquant::test

/// `result` must be an error with this code whose message has all of the given parts.
#define EXPECT_ERROR(result, expectedCode, ...)                                                    \
  do {                                                                                             \
    auto &&checked = (result);                                                                     \
    if (checked) {                                                                                 \
      ADD_FAILURE() << "no error; expected one with " #__VA_ARGS__;                                \
    } else {                                                                                       \
      EXPECT_EQ(checked.error().code, (expectedCode)) << checked.error().message;                  \
      EXPECT_TRUE(easyquant::test::mentions(checked.error().message, {__VA_ARGS__}))               \
          << checked.error().message << "\nexpected " #__VA_ARGS__;                                \
    }                                                                                              \
  } while (false)

/// `result` must be a value.
#define ASSERT_VALUE(result) ASSERT_TRUE(result) << (result).error().message

#endif // EASYQUANT_TEST_SUPPORT_TESTFILES_H
