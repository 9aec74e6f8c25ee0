# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models as llama.cpp has them: f32 GGUF files out of Hugging Face folders, files that its quantizer makes of them, contexts."""

import ctypes
import json
import os
import sys
from pathlib import Path

import gguf
import llama_cpp
import numpy as np
from safetensors import safe_open

# GGUF's name of each part of a Hugging Face llama checkpoint.
LAYER_NAMES = {
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
MODEL_NAMES = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def name_of(part):
    """GGUF's name of the weight of a part: a site of the layers, a norm, the embedding or the head."""
    if part in MODEL_NAMES:
        return MODEL_NAMES[part] + ".weight"
    _, _, layer, kind = part.split(".", 3)
    return f"blk.{layer}.{LAYER_NAMES[kind]}.weight"


@llama_cpp.llama_log_callback
def quiet(level, text, _):
    if level >= 4:  # errors only
        sys.stderr.write(text.decode(errors="replace"))


def start():
    """Before anything else of the library."""
    llama_cpp.llama_log_set(quiet, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def permute_rope(w, heads):
    """Hugging Face row order (RoPE pairs half a head apart) to llama.cpp's (pairs adjacent)."""
    rows, columns = w.shape
    return w.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)


def tensors_of_folder(folder, config):
    heads = {"self_attn.q_proj": config["num_attention_heads"],
             "self_attn.k_proj": config.get("num_key_value_heads", config["num_attention_heads"])}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="numpy") as file:
            for name in file.keys():
                w = np.asarray(file.get_tensor(name), np.float32)
                part = name.removesuffix(".weight")
                kind = part.split(".", 3)[-1]
                yield name_of(part), permute_rope(w, heads[kind]) if kind in heads else w


def describe_folder(writer, folder, config):
    heads = config["num_attention_heads"]
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
    return tensors_of_folder(folder, config)


def describe_gguf(writer, reader):
    """All that the other file says of its architecture."""
    architecture = reader.fields["general.architecture"].contents()
    for name, field in reader.fields.items():
        if name.startswith(f"{architecture}.") and name != f"{architecture}.vocab_size":
            kind, *parts = field.types
            writer.add_key_value(name, field.contents(), kind, parts[0] if parts else None)
    writer.add_vocab_size(next(int(t.shape[1]) for t in reader.tensors if t.name == "token_embd.weight"))
    return ((t.name, gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32).reshape(t.shape[::-1])) for t in reader.tensors)


def write_f32(source, out):
    """An fp32 GGUF without a vocabulary (token ids in, logits out), from a Hugging Face folder of a llama or any GGUF."""
    path = Path(source)
    if path.is_dir():
        writer = gguf.GGUFWriter(out, "llama")
        tensors = describe_folder(writer, path, json.loads((path / "config.json").read_text()))
    else:
        reader = gguf.GGUFReader(path)
        writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
        tensors = describe_gguf(writer, reader)
    writer.add_file_type(0)
    writer.add_tokenizer_model("no_vocab")
    for name, w in tensors:
        writer.add_tensor(name, np.ascontiguousarray(w))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def importance_matrix(statistics):
    """llama_model_imatrix_data of every linear of a layer, closed by an entry without a name, and what must live as long: mean x² of each
    column, from a statistics file of `easyquant calibrate --statistic moments` (means, variances)."""
    entries, alive = [], []
    with safe_open(statistics, framework="numpy") as file:
        for name in file.keys():
            site, _, statistic = name.rpartition("/")
            if statistic != "moments" or ".layers." not in site:
                continue
            means, variances = np.asarray(file.get_tensor(name), np.float64)
            values = np.ascontiguousarray(variances + means**2, np.float32)
            alive.append(values)
            data = values.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            entries.append(llama_cpp.llama_model_imatrix_data(name_of(site).encode(), data, len(values)))
    entries.append(llama_cpp.llama_model_imatrix_data(None, None, 0))
    return (llama_cpp.llama_model_imatrix_data * len(entries))(*entries), alive


def quantize(full, out, file_type, head_type=None, statistics=None):
    """Quantizes the f32 GGUF `full` with llama.cpp's own quantizer. `head_type` is the type of embedding and head; without it they have
    that of the file type. `statistics` are for an importance matrix. Returns the types of its tensors, and the bytes of file and tensors."""
    part = Path(f"{out}.part.{os.getpid()}")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{file_type}")
    if head_type is not None:
        params.output_tensor_type = params.token_embedding_type = head_type
    if statistics is not None:
        params.imatrix, alive = importance_matrix(statistics)
    try:
        status = llama_cpp.llama_model_quantize(str(full).encode(), str(part).encode(), ctypes.byref(params))
        if status != 0:
            raise RuntimeError(f"llama_model_quantize returned {status} for {file_type}")
        part.rename(out)
    finally:
        part.unlink(missing_ok=True)
    return describe_file(out)


def describe_file(path):
    kinds, size = {}, 0
    for tensor in gguf.GGUFReader(path).tensors:
        kinds[tensor.tensor_type.name] = kinds.get(tensor.tensor_type.name, 0) + 1
        size += int(tensor.n_bytes)
    return {"bytes": Path(path).stat().st_size, "tensor_bytes": size, "tensors": kinds}


def load_model(path):
    params = llama_cpp.llama_model_default_params()
    params.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
    if not model:
        raise RuntimeError(f"llama.cpp could not load {path}")
    return model, llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))


def open_context(model, path, **fields):
    """A context of the model, with these fields of llama_context_params."""
    params = llama_cpp.llama_context_default_params()
    params.no_perf = True
    for name, value in fields.items():
        setattr(params, name, value)
    context = llama_cpp.llama_init_from_model(model, params)
    if not context:
        raise RuntimeError(f"llama.cpp could not create a context for {path}")
    return context
