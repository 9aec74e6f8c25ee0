#!/usr/bin/env python3
# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Libraries that are built on torch, as clients and as makers of checkpoints (interop.py); runs in the environment of one of them.

Its requests, as serving.py reads them; LIBRARY is compressed-tensors, transformers, gptqmodel or autoawq, of makers also auto-round and llm-compressor:

    {"op": "load", "library": LIBRARY, "folder": PATH}              a checkpoint, by the library's own loader
    {"op": "weights", "ours": PATH, "slack": 0}                     what it dequantizes beside the f32 weights of a safetensors file, which may be
                                                                    off by so much, relatively, before they are rounded
    {"op": "logits", "sequences": [[ids], ...], "out": PATH}        of every token, f32 [tokens, vocabulary] (.npy of all sequences)
    {"op": "make", "library": LIBRARY, "model": PATH, "out": PATH,
     "scheme": NAME, "group": 64, "windows": [[ids], ...]}          a checkpoint that the library quantizes by itself
    {"op": "describe", "packages": [NAME, ...]}                     their versions
"""

import importlib.metadata
import json
import os
import re
import shutil
import tempfile
from functools import partial
from pathlib import Path

# gptqmodel would compile what is run once, and its pools want more workers than a machine of two CPUs gives them.
os.environ |= {"TORCHDYNAMO_DISABLE": "1", "GPTQMODEL_CPU_WORKERS": "4"}

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from serving import serve


def read_tensors(folder):
    return {name: tensor for path in sorted(Path(folder).glob("*.safetensors")) for name, tensor in load_file(path).items()}


def read_config(folder):
    return json.loads((Path(folder) / "config.json").read_text())["quantization_config"]


def sites_with(tensors, suffix):
    return [name.removesuffix(suffix) for name in tensors if name.endswith(suffix)]


class Client:
    """A checkpoint that a library has loaded. `linears()` are (site, its weight, out x in, in the type that the library computes in)."""

    def __init__(self, model):
        self.model = model.eval()

    def linears(self):
        raise NotImplementedError

    @torch.inference_mode()
    def logits(self, tokens):
        return self.model(torch.tensor([tokens])).logits[0].float().numpy()


class Transformers(Client):
    """`from_pretrained`, which leaves compressed-tensors' linears packed until the first forward pass."""

    def __init__(self, folder):
        from transformers import AutoModelForCausalLM

        self.quantized = set(sites_with(read_tensors(folder), ".weight_scale"))
        super().__init__(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32))
        self.logits([0])

    def linears(self):
        return ((name, module.weight) for name, module in self.model.named_modules() if name in self.quantized)


def decompressed(folder):
    """What the library of compressed-tensors makes of the tensors of each linear."""
    from compressed_tensors.compressors import BaseCompressor
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.utils import is_match

    config, tensors = QuantizationConfig.model_validate(read_config(folder)), read_tensors(folder)
    linear = torch.nn.Linear(1, 1)
    for site in sites_with(tensors, ".weight_scale"):
        # Groups that name the site come before those of its class.
        groups = sorted(config.config_groups.values(), key=lambda group: "Linear" in group.targets)
        scheme = next(group for group in groups if is_match(site, linear, group.targets, config.ignore))
        own = {name.removeprefix(f"{site}."): tensor for name, tensor in tensors.items() if name.startswith(f"{site}.")}
        yield site, BaseCompressor.get_value_from_registry(scheme.format or config.format).decompress(own, scheme)["weight"]


class GPTQModelClient(Client):
    def __init__(self, folder):
        from gptqmodel import BACKEND, GPTQModel

        self.is_awq = read_config(folder)["quant_method"] == "awq"
        backend = BACKEND.AWQ_TORCH if self.is_awq else BACKEND.GPTQ_TORCH
        super().__init__(GPTQModel.load(str(folder), backend=backend, device="cpu", dtype=torch.float16).model)

    def linears(self):
        from gptqmodel.quantization.awq.utils.packing_utils import dequantize_gemm

        for name, module in self.model.named_modules():
            if not hasattr(module, "qweight"):
                continue
            if self.is_awq:
                yield name, dequantize_gemm(module.qweight, module.qzeros, module.scales, module.bits, module.group_size).T
            else:
                yield name, module.dequantize_weight().T


