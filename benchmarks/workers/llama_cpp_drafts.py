#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Guesses of Gemma 4's assistant as llama.cpp makes them, for architectures.py; runs in the peer's own environment.

Its requests, as serving.py reads them:

    {"op": "full", "source": PATH, "out": PATH}               the f32 GGUF of a model, as llama_cpp_judge.py makes it
    {"op": "assistant", "source": FOLDER, "model": PATH,
     "out": PATH}                                             the f32 GGUF of its assistant, behind the model's GGUF `model`
    {"op": "guesses", "path": PATH, "assistant": PATH, "texts": [[IDS], ...],
     "count": 4, "out": PATH, "threads": 2}                   f32 [texts, count, vocabulary] (.npy) of guesses behind the last token of each
                                                              text, which the model has not read; and the tokens
"""

import ctypes
import json
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from llama_cpp_models import load_model, open_context, start, write_f32
from safetensors import safe_open
from serving import serve

NAMES = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "pre_projection.weight": "nextn.pre_projection.weight", "post_projection.weight": "nextn.post_projection.weight"}
LAYER_NAMES = {"input_layernorm.weight": "attn_norm.weight", "self_attn.q_proj.weight": "attn_q.weight", "self_attn.q_norm.weight": "attn_q_norm.weight",
               "self_attn.o_proj.weight": "attn_output.weight", "post_attention_layernorm.weight": "post_attention_norm.weight",
               "pre_feedforward_layernorm.weight": "ffn_norm.weight", "mlp.gate_proj.weight": "ffn_gate.weight", "mlp.up_proj.weight": "ffn_up.weight",
               "mlp.down_proj.weight": "ffn_down.weight", "post_feedforward_layernorm.weight": "post_ffw_norm.weight", "layer_scalar": "layer_output_scale.weight"}
# What an assistant has of its model, whose keys it reads.
OF_MODEL = ("context_length", "vocab_size", "rope.freq_base", "rope.freq_base_swa", "rope.dimension_count", "rope.dimension_count_swa", "attention.key_length",
            "attention.value_length", "attention.key_length_swa", "attention.value_length_swa", "attention.layer_norm_rms_epsilon")


def extension(name, result, *arguments):
    """A function of llama-ext.h, which the library has under its C++ name and the package does not bind."""
    function = getattr(llama_cpp.llama_cpp._lib, f"_Z{len(name)}{name}P13llama_context" + {(): "", (bool, bool): "bb", (int,): "i"}[arguments])
    function.restype = result
    function.argtypes = [ctypes.c_void_p, *({bool: ctypes.c_bool, int: ctypes.c_int32}[kind] for kind in arguments)]
    return function


SET_STATES = extension("llama_set_embeddings_nextn", None, bool, bool)
STATE_OF = extension("llama_get_embeddings_nextn_ith", ctypes.POINTER(ctypes.c_float), int)


def full(source, out):
    write_f32(source, out)
    return {}


def write_assistant(source, model, out):
    config, reader = json.loads((Path(source) / "config.json").read_text()), gguf.GGUFReader(model)
    text, writer = config["text_config"], gguf.GGUFWriter(out, "gemma4-assistant")
    count, windows = text["num_hidden_layers"], [kind == "sliding_attention" for kind in text["layer_types"]]
    for key in OF_MODEL:
        field = reader.fields[f"gemma4.{key}"]
        writer.add_key_value(f"gemma4-assistant.{key}", field.contents(), field.types[0])
    # A layer reads the keys of the model's last layers: the last one but one has a window, and the last one none.
    of_model = reader.fields["gemma4.attention.head_count_kv"].contents()
    heads = [of_model[-2 if windowed else -1] if isinstance(of_model, list) else of_model for windowed in windows]
    writer.add_block_count(count)
    writer.add_nextn_predict_layers(count)
    writer.add_shared_kv_layers(count)
    writer.add_embedding_length(text["hidden_size"])
    writer.add_embedding_length_out(config["backbone_hidden_size"])
    writer.add_feed_forward_length(text["intermediate_size"])
    writer.add_head_count(text["num_attention_heads"])
    writer.add_head_count_kv(heads)
    writer.add_sliding_window(text["sliding_window"])
    writer.add_sliding_window_pattern(windows)
    writer.add_file_type(0)
    writer.add_tokenizer_model("no_vocab")
    writer.add_tensor("rope_freqs.weight", np.array(next(tensor.data for tensor in reader.tensors if tensor.name == "rope_freqs.weight")))
    with safe_open(Path(source) / "model.safetensors", framework="numpy") as file:
        for name in file.keys():
            layer, _, part = name.removeprefix("model.layers.").partition(".")
            writer.add_tensor(NAMES[name] if name in NAMES else f"blk.{layer}.{LAYER_NAMES[part]}", file.get_tensor(name))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return {}


def checked(status):
    if status != 0:
        raise RuntimeError(f"llama.cpp returned {status}")


def read(context, tokens):
    """Reads tokens from an empty cache on; the state behind the last one."""
    llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), False)
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for row, token in enumerate(tokens):
        batch.token[row], batch.pos[row], batch.logits[row], batch.n_seq_id[row], batch.seq_id[row][0] = token, row, True, 1, 0
    checked(llama_cpp.llama_decode(context, batch))
    llama_cpp.llama_batch_free(batch)
    return STATE_OF(context, len(tokens) - 1)


def guess(context, batch, token, position, state, width):
    """The logits behind a token, and the state that takes the place of the model's for it."""
    llama_cpp.llama_batch_ext_clear(batch)
    row = llama_cpp.llama_batch_ext_add_token(batch, 0, token)
    llama_cpp.llama_batch_ext_set_pos(batch, row, ctypes.byref(llama_cpp.llama_pos(position)))
    if not llama_cpp.llama_batch_ext_set_embd_token(batch, row, llama_cpp.llama_embd(state, 1, width)):
        raise RuntimeError("llama.cpp does not take the state")
    llama_cpp.llama_batch_ext_set_output_logits(batch, row, True)
    checked(llama_cpp.llama_process(context, llama_cpp.LLAMA_PROCESS_TYPE_DECODE, batch))
    return llama_cpp.llama_get_logits_ith(context, row), STATE_OF(context, row)


