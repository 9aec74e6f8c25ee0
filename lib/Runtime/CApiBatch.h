//===- CApiBatch.h - What eq_batch is ---------------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_LIB_RUNTIME_CAPIBATCH_H
#define EASYQUANT_LIB_RUNTIME_CAPIBATCH_H

#include "CApi.h"

#include "easyquant/Runtime/Batch.h"

struct eq_batch {
  Batch batch;
  std::string breakdown{}, siteBreakdown{};
  eq_progress progress = nullptr;
  void *progressContext = nullptr;
};

#endif // EASYQUANT_LIB_RUNTIME_CAPIBATCH_H
