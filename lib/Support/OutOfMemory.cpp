//===- OutOfMemory.cpp - The end of a tool's memory -----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Support/OutOfMemory.h"

#include "easyquant/Support/OneLine.h"

#include <cstring>
#include <exception>
#include <unistd.h>

namespace easyquant {

/// Cut where it is longer: a message must not need memory.
static char input[1024] = "";

void setInput(const std::string &path) {
  const std::string line = oneLine(path).substr(0, sizeof(input) - 1);
  std::memcpy(input, line.c_str(), line.size() + 1);
}

static void print(const char *text) {
  [[maybe_unused]] ssize_t written = ::write(STDERR_FILENO, text, std::strlen(text));
}

int reportOutOfMemory() noexcept {
  print("error: ");
  print(input);
  print(*input ? ": " : "");
  print("out of memory; end other programs, raise the limit (ulimit -v), or take a machine with "
        "more\n");
  return 1;
}

static void endThread() {
  try {
    if (std::current_exception())
      throw;
  } catch (const std::bad_alloc &) {
    ::_exit(reportOutOfMemory());
  } catch (const std::exception &error) {
    print("error: unexpected: ");
    print(error.what());
    print("\n");
  } catch (...) {
    print("error: unexpected exception\n");
  }
  std::abort();
}

void explainOutOfMemory() { std::set_terminate(endThread); }

} // namespace easyquant
