//===- WorkFolder.h - What methods leave behind -----------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PIPELINES_WORKFOLDER_H
#define EASYQUANT_PIPELINES_WORKFOLDER_H

#include <string>

namespace easyquant {

/// Removes what calibration and methods left in their work folder, and the folder if nothing else
/// is in it.
void removeWorkFolder(const std::string &folder);

} // namespace easyquant

#endif // EASYQUANT_PIPELINES_WORKFOLDER_H
