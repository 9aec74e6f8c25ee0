# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the tests share: paths, small models, and the tools as a user starts them."""

import ctypes
import json
import os
import subprocess
import time
from pathlib import Path

import make_checkpoint
import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

REPO = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("EASYQUANT_BUILD", REPO / "build"))
DATA = Path(os.environ.get("EASYQUANT_TEST_DATA", REPO.parent / "shared" / "data"))
os.environ.setdefault("EASYQUANT_TOOLS", str(BUILD / "bin"))  # where `python -m easyquant` looks for the tools


def test_data(name):
    """Path of a file of the shared test data; skips the test where it is missing."""
    path = DATA / name
    if not path.is_file():
        pytest.skip(f"needs the test data {name}: not in {DATA} (EASYQUANT_TEST_DATA names another folder)")
    return path


test_data.__test__ = False


# ---------------------------------------------------------------------------------------------------------------- tools


def tool(name):
    path = BUILD / "bin" / name
    assert os.access(path, os.X_OK), f"{path} is missing; build it first (EASYQUANT_BUILD names another build folder)"
    return path


def supported_isas():
    """The instruction sets of this CPU for which EasyQuant makes code, the best last."""
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        flags = next(line for line in file if line.startswith("flags")).split()
    return ["avx2"] + ["avx512vnni"] * ("avx512_vnni" in flags and "avx512bw" in flags)


# Code for both instruction sets is what most of the time of a compilation goes into, and one of them is run.
ISA = f"--isa={supported_isas()[-1]}"
ALL_ISAS = "--isa=avx2,avx512vnni"


def with_slow(cases, *slow):
    """The cases of a test, of which those in `slow` run with --slow alone: they vary what the others test, and each compiles a model."""
    assert set(slow) <= set(cases), set(slow) - set(cases)
    return [pytest.param(*(case if isinstance(case, tuple) else [case]), marks=pytest.mark.slow) if case in slow else case for case in cases]


def run_tool(name, *arguments, timeout=300, **options):
    """The finished process, its output as text."""
    command = [str(tool(name)), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=timeout, **options)


def written_back(model, tmp_path, container="hf"):
    """The folder that a model, imported as IR, is written to."""
    imported = run_tool("easyquant-translate", f"--import-{container}", model, "-o", tmp_path / "model.mlir")
    assert imported.returncode == 0, imported.stderr
    exported = run_tool("easyquant-translate", "--export-hf", tmp_path / "folder", tmp_path / "model.mlir")
    assert exported.returncode == 0, exported.stderr
    return tmp_path / "folder"


def compile_model(model, out, *options, timeout=300):
    """Compiles with easyquant-compile; returns `out`."""
    result = run_tool("easyquant-compile", model, "-o", out, *options, timeout=timeout)
    assert result.returncode == 0, f"easyquant-compile {model} {options}: status {result.returncode}\n{result.stderr}"
    return out


def ranks_below(mpirun, count):
    """The processes of its ranks, by number, once they are all there."""
    found, end = {}, time.monotonic() + 30
    while time.monotonic() < end and len(found) < count:
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
                variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            except OSError:
                continue
            if int(stat[1]) == mpirun.pid:
                found |= {int(v.partition(b"=")[2]): int(pid) for v in variables if v.startswith(b"OMPI_COMM_WORLD_RANK=")}
    return found


def assert_refused(result, *expected):
    """The process ended as it must on bad input: status 1, a message on stderr with all of `expected`, and no crash."""
    text = result.stderr
    assert result.returncode == 1, f"status {result.returncode}, expected 1\nstdout: {result.stdout}\nstderr: {text}"
    assert "error: " in text, f"no error message in: {text!r}"
    for trace in ("Traceback", "Stack dump", "LLVM ERROR", "terminate called", "Sanitizer"):
        assert trace not in text, text
    for part in expected:
        assert part in text, f"{part!r} is not in the message: {text}"


def folder_contents(folder):
    """{relative name: bytes} of all files below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


# ------------------------------------------------------------------------------------------------------------ artifacts


class _Hash(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def sites_of(artifact):
    """The sites of an artifact's manifest by their names."""
    return {site["name"]: site for site in json.loads((artifact / "manifest.json").read_text())["sites"]}


def xxh3_128(content):
    """The checksum of bytes as files have it, in hexadecimal digits."""
    xxhash = ctypes.CDLL("libxxhash.so.0").XXH3_128bits
    xxhash.restype, xxhash.argtypes = _Hash, [ctypes.c_char_p, ctypes.c_size_t]
    hashed = xxhash(content, len(content))
    return f"{hashed.high:016x}{hashed.low:016x}"


