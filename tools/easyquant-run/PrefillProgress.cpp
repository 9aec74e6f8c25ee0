//===- PrefillProgress.cpp - How far a prompt is --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "PrefillProgress.h"

#include <cinttypes>
#include <cstdio>
#include <unistd.h>

PrefillProgress::PrefillProgress(eq_session *session) : session(session) {
  if (!::isatty(STDERR_FILENO))
    return;
  auto progress = [](void *self, int64_t done, int64_t total) -> int32_t {
    static_cast<PrefillProgress *>(self)->show(done, total);
    return 0;
  };
  eq_session_set_progress(session, progress, this);
}

PrefillProgress::~PrefillProgress() {
  eq_session_set_progress(session, nullptr, nullptr);
  if (isShown)
    std::fputs("\r\033[K", stderr);
}

void PrefillProgress::show(int64_t done, int64_t total) {
  Clock::time_point now = Clock::now();
  if (now < due)
    return;
  due = now + std::chrono::milliseconds(200);
  isShown = true;
  std::fprintf(stderr, "\rprefill: %" PRId64 " of %" PRId64 " tokens", done, total);
}
