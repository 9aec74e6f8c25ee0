//===- Owned.h - Objects of the C interface that free themselves -*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_TEST_RUNTIME_OWNED_H
#define EASYQUANT_TEST_RUNTIME_OWNED_H

#include "easyquant/Runtime/easyquant.h"

#include <memory>

namespace easyquant::runtime::test {

struct Freer {
  void operator()(eq_error *error) const { eq_error_free(error); }
  void operator()(eq_model *model) const { eq_model_free(model); }
  void operator()(eq_session *session) const { eq_session_free(session); }
  void operator()(eq_batch *batch) const { eq_batch_free(batch); }
};
template <typename T> using Owned = std::unique_ptr<T, Freer>;

} // namespace easyquant::runtime::test

#endif // EASYQUANT_TEST_RUNTIME_OWNED_H
