//===- _sampler.cpp - easyquant._runtime.Sampler --------------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "_sampler.h"

using namespace easyquant::python;
using namespace nb::literals;

Sampler::Sampler(double temperature, int64_t topK, double topP, double minP,
                 double repetitionPenalty, double presencePenalty, double frequencyPenalty,
                 const std::map<int32_t, float> &given, uint64_t seed, std::vector<int32_t> prompt,
                 std::optional<size_t> logprobs)
    : options{}, best(logprobs.value_or(0)),
      hasPenalty(repetitionPenalty != 1 || presencePenalty != 0 || frequencyPenalty != 0) {
  if (repetitionPenalty == 0) // which the C interface takes for none
    raise(EQ_INVALID_ARGUMENT, "repetition_penalty: found 0, expected a number from 0.01 to 100");
  options.temperature = temperature;
  options.top_k = topK;
  options.top_p = topP;
  options.min_p = minP;
  options.repetition_penalty = repetitionPenalty;
  options.presence_penalty = presencePenalty;
  options.frequency_penalty = frequencyPenalty;
  options.seed = seed;
  options.with_logprob = logprobs.has_value();
  options.best_count = best.size();
  for (auto [token, shift] : given)
    bias.push_back({token, shift});
  options.bias_count = bias.size();
  if (hasPenalty) {
    tokens = std::move(prompt);
    options.prompt_tokens = tokens.size();
  }
}

void Sampler::allow(const nb::object &words) {
  using Words = nb::ndarray<const uint32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
  allowed.clear();
  Words array;
  if (words.is_none())
    return;
  if (!nb::try_cast(words, array, /*convert=*/false))
    throw nb::type_error("allowed: expected an array of uint32, or None for all tokens");
  allowed.assign(array.data(), array.data() + array.size());
  if (allowed.empty())
    raise(EQ_INVALID_ARGUMENT, "allowed: found no word, expected a bit for each token");
}

eq_choice Sampler::ask(int64_t sequence) {
  eq_choice choice = options;
  choice.sequence = sequence;
  choice.tokens = tokens.data();
  choice.token_count = tokens.size();
  choice.bias = bias.data();
  choice.allowed = allowed.empty() ? nullptr : allowed.data();
  choice.allowed_words = allowed.size();
  choice.best = best.empty() ? nullptr : best.data();
  return choice;
}

nb::object Sampler::settle(const eq_choice &choice) {
  const std::unique_ptr<eq_error, decltype(&eq_error_free)> error(choice.error, eq_error_free);
  if (error)
    return makeError(choice.status, eq_error_get_message(choice.error));
  if (hasPenalty)
    tokens.push_back(choice.chosen.token);
  if (choice.with_logprob == 0)
    return nb::make_tuple(choice.chosen.token, nb::none(), nb::list());
  nb::list likely;
  for (const eq_logprob &each : best)
    likely.append(nb::make_tuple(each.token, each.logprob));
  return nb::make_tuple(choice.chosen.token, choice.chosen.logprob, likely);
}

void easyquant::python::defineSampler(nb::module_ &m) {
  nb::class_<Sampler>(
      m, "Sampler",
      "How the tokens of a sequence are chosen, one after the other: eq_choice of easyquant.h says "
      "what each number means. It remembers what it has chosen, which penalties look at.")
      .def(nb::init<double, int64_t, double, double, double, double, double,
                    const std::map<int32_t, float> &, uint64_t, std::vector<int32_t>,
                    std::optional<size_t>>(),
           nb::kw_only(), "temperature"_a = 0.0, "top_k"_a = 0, "top_p"_a = 1.0, "min_p"_a = 0.0,
           "repetition_penalty"_a = 1.0, "presence_penalty"_a = 0.0, "frequency_penalty"_a = 0.0,
           "bias"_a = std::map<int32_t, float>(), "seed"_a = 0, "prompt"_a = std::vector<int32_t>(),
           "logprobs"_a.none() = nb::none(),
           "bias: what is added to logits, by token. prompt: its tokens, for the repetition "
           "penalty. logprobs: None for no log-probabilities, else so many of the most likely "
           "tokens beside the chosen one.")
      .def("allow", &Sampler::allow, nb::arg("words").none(),
           "Bits of the tokens that may be chosen from now on, an array of uint32 (bit t % 32 of "
           "word "
           "t // 32 is token t); None: all.");
}
