//===- _sampler.h - How Python says what a token is chosen by ---*- C++ -*-===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#ifndef EASYQUANT_PYTHON_EASYQUANT_RUNTIME_SAMPLER_H
#define EASYQUANT_PYTHON_EASYQUANT_RUNTIME_SAMPLER_H

#include "_runtime.h"

#include <nanobind/stl/map.h>

#include <map>

namespace easyquant::python {

/// One sequence's members of eq_choice, and what they point to.
class Sampler {
public:
  Sampler(double temperature, int64_t topK, double topP, double minP, double repetitionPenalty,
          double presencePenalty, double frequencyPenalty, const std::map<int32_t, float> &bias,
          uint64_t seed, std::vector<int32_t> prompt, std::optional<size_t> logprobs);

  void allow(const nb::object &words);

  /// The choice of a sequence. It points into this, and is to be settled before the next.
  eq_choice ask(int64_t sequence);
  /// The token of a choice that was carried out, or its error, as Python gets it.
  nb::object settle(const eq_choice &choice);

private:
  eq_choice options;
  std::vector<eq_bias> bias;
  std::vector<int32_t> tokens; ///< where there are penalties
  std::vector<uint32_t> allowed;
  std::vector<eq_logprob> best;
  bool hasPenalty;
};

} // namespace easyquant::python

#endif // EASYQUANT_PYTHON_EASYQUANT_RUNTIME_SAMPLER_H
