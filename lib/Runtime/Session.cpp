//===- Session.cpp - One sequence of a model ------------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "easyquant/Runtime/Session.h"

using namespace easyquant;
using namespace easyquant::runtime;

Result<Session> Session::create(std::shared_ptr<const Model> model, int64_t context,
                                int32_t threads, bool measure, int64_t keptStates) {
  Result<Batch> batch = Batch::create(
      std::move(model),
      {.context = context, .threads = threads, .measure = measure, .keptStates = keptStates});
  if (!batch)
    return Unexpected(batch.error());
  return batch->add().transform(
      [&](int64_t sequence) { return Session(std::move(*batch), sequence); });
}

Result<void> Session::append(std::span<const int32_t> tokens, float *allLogits) {
  Batch::Item item = {sequence, tokens, allLogits};
  if (Result<void> done = batch.append({&item, 1}); !done)
    return done;
  return std::move(item.result);
}
