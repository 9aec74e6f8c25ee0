//===- NewFields.cpp - What is new in unknown models ----------------------===//
//
// Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
//===----------------------------------------------------------------------===//

#include "NewFields.h"

#include "Text.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/ranges.h>

using namespace easyquant;
using namespace easyquant::formats;

/// Parts that some architectures lack, by the fields that say that a model has them.
struct NewField {
  std::string_view key, meaning;
};
static constexpr NewField kNewFields[] = {
    {"num_experts", "a mixture of experts"},
    {"num_local_experts", "a mixture of experts"},
    {"n_routed_experts", "a mixture of experts"},
    {"linear_conv_kernel_dim", "gated delta nets"},
    {"conv_L_cache", "short convolutions"},
    {"mamba_d_state", "state spaces"},
    {"state_size", "state spaces"},
    {"kv_lora_rank", "latent attention"},
    {"hidden_size_per_layer_input", "embeddings of layers"},
    {"mtp_num_hidden_layers", "a head that drafts"},
    {"num_nextn_predict_layers", "a head that drafts"},
    {"vision_config", "a part for pictures"},
    {"audio_config", "a part for sound"},
};

/// Fields of configurations that say nothing of what a model computes.
static constexpr std::string_view kFieldsOfNoModel[] = {"architectures",
                                                        "attention_dropout",
                                                        "auto_map",
                                                        "bos_token_id",
                                                        "dtype",
                                                        "embd_pdrop",
                                                        "eos_token_id",
                                                        "hidden_dropout",
                                                        "initializer_range",
                                                        "model_type",
                                                        "output_attentions",
                                                        "output_hidden_states",
                                                        "output_router_logits",
                                                        "pad_token_id",
                                                        "pretraining_tp",
                                                        "resid_pdrop",
                                                        "router_aux_loss_coef",
                                                        "router_jitter_noise",
                                                        "tie_word_embeddings",
                                                        "torch_dtype",
                                                        "transformers_version",
                                                        "use_cache"};

static std::string described(std::string_view key) {
  const auto known = std::ranges::find(kNewFields, key, &NewField::key);
  if (known != std::end(kNewFields))
    return fmt::format("{} ({})", key, known->meaning);
  auto isPlain = [](unsigned char c) { return std::isalnum(c) || c == '_'; };
  return key.size() <= 64 && std::ranges::all_of(key, isPlain) ? std::string(key) : quote(key);
}

/// The known architecture that leaves the fewest of these fields unread, and those; null if each
/// finds a mistake in them.
static std::pair<const Architecture *, std::vector<std::string>>
nearestByFields(const Json &object, std::string_view fileName, ReadModel read) {
  const Architecture *nearest = nullptr;
  std::vector<std::string> least;
  for (const Architecture &architecture : architectures()) {
    FieldReader fields(object, fileName, {.nullIsAbsent = true});
    ModelConfig config;
    config.architecture = &architecture;
    read(fields, config);
    if (fields.failed())
      continue;
    Json::Object rest;
    fields.rest(rest);
    std::vector<std::string> unread;
    for (const auto &[name, value] : rest)
      if (!value.isNull() && value != Json(false) &&
          std::ranges::find(kFieldsOfNoModel, name) == std::end(kFieldsOfNoModel))
        unread.push_back(described(name));
    if (!nearest || unread.size() < least.size()) {
      nearest = &architecture;
      least = std::move(unread);
    }
  }
  return {nearest, std::move(least)};
}

std::string formats::newFields(const Json &object, std::string_view fileName, ReadModel read) {
  constexpr size_t most = 8;
  const Json *text = object.find("text_config");
  const bool hasText = text && text->isObject();
  auto [nearest, found] = nearestByFields(hasText ? *text : object, fileName, read);
  for (const NewField &field : kNewFields)
    if ((hasText && object.find(field.key)) ||
        (!nearest && (hasText ? *text : object).find(field.key)))
      found.push_back(described(field.key));
  std::string message;
  if (nearest)
    message = fmt::format("; nearest by its fields: {}", nearest->name);
  if (found.empty())
    return message;
  const size_t more = found.size() - std::min(found.size(), most);
  found.resize(found.size() - more);
  message += fmt::format("; new in it: {}", fmt::join(found, ", "));
  return more == 0 ? message : fmt::format("{} and {} more", message, more);
}
