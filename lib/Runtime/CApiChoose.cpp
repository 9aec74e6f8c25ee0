//===- CApiChoose.cpp - The C interface: choosing tokens ------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "CApiBatch.h"

using namespace easyquant;
using namespace easyquant::runtime;

eq_error *eq_batch_choose(eq_batch *batch, eq_choice *choices, size_t count) {
  return guarded({{batch, "batch"}, {choices, "choices", count > 0}}, [&]() -> Result<void> {
    if (count == 0)
      return {};
    const std::span asked(choices, count);
    for (eq_choice &choice : asked) {
      choice.chosen = {-1, 0};
      choice.status = EQ_OK;
      choice.error = nullptr;
    }
    std::vector<Result<eq_logprob>> results(count);
    if (Result<void> chosen = batch->batch.choose(asked, results); !chosen)
      return chosen;
    for (size_t i = 0; i < count; ++i)
      if (results[i]) {
        choices[i].chosen = *results[i];
      } else {
        choices[i].status = static_cast<eq_error_code>(results[i].error().code);
        choices[i].error = newError(std::move(results[i].error()));
      }
    return {};
  });
}
