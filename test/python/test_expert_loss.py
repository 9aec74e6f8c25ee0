# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The Hessians of the loss of each expert of a mixture, and GPTQ and ranges in their metric. The oracle differentiates a float64 model by
differences: it knows no backward pass."""

import json

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import write_tokens
from command_line import run_command_line as easyquant
from easyquant.compiler.loss_memory import LossMemory
from easyquant.compiler.statistics import plans_of_float
from helpers import Runner, assert_refused, compile_model, folder_contents, kl, random_llama, random_tokens, run_tool, write_letters, write_model
from oracles.experts import NAMES
from oracles.llama import Llama
from planning import dequantized, plan, planned_module, run_pass
from test_expert_statistics import SIZES, rigged
from test_gptq import brain_quantizer
from test_loss_statistics import STEP, Shifted, codes_of, damped, drawn_gradients, nearest, square

SMALL = {"hidden": 16, "heads": 2, "kv_heads": 1, "head_dim": 8, "ffn": 12, "experts": 4, "expert_ffn": 8, "vocab": 29, "tied": False}
SAMPLES = [random_tokens(seed, length, 97) for seed, length in enumerate((48, 31, 48, 17, 48, 40, 23, 48))]
# The first expert is chosen by more rows than it has columns, the last by none.
FIRST, LAST = 0, 4


def of_experts(site):
    return ".experts." in site


def square_all(tensor):
    return np.stack([square(part) for part in tensor])


def gathered(model, folder, tokens, **options):
    """The tensors of the statistics file, matrices whole, and the file."""
    folder.mkdir(exist_ok=True)
    text = " ".join(f"{name}={value}" for name, value in options.items())
    file = folder / "loss.safetensors"
    result = run_tool("easyquant-compile", model, f'--pipeline=equant-calibrate-loss{{tokens="{tokens}" work="{folder}/work" statistics="{file}" {text}}}')
    assert result.returncode == 0, result.stderr
    return {name: tensor if name.endswith("_tokens") else (square_all if of_experts(name) else square)(tensor) for name, tensor in load_file(file).items()}, file


# -------------------------------------------------------------------------------------------------------------- the statistics


def shifted_linears(config, model):
    """{(site, expert): linear} of all experts; (site, None) of what an expert shared by all tokens, and attention, end in."""
    _, experts, parts = NAMES[config["model_type"]]
    linears = {}
    for index, layer in enumerate(model.layers):
        at, mixture = f"model.layers.{index}.", layer["experts"]
        layer["o_proj"] = linears[at + "self_attn.o_proj", None] = Shifted(layer["o_proj"])
        for expert in mixture.experts:
            expert[:] = map(Shifted, expert)
        for number, expert in enumerate(mixture.experts):
            linears |= {(f"{at}{experts}.{part}", number): linear for part, linear in zip(parts, expert)}
        if mixture.shared:
            mixture.shared = [Shifted(linear) for linear in mixture.shared]
            linears |= {(f"{at}mlp.shared_expert.down_proj", None): mixture.shared[2]}
    return linears


def rows_by_differences(config, tensors, samples):
    """{(site, expert): [(inputs, gradients) of each sample]}."""
    model = Llama(config, tensors, dtype=np.float64)
    linears = shifted_linears(config, model)
    length, rows = max(map(len, samples)), {key: [] for key in linears}
    for number, sample in enumerate(samples):
        for linear in linears.values():
            linear.input = None
        slopes = drawn_gradients(model.logits(sample), number * length)
        inputs = {key: linear.input for key, linear in linears.items() if linear.input is not None}

        def loss(sample=sample, slopes=slopes):
            return (model.logits(sample) * slopes).sum()

        for key, x in inputs.items():
            linear = linears[key]
            gradient = np.empty((len(x), linear(x).shape[1]))
            for place in np.ndindex(*gradient.shape):
                linear.place = *place, STEP
                above = loss()
                linear.place = *place, -STEP
                gradient[place] = (above - loss()) / (2 * STEP)
            linear.place = None
            rows[key].append((number, x, gradient))
    return rows


def pair_of(parts):
    """(H, Hout) of (inputs, gradients)."""
    x, g = (np.concatenate(arrays) for arrays in zip(*parts))
    weighted = x * np.linalg.norm(g, axis=1, keepdims=True)
    return 2 * weighted.T @ weighted / len(x), 2 * g.T @ g / len(g)


@pytest.mark.parametrize("arch", ["qwen3_moe", "qwen2_moe", "mixtral"])
def test_hessians_of_experts_are_those_of_differences(tmp_path, arch):
    """Parts of all scores or of those chosen, with an expert shared by all tokens; two layers, so that gradients have gone through a mixture.
    An expert that no row chose has zeros."""
    config, tensors = random_llama(7, arch=arch, layers=2, **SMALL)
    model = write_model(tmp_path / "model", config, tensors)
    samples = [random_tokens(1, 3, 29), random_tokens(2, 2, 29)]
    found, _ = gathered(model, tmp_path / "run", write_tokens(tmp_path / "tokens", samples))
    rows, absent, chosen = rows_by_differences(config, tensors, samples), 0, {}
    for (site, expert), parts in rows.items():
        counts = []
        for prefix, first in (("loss", 0), ("held_out", 1)):
            taken = [part[1:] for part in parts if part[0] >= first]
            counts.append(sum(len(x) for x, _ in taken))
            for name, expected in zip(("inputs", "outputs"), pair_of(taken) if taken else (0, 0)):
                values = found[f"{site}/{prefix}_{name}"]
                values = values if expert is None else values[expert]
                np.testing.assert_allclose(values, np.broadcast_to(expected, values.shape), rtol=0, atol=1e-4 * np.abs(expected).max(), err_msg=f"{site} {expert} {name}")
        tokens = found[f"{site}/loss_tokens"]
        assert (tokens if expert is None else tokens[expert]).tolist() == counts
        absent += counts[1] == 0
        if expert is not None:
            chosen[site] = chosen.get(site, 0) + counts[0]
    # Some expert has no row of a sample; each token has two choices.
    assert absent > 0 and set(chosen.values()) == {2 * 5} and len(chosen) == 6


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """Five experts, of which no token chooses the last: the model, config and tensors, the tokens, and its statistics."""
    folder = tmp_path_factory.mktemp("mixture")
    config, tensors = rigged(layers=2)
    model, tokens = write_model(folder / "model", config, tensors), write_tokens(folder / "tokens", SAMPLES)
    return model, tensors, tokens, *gathered(model, folder / "run", tokens)


def test_threads_and_runs_that_were_ended_change_no_byte(mixture, tmp_path):
    model, _, tokens, _, file = mixture
    for threads in (1, 3):
        assert gathered(model, tmp_path / str(threads), tokens, threads=threads)[1].read_bytes() == file.read_bytes()
    ended = tmp_path / "ended"
    (ended / "work" / "step_1.safetensors").mkdir(parents=True)  # the second layer's file has no place
    command = f'--pipeline=equant-calibrate-loss{{tokens="{tokens}" work="{ended}/work" statistics="{ended}/loss.safetensors"}}'
    assert run_tool("easyquant-compile", model, command).returncode == 1 and (ended / "work" / "step_0.safetensors").is_file()
    (ended / "work" / "step_1.safetensors").rmdir()
    assert run_tool("easyquant-compile", model, command).returncode == 0
    assert (ended / "loss.safetensors").read_bytes() == file.read_bytes()


# ------------------------------------------------------------------------------------------------------------------------ GPTQ


def rounded(model, work, tokens, options):
    """{(site, expert): weight}, the rows of experts, and what the run said."""
    work.mkdir()
    result = run_pass(planned_module(model, work, lambda site: plan(["gptq"]) if of_experts(site) else None), f"--equant-gptq=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    weights, rows = {}, {}
    for layer in (0, 1):
        for part in ("gate", "up", "down"):
            site = f"model.layers.{layer}.mlp.experts.{part}_proj"
            stack = dequantized(work, f"gptq_{layer}.safetensors", site, 16)
            weights |= {(site, expert): values for expert, values in enumerate(np.split(stack, 5))}
            rows[site] = load_file(work / f"gptq_{layer}.safetensors")[f"{site}.expert_rows"]
    return weights, rows, result.stderr


def weight_of(tensors, site, expert):
    return tensors[site.replace("experts.", f"experts.{expert}.") + ".weight"].astype(np.float64)


def filled(hessian, rows, other):
    """As docs/guide/models.md has it."""
    size = len(hessian)
    if rows >= size:
        return hessian
    if other is None:
        other = (np.trace(hessian) / size if rows else 1) * np.eye(size)
    return rows / size * hessian + (1 - rows / size) * other


def hessians_of(found, site, expert):
    """H and Hout of an expert, filled up, in float64."""
    counts = found[f"{site}/loss_tokens"][:, 0].astype(np.float64)
    inputs, outputs = (found[f"{site}/loss_{name}"].astype(np.float64) for name in ("inputs", "outputs"))
    pooled = None if site.endswith("down_proj") else np.tensordot(counts, inputs, 1) / counts.sum()
    return filled(inputs[expert], counts[expert], pooled), filled(outputs[expert], counts[expert], None)


def test_gptq_rounds_experts_in_the_metric_of_the_loss(mixture, tmp_path):
    """As good as the plain solver by the Hessians of the file, filled up where few rows or none made them; and with errors that go to later rows better by both."""
    model, tensors, tokens, found, _ = mixture
    by_loss, rows, said = rounded(model, tmp_path / "loss", tokens, "hessian=loss")
    by_both, _, said_of_both = rounded(model, tmp_path / "both", tokens, "hessian=loss-both")
    gains = []
    for (site, expert), values in by_loss.items():
        assert rows[site].tolist() == found[f"{site}/loss_tokens"][:, 0].tolist() and rows[site][LAST] == 0 < rows[site][FIRST]
        weight = weight_of(tensors, site, expert)
        inputs, outputs = hessians_of(found, site, expert)
        inputs = damped(inputs, 0.01)

        def loss(other, outputs, weight=weight, inputs=inputs):
            return np.trace(outputs @ (weight - other) @ inputs @ (weight - other).T)

        alone = np.eye(len(weight))
        assert loss(values, alone) == pytest.approx(loss(brain_quantizer(weight, inputs, act_order=True), alone), rel=0.01), (site, expert)
        if expert != LAST:  # whose columns may be all alike
            assert loss(values, alone) < loss(nearest(weight), alone), (site, expert)
            gains.append(loss(by_both[site, expert], damped(outputs, 0.1)) / loss(values, damped(outputs, 0.1)))
    assert np.exp(np.mean(np.log(gains))) < 0.97, gains
    assert all("of 5 experts of site 'model.layers.0.mlp.experts.gate_proj'" in text and "filled up" in text for text in (said, said_of_both))


@pytest.mark.parametrize("metric", ["loss", "loss-both"])
def test_a_file_and_threads_change_no_code(mixture, tmp_path, metric):
    model, _, tokens, _, file = mixture
    ways = {"one": "threads=1", "three": "threads=3", "file": f"statistics={file}"}
    for name, options in ways.items():
        rounded(model, tmp_path / name, tokens, f"hessian={metric} {options}")
    one, three, from_file = (codes_of(tmp_path / name) for name in ways)
    for name, tensors in one.items():
        for key, values in tensors.items():
            assert values.tobytes() == three[name][key].tobytes() == from_file[name][key].tobytes(), (name, key)


def test_a_file_serves_the_rotated_basis_too(mixture, tmp_path):
    """All experts read the same rotated columns."""
    model, _, tokens, _, file = mixture
    codes = {}
    for name, options in (("run", ""), ("file", f" statistics={file}")):
        (tmp_path / name).mkdir()
        module = planned_module(model, tmp_path / name, lambda site: plan(["gptq"], "<i4, symmetric, group = 16, hadamard = 16>") if of_experts(site) else None)
        result = run_pass(module, "--equant-rotate", f"--equant-gptq=tokens={tokens} hessian=loss-both{options}")
        assert result.returncode == 0 and "equant.hadamard" in result.stdout, result.stderr
        codes[name] = codes_of(tmp_path / name)
    for name, tensors in codes["run"].items():
        for key, values in tensors.items():
            if key.endswith("weight_codes"):  # sums in another order: a code in the middle may go either way
                assert (values == codes["file"][name][key]).mean() > 0.97, key


def test_ranges_of_experts_by_the_loss(mixture, tmp_path):
    """Columns weigh as the diagonal of H says."""
    model, tensors, tokens, found, file = mixture
    scales = {}
    for name, options in {"plain": "", "loss": "hessian=loss", "file": f"hessian=loss statistics={file}"}.items():
        (tmp_path / name).mkdir()
        module = planned_module(model, tmp_path / name, lambda site: plan([], rule="hessian_diagonal") if of_experts(site) else None)
        result = run_pass(module, f"--equant-choose-ranges=tokens={tokens} {options}")
        assert result.returncode == 0, result.stderr
        scales[name] = {key: values for part in codes_of_ranges(tmp_path / name) for key, values in part.items() if key.endswith("weight_scale")}
    better = worse = 0
    for key, by_loss in scales["loss"].items():
        site = key.removesuffix(".weight_scale")
        assert np.isclose(by_loss, scales["file"][key], rtol=1e-5).mean() > 0.99, site
        for expert, (plain, own) in enumerate(zip(np.split(scales["plain"][key], 5), np.split(by_loss, 5))):
            if found[f"{site}/loss_tokens"][expert, 0] < 128:
                continue
            weight, weights = weight_of(tensors, site, expert), np.diag(found[f"{site}/loss_inputs"][expert])
            losses = []
            for scale in (own, plain):
                wide = np.repeat(scale.astype(np.float64), 16, axis=1)[:, :weight.shape[1]]
                errors = weights * (weight - np.clip(np.rint(weight / wide), -7, 7) * wide) ** 2
                losses.append(np.add.reduceat(errors, range(0, weight.shape[1], 16), axis=1))
            better += (losses[0] < losses[1]).sum()
            worse += (losses[0] > losses[1]).sum()
    assert better > 100 and worse < 0.2 * better, (better, worse)


def codes_of_ranges(work):
    return [load_file(file) for file in work.glob("choose-ranges_*")]


# -------------------------------------------------------------------------------------------------------------------- whole runs


def test_the_manifest_names_experts_that_few_rows_chose(mixture, tmp_path):
    model, _, tokens, _, _ = mixture
    out = compile_model(model, tmp_path / "out", "--scheme=W4A16", "--group-size=32", "--isa=avx2", "--method=gptq", "--hessian=loss-both", f"--tokens={tokens}")
    transforms = json.loads((out / "manifest.json").read_text())["quantization"]["transforms"]
    entries = {entry["sites"][0]: entry for entry in transforms if entry["method"] == "gptq"}
    assert len(entries) == 6
    for site, entry in entries.items():
        # down_proj has 32 columns, and 64 rows.
        assert entry["experts"] == [LAST] and "fewer than 64 rows" in entry["skipped"], site


def test_from_the_command_line(tmp_path):
    """One file for two metrics; each artifact is the one that is made without it, and is nearer to the model than rounding to nearest."""
    config, tensors = random_llama(29, arch="qwen3_moe", head_dim=16, **SIZES)
    model = write_letters(write_model(tmp_path / "model", config, tensors))
    text = tmp_path / "text.txt"
    text.write_bytes(np.random.default_rng(3).integers(33, 127, 8000).astype(np.uint8).tobytes())
    calib, file = (f"--calib={text}", "--nsamples=12", "--seqlen=64"), tmp_path / "fisher.safetensors"
    done = easyquant("calibrate", model, *calib, "--statistic=fisher", "-o", file)
    assert done.returncode == 0, done.stderr
    options = ("--scheme=W3A16", "--group-size=32", "--head=float", "--weight-observer=absmax")
    for metric in ("loss", "loss-both"):
        for name, more in (("run", ()), ("read", (f"--statistics={file}",))):
            done = easyquant("compile", model, "-o", tmp_path / f"{metric}-{name}", "--method=gptq", f"--hessian={metric}", *options, *calib, *more)
            assert done.returncode == 0, done.stderr
        assert folder_contents(tmp_path / f"{metric}-run") == folder_contents(tmp_path / f"{metric}-read")
    assert easyquant("compile", model, "-o", tmp_path / "nearest", *options).returncode == 0
    sample = random_tokens(99, 90, 97)
    expected = Llama(config, tensors, dtype=np.float64).logits(sample)
    lost = {name: kl(expected, Runner(tmp_path / name).score(sample)) for name in ("nearest", "loss-run", "loss-both-run")}
    assert lost["loss-run"] < lost["nearest"] and lost["loss-both-run"] < lost["nearest"], lost
    other = write_letters(write_model(tmp_path / "other", *random_llama(30, arch="qwen3_moe", head_dim=16, **SIZES)))
    refused = easyquant("compile", other, "-o", tmp_path / "none", "--method=gptq", "--hessian=loss", *options, *calib, f"--statistics={file}")
    assert_refused(refused, "statistics of another model")
    assert not (tmp_path / "none").exists()


def test_memory_of_experts_is_foretold(tmp_path):
    """Rows of tokens that all experts of a layer read count once; a file has the Hessians of all experts."""
    model = write_model(tmp_path / "model", *random_llama(5, arch="qwen3_moe", head_dim=16, **SIZES))
    plans = plans_of_float(model)
    run, file = (LossMemory.of(plans.sites, plans.model, 1000, 100, 48, to_file=to_file) for to_file in (False, True))
    expert = 64 * 64 + 32 * 32  # gate, up and down alike
    kept = 100 * 48 * 2 * (64 + 32 + 32 + 32 + 64)
    assert run.experts == 4 * (kept + 5 * expert + 8 * 4 * expert) and file.experts == 4 * (kept + 5 * expert + (3 + 1) * 8 * expert)
    attention = [(64, 64), (32, 64), (32, 64), (64, 64), (8, 64)]  # and the router
    dense = sum(n * n + k * k for n, k in attention)
    assert run.hessians == file.hessians == 4 * dense * 5 and file.file == 4 * 2 * (dense + 3 * 8 * expert)
    shown = run.parts
    assert shown["rows and Hessians of a layer's experts"] == run.experts and run.needed > run.states + run.layer + run.hessians + run.experts


def test_what_has_no_gradients_is_refused_before_anything_runs(tmp_path):
    """The clamped gate of gpt_oss."""
    tokens = write_tokens(tmp_path / "tokens", SAMPLES[:4])
    clamped = write_model(tmp_path / "gpt_oss", *random_llama(17, arch="gpt_oss", head_dim=16, **SIZES))
    work = tmp_path / "work"
    work.mkdir()
    loss = f'equant-calibrate-loss{{tokens="{tokens}" work="{work}" statistics="{tmp_path}/fisher"}}'
    assert_refused(run_tool("easyquant-compile", clamped, f"--pipeline={loss}"), "gradients through layer 'layer_0'", "has a clamped gate, of which there are no gradients yet", "--hessian sinks")
    module = planned_module(clamped, work, lambda site: plan(["gptq"]) if of_experts(site) else None)
    assert_refused(run_pass(module, f"--equant-gptq=tokens={tokens} hessian=loss-both"), "has a clamped gate, of which there are no gradients yet")
    assert not (tmp_path / "fisher").exists() and not list(work.glob("gptq_*")) and not list(work.glob("step_*"))
