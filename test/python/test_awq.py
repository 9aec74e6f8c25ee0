# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""equant-awq on whole models. The oracle is an independent float64 model that gives the activations, and the published
formulas in numpy: every candidate is tried in the place of the weights, and every range of every group."""

import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from helpers import assert_refused, folder_contents, random_llama, random_tokens, write_model
from oracles.gates import silu
from oracles.llama import Llama
from oracles.schemes import QuantizedWeight
from planning import SITES, plan, planned_module, run_pass

GROUP, GRID, SEARCHED = 16, 20, 3
READERS = {"self_attn.q_proj": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
           "self_attn.o_proj": ("self_attn.o_proj",), "mlp.gate_proj": ("mlp.gate_proj", "mlp.up_proj"),
           "mlp.down_proj": ("mlp.down_proj",)}
KINDS = {"multi-head": (5, 4, "zeropoint", False), "grouped": (1, 3, "absmax", True)}  # key heads, bits, rule, BOS


@dataclass
class Searched:
    """A model that the pass has run on."""

    folder: Path
    kv_heads: int
    bits: int
    rule: str
    bos: bool
    model: tuple | None = None  # config and tensors of a trained one
    samples: list = field(default_factory=list)
    text: str = ""

    def __post_init__(self):
        self.config, self.tensors = self.model or random_llama(11, kv_heads=self.kv_heads)
        self.layers = range(self.config["num_hidden_layers"])
        # Columns that matter unequally, or there is little to protect.
        for index in self.layers if self.model is None else ():
            for norm in ("input_layernorm", "post_attention_layernorm"):
                self.tensors[f"model.layers.{index}.{norm}.weight"][::7] *= 6
        write_model(self.folder / "model", self.config, self.tensors)
        self.samples = [random_tokens(seed, length, 97) for seed, length in ((1, 64), (2, 40), (3, 57), (4, 90), (5, 33))]
        self.tokens = write_tokens(self.folder / "tokens.safetensors", self.samples, self.bos)
        self.work = self.folder / "work"
        self.text = self.run(self.work, "threads=1")
        self.skip = int(self.bos)

    def plan(self, site):
        kind = "asymmetric" if self.rule == "zeropoint" else "symmetric"
        return None if site == "lm_head" else plan(["awq"], f"<i{self.bits}, {kind}, group = {GROUP}>", self.rule)

    def module(self, work):
        return planned_module(self.folder / "model", work, self.plan)

    def run(self, work, options=""):
        Path(work).mkdir(exist_ok=True)
        result = run_pass(self.module(work), f"--equant-awq=tokens={self.tokens} search-samples={SEARCHED} {options}")
        assert result.returncode == 0, result.stderr
        return result.stdout

    def factors(self):
        """{first site: s} of all layers."""
        return {name.removesuffix(".awq_scale"): s for index in self.layers
                for name, s in load_file(self.work / f"awq_{index}.safetensors").items()}

    def materialized(self):
        """The float model that the transformed IR is."""
        out = self.folder / "float"
        if not out.exists():
            out.mkdir()
            result = run_pass(self.text, f"--equant-materialize-weights=output={out}")
            assert result.returncode == 0, result.stderr
        return load_file(out / "weights.safetensors")

    def points(self):
        """(first site, {reader: weight}, what they read, what the enclosing block makes of that), for each activation."""
        model = Llama(self.config, self.tensors, dtype=np.float64)
        states = [model.embedding.rows(np.asarray(sample)).astype(np.float64) for sample in self.samples]
        for index, layer in enumerate(model.layers):
            read = {name: [] for name in READERS}
            for i, x in enumerate(states):
                read["self_attn.q_proj"].append(layer["input_norm"](x))
                model.attention(layer | {"o_proj": lambda y: read["self_attn.o_proj"].append(y) or y}, read["self_attn.q_proj"][i])
                x = x + layer["o_proj"](read["self_attn.o_proj"][i])
                read["mlp.gate_proj"].append(y := layer["mlp_norm"](x))
                read["mlp.down_proj"].append(silu(layer["gate_proj"](y)) * layer["up_proj"](y))
                states[i] = x + layer["down_proj"](read["mlp.down_proj"][i])

            def block(first, x, weights, layer=layer):
                own = layer | {name.split(".")[1]: lambda y, w=w: y @ w.T for name, w in weights.items()}
                if first == "self_attn.q_proj":
                    return model.attention(own, x)
                if first == "mlp.gate_proj":
                    return own["down_proj"](silu(own["gate_proj"](x)) * own["up_proj"](x))
                return own[first.split(".")[1]](x)

            for first, names in READERS.items():
                weights = {name: self.tensors[f"model.layers.{index}.{name}.weight"] for name in names}
                yield f"model.layers.{index}.{first}", weights, read[first], lambda x, w, first=first: block(first, x, w)


@pytest.fixture(scope="module", params=KINDS)
def searched(request, tmp_path_factory):
    return Searched(tmp_path_factory.mktemp(request.param), *KINDS[request.param])


def candidates(mean):
    yield np.ones_like(mean)
    for step in range(GRID):
        powers = np.maximum(mean ** (step / GRID), 1e-4)
        yield powers / np.sqrt(powers.max() * powers.min())


def assert_factors_are_those_of_a_direct_search(searched, looked_at=tuple(READERS)):
    factors, gains = searched.factors(), []
    asked = [first for first in READERS if searched.kv_heads == 5 or "o_proj" not in first]
    assert set(factors) == {f"model.layers.{index}.{first}" for index in searched.layers for first in asked}
    for site, weights, read, block in searched.points():
        if site not in factors or not site.endswith(looked_at):
            continue
        mean = np.mean(np.abs(np.concatenate([x[searched.skip:] for x in read])), axis=0)

        def loss(s, weights=weights, read=read, block=block):
            s = s.astype(np.float32)
            rounded = {name: QuantizedWeight(w * s, searched.bits, GROUP, np.float64, searched.rule).dequantized() / s
                       for name, w in weights.items()}
            errors = [block(x, rounded)[searched.skip:] - block(x, weights)[searched.skip:] for x in read[:SEARCHED]]
            return np.mean(np.square(np.concatenate(errors)))

        tried = list(candidates(mean))
        losses = [loss(s) for s in tried]
        found = loss(factors[site])
        assert min(np.max(np.abs(factors[site] / s - 1)) for s in tried) < 1e-5, f"{site}: not one of the candidates"
        assert found <= min(losses) * (1 + 1e-4), site
        gains.append(found / losses[0])
    assert min(gains) < 0.95, "nothing was worth scaling: the test shows nothing"


def test_factors_are_those_of_a_direct_search(searched):
    assert_factors_are_those_of_a_direct_search(searched)


def test_factors_of_a_real_layer(smollm2_layer, tmp_path):
    config = smollm2_layer[0]
    assert_factors_are_those_of_a_direct_search(Searched(tmp_path, config["num_key_value_heads"], 4, "zeropoint", True, smollm2_layer),
                                                ("self_attn.q_proj", "mlp.down_proj"))


def test_the_float_model_computes_the_same(searched):
    tokens = random_tokens(9, 40, 97)
    plain = Llama(searched.config, searched.tensors, dtype=np.float64).logits(tokens)
    transformed = searched.materialized()
    changed = [name for name, value in transformed.items() if name in searched.tensors and not np.array_equal(value, searched.tensors[name])]
    assert len(changed) >= 10
    # Each scaled weight is rounded to float once or twice: 2^-24 of it, through a few layers.
    logits = Llama(searched.config, transformed, dtype=np.float64).logits(tokens)
    assert np.abs(logits - plain).max() < 4e-6 * np.abs(plain).max()


def rounding(part, low, high, bits, rule):
    """What a group becomes if codes cover [low, high] of each row."""
    if rule == "absmax":
        most, zero = 2 ** (bits - 1) - 1, 0
        scale, least = (np.maximum(-low, high) / np.float32(most)).astype(np.float32), -most
    else:
        least, most = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
        low, high = np.minimum(low, np.float32(0)), np.maximum(high, np.float32(0))
        scale = ((high.astype(np.float64) - low) / (most - least)).astype(np.float32)
        zero = np.clip(np.rint(np.float32(least) - low / scale), least, most)
    return dequantized(part, scale, zero, least, most)


def dequantized(part, scale, zero, least, most):
    return (np.clip(np.rint(part / scale) + zero, least, most) - zero) * scale.astype(np.float64)


def test_ranges_are_those_of_a_direct_search(searched):
    """And never raise the error of what a group adds to the outputs."""
    factors, weights, shrunk = searched.factors(), searched.materialized(), 0
    least = -(2 ** (searched.bits - 1)) + (searched.rule == "absmax")
    for first, readers, read, _ in searched.points():
        x = np.concatenate([x[searched.skip:] for x in read[:SEARCHED]]) / factors.get(first, 1)
        clips = load_file(searched.work / f"awq_clip_{first.split('.')[2]}.safetensors")
        for name in readers:
            site = f"{'.'.join(first.split('.')[:3])}.{name}"
            if name.endswith(("q_proj", "k_proj")):
                assert not any(key.startswith(site) for key in clips), site
                continue
            for group, start in enumerate(range(0, x.shape[1], GROUP)):
                part, inputs = weights[site + ".weight"][:, start:start + GROUP], x[:, start:start + GROUP]
                low, high, top = (f(part, axis=1, keepdims=True) for f in (np.min, np.max, lambda p, **k: np.max(np.abs(p), **k)))

                def error(rounded, part=part, inputs=inputs):
                    return np.sum(np.square(inputs @ (part - rounded).T), axis=0)

                limits = [top * (np.float32(1) - np.float32(step) / np.float32(GRID)) for step in range(GRID // 2)]
                errors = [error(rounding(part, np.maximum(low, -limit), np.minimum(high, limit), searched.bits, searched.rule))
                          for limit in limits]
                zeros = clips.get(site + ".weight_zero_point")
                zero = 0 if zeros is None else zeros[:, group:group + 1].astype(np.float64)
                scale = clips[site + ".weight_scale"][:, group:group + 1]
                found = error(dequantized(part, scale, zero, least, 2 ** (searched.bits - 1) - 1))
                assert np.all(found <= errors[0] * (1 + 1e-4)), (site, group)
                np.testing.assert_allclose(found, np.min(errors, axis=0), rtol=1e-4, err_msg=f"{site}, group {group}")
                shrunk += np.count_nonzero(found < errors[0] * 0.999)
    assert shrunk > 50, "no range was worth shrinking: the test shows nothing"


def test_what_cannot_take_a_factor_is_recorded(searched):
    entries = re.findall(r'\{method = "awq", sites = \["([^"]*)"[^\]]*\](, skipped = "([^"]*)")?\}', searched.text)
    assert len(entries) == 2 * len(READERS)
    skipped = {site: reason for site, _, reason in entries if reason}
    reason = "its input is made by lm.attention whose heads share values"
    expected = {f"model.layers.{index}.self_attn.o_proj": reason for index in range(2)} if searched.kv_heads == 1 else {}
    assert skipped == expected
    # It is rounded as asked nevertheless, in the range that was found for it.
    assert "scale = @model.layers.0.self_attn.o_proj.weight_scale" in searched.text


def test_bytes_do_not_depend_on_threads(searched, tmp_path):
    text = searched.run(tmp_path / "work", "threads=2")
    assert folder_contents(tmp_path / "work") == folder_contents(searched.work)
    assert text.replace(str(tmp_path / "work"), "") == searched.text.replace(str(searched.work), "")


def test_means_are_over_the_first_samples_that_hold_16384_tokens(tiny_llama, tmp_path):
    samples, found = [random_tokens(seed, 96, 97) for seed in range(173)], {}
    for count in (173, 171, 170):  # 171 x 96 is the first multiple that is no less
        work = tmp_path / str(count)
        work.mkdir()
        tokens = write_tokens(tmp_path / f"tokens-{count}", samples[:count])
        module = planned_module(tiny_llama, work, lambda site: None if site == "lm_head" else plan(["awq"], f"<i4, symmetric, group = {GROUP}>", "hessian_diagonal"))
        result = run_pass(module, f"--equant-awq=tokens={tokens} search-samples=1 clip=false")
        assert result.returncode == 0, result.stderr
        found[count] = {file.name: {name: tensor.tobytes() for name, tensor in load_file(file).items()} for file in work.glob("awq_*")}
    assert found[173] and found[173] == found[171] != found[170]


@pytest.mark.parametrize("lost", [["awq_0.safetensors"], ["awq_1.safetensors", "awq_clip_0.safetensors"]])
def test_an_ended_run_goes_on_and_ends_with_the_same_bytes(searched, tmp_path, lost):
    work = tmp_path / "work"
    shutil.copytree(searched.work, work)
    kept = [path for path in work.iterdir() if path.name not in lost]
    times = {path: path.stat().st_mtime_ns for path in kept}
    for name in lost:
        (work / name).unlink()
    again = searched.run(work)
    assert again.replace(str(work), "") == searched.text.replace(str(searched.work), "")
    assert folder_contents(work) == folder_contents(searched.work)
    assert {path: path.stat().st_mtime_ns for path in kept} == times, "what is there is not computed again"


def test_mistakes_are_named(tiny_llama, tmp_path):
    tokens = write_tokens(tmp_path / "tokens.safetensors", [random_tokens(1, 20, 97)])
    module = planned_module(tiny_llama, tmp_path / "work", lambda site: plan(["awq"]) if site.split(".")[-1] in str(SITES) else None)
    run = f"--equant-awq=tokens={tokens}"
    assert_refused(run_pass(module, "--equant-awq"), "equant-awq needs calibration tokens", "tokens=FILE")
    assert_refused(run_pass(module, "--equant-awq=tokens=missing.safetensors"), "missing.safetensors")
    assert_refused(run_pass(module, run + " search-samples=0"), "search-samples must be at least 1, found 0")
    assert_refused(run_pass(module.replace("equant.work", "equant.play"), run), "equant.work")
    head = planned_module(tiny_llama, tmp_path / "work", lambda site: plan(["awq"]))
    assert_refused(run_pass(head, run), "site 'lm_head'", "none of the model's layers")
    # Without such sites nothing is asked for, not even tokens.
    assert run_pass(planned_module(tiny_llama, tmp_path, lambda site: plan([])), "--equant-awq").returncode == 0
