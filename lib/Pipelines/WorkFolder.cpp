//===- WorkFolder.cpp - What methods leave behind -------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Pipelines/WorkFolder.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <vector>

void easyquant::removeWorkFolder(const std::string &folder) {
  // First listed, then removed: a listing does not survive changes of its folder. Files of others
  // stay.
  std::error_code error;
  std::vector<std::string> computed;
  for (llvm::sys::fs::directory_iterator it(folder, error), end; it != end && !error;
       it.increment(error)) {
    llvm::StringRef extension = llvm::sys::path::extension(it->path());
    // .partial-1234 is what process 1234 was writing when it was killed.
    if (extension == ".safetensors" || extension.starts_with(".partial"))
      computed.push_back(it->path());
  }
  for (const std::string &file : computed)
    llvm::sys::fs::remove(file);
  llvm::sys::fs::remove(folder);
}