def sign_manifest(folder, manifest):
    """Writes manifest.json, and its checksum beside it, so that only its fields can be what is wrong with it."""
    text = json.dumps(manifest).encode()
    (folder / "manifest.json").write_bytes(text)
    (folder / "manifest.xxh128").write_text(f"{xxh3_128(text)}  manifest.json\n")


class Runner:
    """An artifact open for use through the Python extension."""

    def __init__(self, artifact, context=0, threads=0, isa=None, **place):
        from easyquant import _runtime

        self.model = _runtime.Model(str(artifact), isa=isa, **place)
        self.session = _runtime.Session(self.model, context=context, threads=threads)

    def score(self, tokens):
        """Logits of every token of a sequence that starts at position 0: (tokens, vocab_size)."""
        self.session.reset()
        return np.array(self.session.score(np.asarray(tokens, np.int32)))

    def losses(self, window, rows=256):
        """As oracles.scoring.window_losses."""
        from oracles.scoring import losses_of_logits

        self.session.reset()
        parts = []
        for start in range(0, len(window) - 1, rows):
            stop = min(start + rows, len(window) - 1)
            logits = self.session.score(np.asarray(window[start:stop], np.int32))
            parts.append(losses_of_logits(logits, window[start + 1:stop + 1]))
        return np.concatenate(parts)

    def greedy(self, tokens, count):
        """The sequence with `count` tokens appended, each the largest logit."""
        tokens = list(tokens)
        self.session.reset()
        self.session.prefill(np.asarray(tokens, np.int32))
        for _ in range(count):
            tokens.append(int(np.argmax(self.session.logits)))
            self.session.decode(tokens[-1])
        return tokens


# --------------------------------------------------------------------------------------------------------------- models


