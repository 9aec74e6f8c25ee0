#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The transformers side of architectures.py; runs in the peer's own environment.

Its requests, as serving.py reads them:

    {"op": "judge", "path": FOLDER, "tokens": PATH, "count": 64,
     "out": PATH, "threads": 2}                               f32 [tokens, vocabulary] (.npy) of all tokens (int64, .npy), and `count` tokens
                                                              behind them, each the likeliest one, by its KV cache
    {"op": "guesses", "path": FOLDER, "assistant": FOLDER,
     "texts": [[IDS], ...], "count": 4, "window": N or null,
     "out": PATH, "threads": 2}                               f32 [texts, count, vocabulary] (.npy) of an assistant's guesses behind the last token
                                                              of each text, which the model has not read; and the tokens. With `window` the
                                                              assistant's layers that have one get so many of the newest keys
    {"op": "describe"}                                        versions

Models are computed in f32, attention and experts in the plain form.
"""

import warnings

import numpy as np
import torch
import transformers
from serving import serve
from transformers.generation.candidate_generator import SinglePositionMultiTokenCandidateGenerator


def load(path, kind=transformers.AutoModelForCausalLM, unused=()):
    """The model of a folder, all of whose weights it has read, and no others. Those that are `unused` may be missing."""
    config = transformers.AutoConfig.from_pretrained(path)
    text = config.get_text_config()
    if (text.pad_token_id or 0) >= text.vocab_size:  # the default of a larger vocabulary
        text.pad_token_id = None
    model, said = kind.from_pretrained(
        path, config=config, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", output_loading_info=True)
    if wrong := {what: left for what, names in said.items() if (left := sorted(set(map(str, names)) - set(unused)))}:
        raise ValueError(f"{path} is not the model that {type(model).__name__} reads: {wrong}")
    return model.eval()


@torch.inference_mode()
def judge(path, tokens, count, out, threads):
    torch.set_num_threads(threads)
    model, tokens = load(path), torch.from_numpy(np.load(tokens).astype(np.int64))[None]
    np.save(out, model(input_ids=tokens, use_cache=False).logits[0].float().numpy())
    found, step, cache = [], tokens, None
    while len(found) < count:
        result = model(input_ids=step, past_key_values=cache, use_cache=True)
        cache, step = result.past_key_values, result.logits[:, -1:].argmax(-1)
        found.append(int(step))
    return {"tokens": found, "class": type(model).__name__}


@torch.inference_mode()
def guesses(path, assistant, texts, count, window, out, threads):
    torch.set_num_threads(threads)
    model, assistant = load(path), load(assistant, transformers.Gemma4AssistantForCausalLM, {"model.embed_tokens.weight"})
    assistant.generation_config.num_assistant_tokens = count
    logits, tokens = [], []
    for text in texts:
        ids = torch.tensor([text])
        read = model(input_ids=ids[:, :-1], use_cache=False, output_hidden_states=True, return_shared_kv_states=True)
        if window:
            keys, values = read.shared_kv_states["sliding_attention"]
            read.shared_kv_states["sliding_attention"] = keys[:, :, -window:], values[:, :, -window:]
        settings = transformers.GenerationConfig(max_length=len(text) + count + 1)
        generator = SinglePositionMultiTokenCandidateGenerator(assistant, model.get_input_embeddings(), settings)
        found, of_found = generator.get_candidates(ids, {}, read, is_first_iteration=False, n_last_matches=0)
        logits.append(of_found[0].float().numpy())
        tokens.append(found[0, len(text):].tolist())
    np.save(out, np.array(logits))
    return {"tokens": tokens}


def describe():
    return {"version": transformers.__version__, "torch": torch.__version__}


if __name__ == "__main__":
    warnings.simplefilter("ignore", FutureWarning)  # of names that all models take
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    serve(judge=judge, guesses=guesses, describe=describe)
