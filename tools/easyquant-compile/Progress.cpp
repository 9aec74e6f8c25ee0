//===- Progress.cpp - What easyquant-compile shows while it works ---------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "Progress.h"

#include "easyquant/Support/Json.h"
#include "easyquant/Support/ProgressAction.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <mutex>

using namespace easyquant;

struct Progress::Impl {
  ProgressFormat format;
  std::mutex mutex; // passes run on several threads
  std::string phase;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();

  void report(llvm::StringRef name, int64_t done, int64_t total) {
    std::lock_guard lock(mutex);
    if (format == ProgressFormat::JSON) {
      const Json event = Json::Object{{"phase", name}, {"done", done}, {"total", total}};
      llvm::errs() << event.text() + "\n";
      return;
    }
    if (format == ProgressFormat::None)
      return;
    auto now = std::chrono::steady_clock::now();
    if (phase != name) {
      phase = name.str();
      begin = now;
    }
    if (done == total)
      llvm::errs() << llvm::formatv("{0,-12} {1,6:F1} s\n", name,
                                    std::chrono::duration<double>(now - begin).count());
  }
};

Progress::Progress(mlir::MLIRContext &context, ProgressFormat format)
    : impl(std::make_shared<Impl>()) {
  impl->format = format;
  context.registerActionHandler(
      [impl = impl](llvm::function_ref<void()> run, const mlir::tracing::Action &action) {
        run();
        if (auto *progress = llvm::dyn_cast<ProgressAction>(&action))
          impl->report(progress->phase, progress->done, progress->total);
      });
}

Progress::~Progress() = default;

void Progress::report(llvm::StringRef phase, int64_t done, int64_t total) {
  impl->report(phase, done, total);
}