def write_model(folder, config, tensors, shards=1):
    """A Hugging Face folder of one or more safetensors files; returns it."""
    folder = Path(folder)
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    names = sorted(tensors)
    if shards == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder
    index = {"metadata": {"total_size": sum(w.nbytes for w in tensors.values())}, "weight_map": {}}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        own = names[shard::shards]
        save_file({name: tensors[name] for name in own}, folder / file, metadata={"format": "pt"})
        index["weight_map"] |= dict.fromkeys(own, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")
    return folder


def random_llama(seed=0, *, arch="llama", hidden=40, ffn=52, layers=2, heads=5, kv_heads=1, head_dim=None, vocab=97, context=96,
                 tied=True, experts=8, expert_ffn=32, **fields):
    """(config, tensors) of a llama, or of a descendant, whose sizes fit nothing: not the vector, not the group, not the panel.

    `experts` of `expert_ffn` columns are what models of experts have in place of an MLP. `fields` are put into config.json; attention_bias and mlp_bias make biases where the architecture heeds them.
    """
    random = np.random.default_rng(seed)
    head_dim = head_dim or hidden // heads

    def matrix(rows, columns, gain=1.0):
        return (random.normal(0, gain / np.sqrt(columns), (rows, columns))).astype(np.float32)

    is_gemma = arch.startswith("gemma")

    def norm(width=hidden):
        return random.uniform(0.5, 1.5, width).astype(np.float32) - np.float32(is_gemma)

    tensors = {"model.embed_tokens.weight": random.normal(0, 1, (vocab, hidden)).astype(np.float32), "model.norm.weight": norm()}
    if not tied:
        tensors["lm_head.weight"] = matrix(vocab, hidden, 2.0)
    for index in range(layers):
        at = f"model.layers.{index}."
        tensors |= {
            at + "input_layernorm.weight": norm(), at + "post_attention_layernorm.weight": norm(),
            at + "self_attn.q_proj.weight": matrix(heads * head_dim, hidden, 2.0),
            at + "self_attn.k_proj.weight": matrix(kv_heads * head_dim, hidden, 2.0),
            at + "self_attn.v_proj.weight": matrix(kv_heads * head_dim, hidden),
            at + "self_attn.o_proj.weight": matrix(hidden, heads * head_dim),
        }
        if arch == "gpt_oss":
            tensors |= {at + "self_attn.sinks": random.normal(0, 1, heads).astype(np.float32),
                        at + "mlp.router.weight": matrix(experts, hidden, 3.0), at + "mlp.router.bias": random.normal(0, 1, experts).astype(np.float32)}
            for name, columns, rows, gain in (("gate_up_proj", hidden, 2 * expert_ffn, 3.0), ("down_proj", expert_ffn, hidden, 0.5)):
                stack = random.normal(0, gain / np.sqrt(columns), (experts, columns, rows))
                tensors |= {f"{at}mlp.experts.{name}": stack.astype(np.float32),
                            f"{at}mlp.experts.{name}_bias": random.normal(0, 0.5, (experts, rows)).astype(np.float32)}
        elif arch in make_checkpoint.EXPERTS:
            router, *modules = (f"{at}{module}.weight" for module in make_checkpoint.EXPERTS[arch])
            tensors[router] = matrix(experts, hidden, 3.0)
            for expert in range(experts):
                parts = (matrix(expert_ffn, hidden, 2.0), matrix(expert_ffn, hidden), matrix(hidden, expert_ffn))
                tensors |= {module.format(expert): part for module, part in zip(modules, parts)}
            if arch == "qwen2_moe":
                tensors |= {f"{at}mlp.shared_expert_gate.weight": matrix(1, hidden, 2.0), f"{at}mlp.shared_expert.gate_proj.weight": matrix(ffn, hidden, 2.0),
                            f"{at}mlp.shared_expert.up_proj.weight": matrix(ffn, hidden), f"{at}mlp.shared_expert.down_proj.weight": matrix(hidden, ffn)}
        else:
            tensors |= {at + "mlp.gate_proj.weight": matrix(ffn, hidden, 2.0), at + "mlp.up_proj.weight": matrix(ffn, hidden),
                        at + "mlp.down_proj.weight": matrix(hidden, ffn)}
        biased = ["q_proj", "k_proj", "v_proj"] if arch in ("qwen2", "qwen2_moe") else []
        if arch == "gpt_oss" or arch in ("llama", "qwen3", "qwen3_moe", "olmo2", "olmo3", "smollm3", "gemma2", "gemma3_text", "granite") and fields.get("attention_bias"):
            biased = ["q_proj", "k_proj", "v_proj", "o_proj"]
        if arch in ("llama", "smollm3", "granite") and fields.get("mlp_bias"):
            biased += ["gate_proj", "up_proj", "down_proj"]
        for name in biased:
            site = at + ("self_attn." if name[0] in "qkvo" else "mlp.") + name
            tensors[site + ".bias"] = random.normal(0, 0.5, len(tensors[site + ".weight"])).astype(np.float32)
        if arch in ("qwen3", "qwen3_moe", "gemma3_text"):
            tensors |= {at + f"self_attn.{name}.weight": norm(head_dim) for name in ("q_norm", "k_norm")}
        if arch in ("olmo2", "olmo3"):
            tensors |= {at + "self_attn.q_norm.weight": norm(heads * head_dim), at + "self_attn.k_norm.weight": norm(kv_heads * head_dim),
                        at + "post_feedforward_layernorm.weight": norm()}
            del tensors[at + "input_layernorm.weight"]
        if is_gemma:
            tensors |= {at + f"{name}_feedforward_layernorm.weight": norm() for name in ("pre", "post")}
        if arch == "phi3":
            for joined, parts in (("self_attn.qkv_proj", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")),
                                  ("mlp.gate_up_proj", ("mlp.gate_proj", "mlp.up_proj"))):
                tensors[f"{at}{joined}.weight"] = np.concatenate([tensors.pop(f"{at}{part}.weight") for part in parts])
    config = {
        "architectures": [f"{arch.capitalize()}ForCausalLM"], "model_type": arch, "hidden_act": "silu", "hidden_size": hidden,
        "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads,
        "head_dim": head_dim, "vocab_size": vocab, "max_position_embeddings": context, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "rope_scaling": None, "attention_bias": False, "mlp_bias": False,
        "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32",
    }
    if is_gemma:
        config |= {"hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": head_dim, "sliding_window": 20}
    if arch == "gpt_oss":
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2, "intermediate_size": expert_ffn, "attention_bias": True, "sliding_window": 20,
                   "swiglu_limit": 7.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32, "beta_fast": 32.0,
                                                         "beta_slow": 1.0, "truncate": False}}
    if arch == "qwen2_moe":
        config |= {"shared_expert_intermediate_size": ffn}
    if arch in ("qwen3_moe", "qwen2_moe"):
        config |= {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": expert_ffn, "norm_topk_prob": arch == "qwen3_moe"}
    if arch == "mixtral":
        config |= {"num_local_experts": experts, "num_experts_per_tok": 2, "intermediate_size": expert_ffn}
    if arch == "gemma2":
        config |= {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0}
    return config | fields, tensors


def random_gemma4(seed=0, *, hidden=40, ffn=52, layers=4, heads=4, kv_heads=2, head_dim=8, full_head_dim=16, vocab=97, context=96, tied=True, **fields):
    """(config, tensors) of a Gemma 4 whose sizes fit nothing; `fields` are put into config.json."""
    random = np.random.default_rng(seed)
    config = {"architectures": ["Gemma4ForCausalLM"], "model_type": "gemma4_text", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": layers, "num_attention_heads": heads, "num_key_value_heads": kv_heads, "head_dim": head_dim,
              "global_head_dim": full_head_dim, "vocab_size": vocab, "max_position_embeddings": context, "rms_norm_eps": 1e-6, "sliding_window": 9,
              "hidden_activation": "gelu_pytorch_tanh", "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": vocab,
              "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"} | fields
    tensors = {}
    for name, shape in make_checkpoint.gemma4_shapes(config).items():
        if name.endswith("layer_scalar"):  # far from 1, on both sides
            tensors[name] = random.uniform(0.3, 2.5, shape)
        elif name.endswith("bias"):
            tensors[name] = random.normal(0, 0.5, shape)
        elif len(shape) == 1:
            tensors[name] = random.uniform(0.5, 1.5, shape)
        elif "embed_tokens" in name:
            tensors[name] = random.normal(0, 1, shape)
        else:
            gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "gate_proj", "gate_up_proj", "lm_head")) else 1.0
            if "router" in name:  # whose input is divided by this root
                gain = 2.0 * np.sqrt(shape[-1])
            tensors[name] = random.normal(0, gain / np.sqrt(shape[-1]), shape)
    return config, {name: values.astype(np.float32) for name, values in tensors.items()}