def load_float(folder, weights, kind):
    """A float model of the type `kind` with these weights of linears, and the rest of the checkpoint."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    del config.quantization_config
    rope = getattr(config, "rope_parameters", None) or {}
    if hasattr(config, "rope_theta") and "rope_theta" in rope:
        config.rope_theta = rope["rope_theta"]  # which transformers 5 writes and 4 keeps without reading it
    model = AutoModelForCausalLM.from_config(config, torch_dtype=kind)  # transformers 4.47 has no other name
    state = {name: tensor for name, tensor in read_tensors(folder).items() if name in model.state_dict()}
    state |= {f"{site}.weight": weight for site, weight in weights.items()}
    missing = set(model.load_state_dict(state, strict=False).missing_keys) - {"lm_head.weight"}
    if missing:
        raise ValueError(f"the checkpoint lacks {sorted(missing)[:3]}")
    model.tie_weights()
    return model


class CompressedTensors(Client):
    """The library's own numbers in a float model: transformers does not load all of its formats."""

    def __init__(self, folder):
        self.weights = dict(decompressed(folder))
        super().__init__(load_float(folder, self.weights, torch.float32))

    def linears(self):
        return self.weights.items()


class AutoAWQClient(Client):
    """The library's own numbers, of float16, in a float32 model. Its loader wants intel-extension-for-pytorch on CPUs, and what its linears do without
    kernels ends in an UnboundLocalError before the product that this is."""

    def __init__(self, folder):
        from awq.utils.packing_utils import dequantize_gemm

        tensors, settings = read_tensors(folder), read_config(folder)
        self.weights = {
            site: dequantize_gemm(*(tensors[f"{site}.{part}"] for part in ("qweight", "qzeros", "scales")), settings["bits"], settings["group_size"]).T
            for site in sites_with(tensors, ".qweight")
        }
        super().__init__(load_float(folder, self.weights, torch.float32))

    def linears(self):
        return self.weights.items()


CLIENTS = {"compressed-tensors": CompressedTensors, "transformers": Transformers, "gptqmodel": GPTQModelClient, "autoawq": AutoAWQClient}
loaded = None  # the one checkpoint that is in memory


def load(library, folder):
    global loaded
    loaded = None
    loaded = CLIENTS[library](folder)
    return {}


@torch.inference_mode()
def weights(ours, slack=0):
    """How many linears are ours, rounded once to the client's type, and by how much of the weight the others are off at most."""
    equal, largest, kinds, found = 0, 0.0, set(), set()
    with safe_open(ours, "pt") as file:
        for site, weight in loaded.linears():
            expected = file.get_tensor(site)
            kinds.add(str(weight.dtype).removeprefix("torch."))
            found.add(site)
            near = [(expected.double() * (1 + off)).to(weight.dtype) == weight for off in {0, slack, -slack}]
            equal += bool(torch.stack(near).any(0).all())
            largest = max(largest, float((weight.double() - expected.double()).abs().max() / expected.double().abs().max()))
        missing = sorted(set(file.keys()) - found)
    if missing:
        raise ValueError(f"has no quantized linear {missing[0]}")
    return {"linears": len(found), "equal": equal, "largest": largest, "type": ", ".join(sorted(kinds))}


def logits(sequences, out):
    np.save(out, np.concatenate([loaded.logits(tokens) for tokens in sequences]))
    return {}


# -------------------------------------------------------------------------------------------------------- what makes them


def copy_tokenizer(model, out):
    for path in Path(model).glob("*token*"):
        shutil.copy(path, out)


def make_compressed(model, out, scheme, group, windows):
    """Round to nearest with the library's own ranges, scales and packing."""
    from compressed_tensors.compressors import ModelCompressor
    from compressed_tensors.quantization import QuantizationConfig, apply_quantization_config, preset_name_to_scheme
    from compressed_tensors.quantization.utils import calculate_qparams, generate_gparam
    from transformers import AutoModelForCausalLM

    made = preset_name_to_scheme(scheme, ["Linear"])
    if made.weights.group_size == 128:
        made.weights.group_size = group
    float_model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float16)
    apply_quantization_config(float_model, QuantizationConfig(config_groups={"group_0": made}, ignore=["lm_head"]))
    for module in float_model.modules():
        arguments = getattr(getattr(module, "quantization_scheme", None), "weights", None)
        if arguments is None:
            continue
        weight, outer = module.weight.detach().float(), None
        if hasattr(module, "weight_global_scale"):
            outer = generate_gparam(weight.min(), weight.max())
            module.weight_global_scale.data = outer
        groups = weight.reshape(len(weight), -1, arguments.group_size or weight.shape[1])
        scales, zeros = calculate_qparams(groups.amin(-1), groups.amax(-1), arguments, outer)
        module.weight_scale.data = scales.to(module.weight_scale.dtype)
        if hasattr(module, "weight_zero_point"):
            module.weight_zero_point.data = zeros.to(module.weight_zero_point.dtype)
    compressor = ModelCompressor.from_pretrained_model(float_model)
    compressor.compress_model(float_model)
    float_model.save_pretrained(out)
    compressor.update_config(out)


