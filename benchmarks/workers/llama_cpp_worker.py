#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The llama.cpp side of peers_llama_cpp.py; runs in the peer's own environment (llama-cpp-python, gguf, numpy).

Its requests, as serving.py reads them:

    {"op": "make", "source": PATH, "out": PATH, "type": "Q4_0"}        quantize a model file or folder
    {"op": "load", "id": ID, "path": PATH, "threads": 2, "flash": true, "context": 1024,
     "sequences": 16}                                                  tokens of a sequence; sequences of a batch
    {"op": "measure", "id": ID, "prompts": [[ids] of each sequence],
     "steps": [[an id of each sequence] of each step]}                 seconds of prefill and of decode
    {"op": "describe"}                                                  version and CPU features of the build

Timings are of llama_decode through the C interface: no Python object per token, no sampling, no detokenizing.
"""

import ctypes
import json
import os
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from serving import serve, timed

HEAD_TYPE = llama_cpp.GGML_TYPE_Q8_0  # int8 embedding and output head in every variant
FILE_TYPES = {"Q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0, "Q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0}

# GGUF's name of each part of a Hugging Face llama checkpoint.
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
MODEL_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


@llama_cpp.llama_log_callback
def quiet(level, text, _):
    if level >= 4:  # errors only
        sys.stderr.write(text.decode(errors="replace"))


def permute_rope(w, heads):
    """Hugging Face row order (RoPE pairs half a head apart) to llama.cpp's (pairs adjacent)."""
    rows, columns = w.shape
    return w.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensors_of_folder(folder, config):
    from safetensors import safe_open

    heads = {"self_attn.q_proj": config["num_attention_heads"],
             "self_attn.k_proj": config.get("num_key_value_heads", config["num_attention_heads"])}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                w = np.asarray(file.get_tensor(name), np.float32)
                part = name.removesuffix(".weight")
                if part in MODEL_NAMES:
                    yield MODEL_NAMES[part] + ".weight", w
                    continue
                _, _, layer, kind = part.split(".", 3)
                if kind in heads:
                    w = permute_rope(w, heads[kind])
                yield f"blk.{layer}.{LAYER_NAMES[kind]}.weight", w


def read_source(source):
    """(hyperparameters under config.json's names, iterator of (GGUF name, fp32 array)) of a folder or a GGUF."""
    path = Path(source)
    if path.is_dir():
        config = json.loads((path / "config.json").read_text())
        return config, tensors_of_folder(path, config)
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items()}
    config = {
        "vocab_size": fields.get("llama.vocab_size") or len(fields["tokenizer.ggml.tokens"]),
        "max_position_embeddings": fields["llama.context_length"],
        "hidden_size": fields["llama.embedding_length"],
        "num_hidden_layers": fields["llama.block_count"],
        "intermediate_size": fields["llama.feed_forward_length"],
        "num_attention_heads": fields["llama.attention.head_count"],
        "num_key_value_heads": fields["llama.attention.head_count_kv"],
        "rms_norm_eps": fields["llama.attention.layer_norm_rms_epsilon"],
        "rope_theta": fields.get("llama.rope.freq_base", 10000.0),
    }
    tensors = ((t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(t.shape[::-1]))
               for t in reader.tensors)
    return config, tensors


def write_f32(source, out):
    """An fp32 GGUF without a vocabulary (token ids in, logits out), from a Hugging Face folder or any GGUF."""
    config, tensors = read_source(source)
    heads = config["num_attention_heads"]
    writer = gguf.GGUFWriter(out, "llama")
    writer.add_vocab_size(config["vocab_size"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(heads)
    writer.add_head_count_kv(config.get("num_key_value_heads", heads))
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config.get("rope_theta", 10000.0))
    writer.add_rope_dimension_count(config.get("head_dim") or config["hidden_size"] // heads)
    writer.add_file_type(0)
    writer.add_tokenizer_model("no_vocab")
    for name, w in tensors:
        writer.add_tensor(name, np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make(source, out, type):
    """Quantizes with llama.cpp's own quantizer: linears in `type`, embedding and head in Q8_0."""
    if Path(out).exists():
        return {"bytes": Path(out).stat().st_size}
    full = Path(f"{out}.f32.{os.getpid()}")
    part = Path(f"{out}.part.{os.getpid()}")
    try:
        write_f32(source, full)
        params = llama_cpp.llama_model_quantize_default_params()
        params.ftype = FILE_TYPES[type]
        params.output_tensor_type = HEAD_TYPE
        params.token_embedding_type = HEAD_TYPE
        params.pure = False
        status = llama_cpp.llama_model_quantize(str(full).encode(), str(part).encode(), ctypes.byref(params))
        if status != 0:
            raise RuntimeError(f"llama_model_quantize returned {status} for {type}")
        part.rename(out)
    finally:
        for leftover in (full, part):
            leftover.unlink(missing_ok=True)
    kinds = {}
    for tensor in gguf.GGUFReader(out).tensors:
        kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
    return {"bytes": Path(out).stat().st_size, "tensors": kinds}


class Model:
    ROWS = 512  # of a call

    def __init__(self, path, threads, flash, context, sequences):
        params = llama_cpp.llama_model_default_params()
        params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self.model:
            raise RuntimeError(f"llama.cpp could not load {path}")
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = context * sequences
        params.n_seq_max = sequences
        params.kv_unified = False  # each sequence attends to its own cache alone, which is quicker where they share no beginning
        params.n_batch = params.n_ubatch = self.ROWS
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = (llama_cpp.LLAMA_FLASH_ATTN_TYPE_ENABLED if flash
                                  else llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED)
        params.no_perf = True
        self.context = llama_cpp.llama_init_from_model(self.model, params)
        if not self.context:
            raise RuntimeError(f"llama.cpp could not create a context for {path}")
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))
        self.batch = llama_cpp.llama_batch_init(self.ROWS, 0, 1)

    def step(self, rows):
        """One call for rows (sequence, position, token, whether its logits are wanted)."""
        batch = self.batch
        batch.n_tokens = len(rows)
        for row, (sequence, position, token, wanted) in enumerate(rows):
            batch.token[row], batch.pos[row], batch.logits[row] = token, position, wanted
            batch.n_seq_id[row] = 1
            batch.seq_id[row][0] = sequence
        status = llama_cpp.llama_decode(self.context, batch)
        if status != 0:
            raise RuntimeError(f"llama_decode returned {status}")
        llama_cpp.llama_get_logits_ith(self.context, -1)  # waits for the result

    def measure(self, prompts, steps):
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), False)
        read = [(sequence, position, token, position + 1 == len(prompt))
                for sequence, prompt in enumerate(prompts) for position, token in enumerate(prompt)]
        following = [[(sequence, len(prompts[sequence]) + index, token, True) for sequence, token in enumerate(tokens)]
                     for index, tokens in enumerate(steps)]

        def prefill():
            for at in range(0, len(read), self.ROWS):
                self.step(read[at:at + self.ROWS])

        return timed(prefill, self.step, following, self.logits)

    def logits(self):
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits_ith(self.context, -1), (self.vocab,))


def load(**options):
    model = Model(**options)
    return model, {"vocab_size": model.vocab}


def describe():
    return {"version": llama_cpp.__version__, "features": llama_cpp.llama_print_system_info().decode().strip()}


if __name__ == "__main__":
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    serve(load, Model.measure, make=make, describe=describe)