def random_gemma4_assistant(seed, model, *, hidden=24, ffn=36, heads=4, layer_types=("sliding_attention", "full_attention"), clusters=0, chosen=2, tied=True,
                            **fields):
    """(config, tensors) of an assistant for a model of random_gemma4 with this configuration; `fields` are put into its text_config."""
    random = np.random.default_rng(seed)
    text = {"model_type": "gemma4_text", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": len(layer_types),
            "layer_types": list(layer_types), "num_attention_heads": heads, "num_kv_shared_layers": len(layer_types), "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0}
    for name in ("head_dim", "global_head_dim", "num_key_value_heads", "num_global_key_value_heads", "attention_k_eq_v", "vocab_size",
                 "max_position_embeddings", "rms_norm_eps", "sliding_window", "hidden_activation", "rope_parameters"):
        if name in model:
            text[name] = model[name]
    text |= fields
    config = {"architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant", "backbone_hidden_size": model["hidden_size"],
              "tie_word_embeddings": tied, "use_ordered_embeddings": clusters > 0, "num_centroids": clusters or 2048,
              "centroid_intermediate_top_k": chosen, "text_config": text, "dtype": "float32"}
    vocab, backbone = text["vocab_size"], model["hidden_size"]
    shapes = {"pre_projection.weight": (hidden, 2 * backbone), "post_projection.weight": (backbone, hidden), "model.norm.weight": (hidden,),
              "model.embed_tokens.weight" if tied else "lm_head.weight": (vocab, hidden)}
    for layer, kind in enumerate(layer_types):
        at, head = f"model.layers.{layer}.", text["head_dim" if kind == "sliding_attention" else "global_head_dim"]
        shapes |= {at + "self_attn.q_proj.weight": (heads * head, hidden), at + "self_attn.o_proj.weight": (hidden, heads * head),
                   at + "self_attn.q_norm.weight": (head,), at + "mlp.gate_proj.weight": (ffn, hidden), at + "mlp.up_proj.weight": (ffn, hidden),
                   at + "mlp.down_proj.weight": (hidden, ffn), at + "layer_scalar": (1,)}
        shapes |= {f"{at}{part}_layernorm.weight": (hidden,) for part in ("input", "post_attention", "pre_feedforward", "post_feedforward")}
        if text.get("attention_bias"):
            shapes |= {at + "self_attn.q_proj.bias": (heads * head,), at + "self_attn.o_proj.bias": (hidden,)}
    if clusters:
        shapes["masked_embedding.centroids.weight"] = (clusters, hidden)
    tensors = {name: (random.uniform(0.5, 1.5, shape) if len(shape) == 1 else random.normal(0, 1.5 / np.sqrt(shape[-1]), shape)).astype(np.float32)
               for name, shape in shapes.items()}
    if clusters:
        tensors["masked_embedding.token_ordering"] = random.permutation(vocab)
    return config, tensors


def random_lfm2(seed=0, *, hidden=40, ffn=52, kinds=("conv", "full_attention", "conv"), heads=5, kv_heads=1, width=3, vocab=97, context=96,
                tied=True, bias=False, experts=0, expert_ffn=32, dense=1, **fields):
    """(config, tensors) of an LFM2 whose sizes fit nothing, with experts behind the first `dense` layers if there are `experts`; `fields` are put
    into config.json."""
    random = np.random.default_rng(seed)
    config = {"architectures": ["Lfm2ForCausalLM"], "model_type": "lfm2", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": len(kinds), "layer_types": list(kinds), "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "head_dim": hidden // heads, "vocab_size": vocab, "max_position_embeddings": context, "norm_eps": 1e-5, "rope_theta": 10000.0,
              "conv_L_cache": width, "conv_bias": bias, "block_auto_adjust_ff_dim": False, "tie_word_embeddings": tied, "bos_token_id": 1,
              "eos_token_id": 2, "torch_dtype": "float32"}
    if experts:
        config |= {"architectures": ["Lfm2MoeForCausalLM"], "model_type": "lfm2_moe", "num_experts": experts, "num_experts_per_tok": 2,
                   "moe_intermediate_size": expert_ffn, "num_dense_layers": dense, "use_expert_bias": True, "norm_topk_prob": True}  # fmt: skip
    config |= fields
    tensors = {}
    for name, shape in make_checkpoint.lfm2_shapes(config).items():
        if len(shape) == 1:
            tensors[name] = random.normal(0, 0.5, shape) if name.endswith("bias") else random.uniform(0.5, 1.5, shape)
        elif "embed_tokens" in name:
            tensors[name] = random.normal(0, 1, shape)
        else:
            gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "w1", "in_proj", "feed_forward.gate", "lm_head")) else 1.0
            tensors[name] = random.normal(0, gain / np.sqrt(shape[-1]), shape)
    return config, {name: values.astype(np.float32) for name, values in tensors.items()}