def bits_of(scheme):
    """Bits, and whether zero points are in the middle."""
    bits, zeros = re.fullmatch(r"W(\d)A16(_ASYM)?", scheme).groups()
    return int(bits), not zeros


def with_masks(windows):
    return [{"input_ids": window, "attention_mask": [1] * len(window)} for window in windows]


def make_gptqmodel(model, out, scheme, group, windows):
    from gptqmodel import GPTQModel, QuantizeConfig

    bits, symmetric = bits_of(scheme)
    quantizer = GPTQModel.load(str(model), QuantizeConfig(bits=bits, group_size=group, sym=symmetric, desc_act=False, offload_to_disk=False), device="cpu")
    quantizer.quantize(with_masks(windows), batch_size=1)
    quantizer.save(str(out))


def make_autoawq(model, out, scheme, group, windows):
    from awq import AutoAWQForCausalLM
    from transformers import AutoTokenizer

    # It keeps weights aside by .cpu() while it tries scales, which copies those of a GPU alone: here it would go on with what it has scaled.
    torch.Tensor.cpu = lambda tensor: tensor.clone()
    bits, symmetric = bits_of(scheme)
    quantizer = AutoAWQForCausalLM.from_pretrained(str(model), device_map="cpu", torch_dtype=torch.float32)
    quantizer.quantize(AutoTokenizer.from_pretrained(model), quant_config={"zero_point": not symmetric, "q_group_size": group, "w_bit": bits, "version": "GEMM"},
                       calib_data=windows, max_calib_samples=len(windows), max_calib_seq_len=len(windows[0]), apply_clip=False)  # fmt: skip
    quantizer.save_quantized(str(out))


def auto_round(export, model, out, windows, **options):
    """Has auto-round quantize by one window a step, and save; returns nothing, `out` is what it makes."""
    from auto_round import AutoRound
    from transformers import AutoModelForCausalLM, AutoTokenizer

    quantizer = AutoRound(AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32), AutoTokenizer.from_pretrained(model),
                          dataset=[torch.tensor([window]) for window in windows], seqlen=len(windows[0]), nsamples=len(windows), batch_size=1,
                          device_map="cpu", **options)  # fmt: skip
    with tempfile.TemporaryDirectory(dir=out.parent) as folder, torch.enable_grad():
        quantizer.quantize_and_save(folder, format=export)
        next(Path(folder).iterdir()).rename(out)  # which it names after the model


def make_auto_round(export, model, out, scheme, group, windows):
    bits, symmetric = bits_of(scheme)
    auto_round(export, model, out, windows, bits=bits, group_size=group, sym=symmetric, iters=10)


def make_auto_round_gguf(model, out, scheme, group, windows):
    """`scheme`: a file type of llama.cpp, which says what groups there are."""
    kind = f"gguf:{scheme.lower()}"
    auto_round(kind, model, out, windows, scheme=kind, iters=200)


def make_llm_compressor(model, out, scheme, group, windows):
    from compressed_tensors.quantization import preset_name_to_scheme
    from datasets import Dataset
    from llmcompressor import oneshot
    from llmcompressor.modifiers.gptq import GPTQModifier
    from transformers import AutoModelForCausalLM, AutoTokenizer

    made = preset_name_to_scheme(scheme, ["Linear"])
    made.weights.group_size = group
    quantized = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    oneshot(model=quantized, tokenizer=AutoTokenizer.from_pretrained(model), dataset=Dataset.from_list(with_masks(windows)),
            recipe=GPTQModifier(config_groups={"group_0": made}, ignore=["lm_head"]), max_seq_length=len(windows[0]),
            num_calibration_samples=len(windows))  # fmt: skip
    quantized.save_pretrained(out, save_compressed=True)


MAKERS = {
    "compressed-tensors": make_compressed, "gptqmodel": make_gptqmodel, "autoawq": make_autoawq, "llm-compressor": make_llm_compressor,
    "auto-round as gguf": make_auto_round_gguf,
    "auto-round as gptq": partial(make_auto_round, "auto_gptq"), "auto-round as awq": partial(make_auto_round, "auto_awq"),
}  # fmt: skip


def make(library, model, out, scheme, group, windows):
    part = Path(f"{out}.part")
    shutil.rmtree(part, ignore_errors=True)
    os.chdir(part.parent)  # gptqmodel and auto-round leave logs in the working folder
    MAKERS[library](model, part, scheme, group, windows)
    copy_tokenizer(model, part)
    part.rename(out)
    return {}


def describe(packages):
    return {name: importlib.metadata.version(name) for name in packages}


if __name__ == "__main__":
    torch.set_grad_enabled(False)
    torch.manual_seed(0)
    serve(load=load, weights=weights, logits=logits, make=make, describe=describe)
