//===- PrefillProgress.h - How far a prompt is ------------------*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TOOLS_RUN_PREFILLPROGRESS_H
#define EASYQUANT_TOOLS_RUN_PREFILLPROGRESS_H

#include "easyquant/Runtime/easyquant.h"

#include <chrono>

/// While there is one, a line on a terminal says how many tokens of a call are done, if it takes
/// more than a second. The line is gone in the end.
class PrefillProgress {
public:
  explicit PrefillProgress(eq_session *session);
  ~PrefillProgress();
  PrefillProgress(const PrefillProgress &) = delete;
  PrefillProgress &operator=(const PrefillProgress &) = delete;

private:
  using Clock = std::chrono::steady_clock;
  void show(int64_t done, int64_t total);

  eq_session *session;
  Clock::time_point due = Clock::now() + std::chrono::seconds(1);
  bool isShown = false;
};

#endif // EASYQUANT_TOOLS_RUN_PREFILLPROGRESS_H