def random_qwen35(seed=0, *, hidden=40, ffn=52, kinds=("linear_attention", "linear_attention", "full_attention", "linear_attention"), heads=3, kv_heads=1,
                  head_dim=24, rotated=0.25, key_heads=2, key_dim=12, value_heads=6, value_dim=20, width=4, vocab=97, context=160, tied=True,
                  experts=0, expert_ffn=28, **fields):
    """(config, tensors) of a Qwen3.5 whose sizes fit nothing, with experts of `expert_ffn` columns and one of `ffn` for all rows if there are `experts`;
    `fields` are put into config.json."""
    random = np.random.default_rng(seed)
    config = {"architectures": ["Qwen3_5ForCausalLM"], "model_type": "qwen3_5_text", "hidden_size": hidden, "intermediate_size": ffn,
              "num_hidden_layers": len(kinds), "layer_types": list(kinds), "num_attention_heads": heads, "num_key_value_heads": kv_heads,
              "head_dim": head_dim, "vocab_size": vocab, "max_position_embeddings": context, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
              "partial_rotary_factor": rotated, "linear_num_key_heads": key_heads, "linear_key_head_dim": key_dim,
              "linear_num_value_heads": value_heads, "linear_value_head_dim": value_dim, "linear_conv_kernel_dim": width, "hidden_act": "silu",
              "tie_word_embeddings": tied, "bos_token_id": 1, "eos_token_id": 2, "torch_dtype": "float32"} | fields
    if experts:
        config |= {"architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "num_experts": experts, "num_experts_per_tok": 2,
                   "moe_intermediate_size": expert_ffn, "shared_expert_intermediate_size": config.pop("intermediate_size")}
    tensors = {}
    for name, shape in make_checkpoint.qwen35_shapes(config).items():
        if name.endswith("A_log"):  # from slow decays to fast ones
            tensors[name] = random.uniform(-4, 1.5, shape)
        elif len(shape) == 1:
            middle = 1.0 if "linear_attn.norm" in name else 0.0
            tensors[name] = middle + (random.uniform(-0.5, 0.5, shape) if "norm" in name else random.normal(0, 0.5, shape))
        elif "embed_tokens" in name:
            tensors[name] = random.normal(0, 0.5, shape)
        else:
            gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "in_proj", "conv1d", "gate_proj", "mlp.gate.", "lm_head")) else 1.0
            tensors[name] = random.normal(0, gain / np.sqrt(shape[-1]), shape)
    return config, {name: values.astype(np.float32) for name, values in tensors.items()}