def guesses(path, assistant, texts, count, out, threads):
    rows = max(map(len, texts))
    common = {"n_ctx": rows + count, "n_batch": rows, "n_ubatch": rows, "n_threads": threads, "n_threads_batch": threads,
              "type_k": llama_cpp.GGML_TYPE_F32, "type_v": llama_cpp.GGML_TYPE_F32, "flash_attn_type": llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED}
    model, vocab = load_model(path)
    drafter, _ = load_model(assistant)
    target = open_context(model, path, **common)
    context = open_context(drafter, assistant, ctx_type=llama_cpp.LLAMA_CONTEXT_TYPE_MTP, ctx_other=target, **common)
    SET_STATES(target, True, False)
    SET_STATES(context, True, True)
    width, batch = llama_cpp.llama_model_n_embd_out(model), llama_cpp.llama_batch_ext_init(context)
    logits, tokens = np.empty((len(texts), count, vocab), np.float32), []
    for text, found in zip(texts, logits):
        state, token, own = read(target, text[:-1]), text[-1], []
        for step in range(count):
            values, state = guess(context, batch, token, len(text) - 1, state, width)
            found[step] = np.ctypeslib.as_array(values, (vocab,))
            token = int(found[step].argmax())
            own.append(token)
        tokens.append(own)
    llama_cpp.llama_batch_ext_free(batch)
    llama_cpp.llama_free(context)
    llama_cpp.llama_free(target)
    np.save(out, logits)
    return {"tokens": tokens}


if __name__ == "__main__":
    start()
    serve(full=full, assistant=write_assistant, guesses=guesses)