# What becomes of two messages: user: "Hi" is u(Hi)a(
CHAT_TEMPLATE = "{% for m in messages %}{{ m.role[0] }}({{ m.content }}){% endfor %}{% if add_generation_prompt %}a({% endif %}"


def with_outliers(model, factor):
    """The model with columns 3 and 40 of what norms write `factor` times as large, as in real models, and weights that undo it."""
    config, tensors = model
    for name, weight in tensors.items():
        if name.endswith("norm.weight"):
            weight[[3, 40]] *= factor
        if any(part in name for part in ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "lm_head")):
            weight[:, [3, 40]] /= factor
    return config, tensors


def write_letters(folder, vocabulary=97):
    """Gives a model a tokenizer of one token a byte, 33 to 126, behind <unk>, <s> and </s>; and a chat template."""
    tokens = {"<unk>": 0, "<s>": 1, "</s>": 2} | {chr(33 + index): 3 + index for index in range(vocabulary - 3)}
    tokenizer = Tokenizer(models.BPE(vocab=tokens, merges=[], unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": CHAT_TEMPLATE}))
    return folder


def write_byte_level(folder, vocabulary=320, pre_tokenizer=None, **config):
    """Gives a model a trained byte-level BPE that knows every byte, as published ones do, of so many tokens; <s> is BOS and EOS."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, show_progress=False, initial_alphabet=alphabet, special_tokens=["<s>"])
    tokenizer.train_from_iterator(["Some words to learn merges from, it's 2024 and we're 12345 strong. " * 20], trainer)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<s>", **config}))
    return folder


def random_gpt2(seed=0, *, width=48, layers=2, heads=4, vocab=101, context=64, prefix=""):
    """(config, tensors) of a GPT-2, with Conv1D weights (in, out) and every bias and gain unlike its default."""
    random = np.random.default_rng(seed)

    def normal(*shape, spread=1.0):
        return random.normal(0, spread, shape).astype(np.float32)

    def conv(at, rows, columns):
        return {at + ".weight": normal(rows, columns, spread=rows ** -0.5), at + ".bias": normal(columns, spread=0.2)}

    def norm(at):
        return {at + ".weight": random.uniform(0.5, 1.5, width).astype(np.float32), at + ".bias": normal(width, spread=0.2)}

    tensors = {"wte.weight": normal(vocab, width), "wpe.weight": normal(context, width, spread=0.3)} | norm("ln_f")
    for index in range(layers):
        at = f"h.{index}."
        tensors |= norm(at + "ln_1") | norm(at + "ln_2")
        tensors |= conv(at + "attn.c_attn", width, 3 * width) | conv(at + "attn.c_proj", width, width)
        tensors |= conv(at + "mlp.c_fc", width, 4 * width) | conv(at + "mlp.c_proj", 4 * width, width)
    config = {
        "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": width,
        "n_head": heads, "n_layer": layers, "n_positions": context, "n_ctx": context, "n_inner": None, "vocab_size": vocab,
        "layer_norm_epsilon": 1e-5, "bos_token_id": 100, "eos_token_id": 100, "tie_word_embeddings": True,
    }
    return config, {prefix + name: value for name, value in tensors.items()}


def write_gguf(path, config, tensors):
    """The model as a GGUF file, F32, in llama.cpp's layout; returns its path."""
    weights = {name: (w.shape, w.ravel().tolist()) for name, w in tensors.items()}
    make_checkpoint.write_gguf(path, config | {"eos_token_id": [config["eos_token_id"]]}, weights, "F32")
    return path


def random_tokens(seed, count, vocab):
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab, count)]


def kl(reference, other):
    """Mean KL divergence in nats."""
    def log_softmax(x):
        x = x.astype(np.float64) - x.max(axis=-1, keepdims=True)
        return x - np.log(np.exp(x).sum(axis=-1, keepdims=True))

    p, q = log_softmax(reference), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(axis=-1).mean())
