# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`equant-calibrate-loss`, and GPTQ in its metric. The oracle differentiates a float64 model by differences: it knows no backward pass."""

import numpy as np
import pytest
from safetensors.numpy import load_file

from calibrating import calibrate, write_tokens
from command_line import run_command_line as easyquant
from easyquant.compiler.loss_memory import LossMemory
from easyquant.compiler.statistics import plans_of_float
from helpers import assert_refused, folder_contents, random_llama, random_tokens, run_tool, write_letters, write_model
from oracles.llama import Llama
from planning import SITES, dequantized, plan, planned_module, run_pass
from test_gptq import GROUP, brain_quantizer, scale_of

SEED, STEP = 0x5eed, 1e-5


def first_of_mt19937_64(seed):
    """The first number of std::mt19937_64 (Matsumoto and Nishimura, 2004)."""
    mask = (1 << 64) - 1
    state = [seed]
    for i in range(1, 312):
        state.append((6364136223846793005 * (state[-1] ^ (state[-1] >> 62)) + i) & mask)
    x = (state[0] & 0xFFFFFFFF80000000) | (state[1] & 0x7FFFFFFF)
    x = state[156] ^ (x >> 1) ^ (0xB5026F5AA96619E9 if x & 1 else 0)
    x ^= (x >> 29) & 0x5555555555555555
    x ^= (x << 17) & 0x71D67FFFEDA60000
    x ^= (x << 37) & 0xFFF7EEE000000000
    return (x ^ (x >> 43)) & mask


class Shifted:
    """A linear that remembers its inputs and adds to one of its outputs."""

    def __init__(self, linear):
        self.linear, self.place, self.input = linear, None, None

    def __call__(self, x):
        self.input, y = x, self.linear(x)
        if self.place:
            y[self.place[0], self.place[1]] += self.place[2]
        return y


def log_softmax(logits):
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def drawn_gradients(logits, first):
    """At the logits, of up to 64 tokens of the vocabulary: the mean of their outer products is the covariance of the next token, one-hot."""
    p = np.exp(log_softmax(logits))
    bits = np.array([[first_of_mt19937_64(SEED + first + row) >> token & 1 for token in range(logits.shape[1])] for row in range(len(logits))])
    signed = np.sqrt(p) * (2 * bits - 1)
    return signed - p * signed.sum(1, keepdims=True)


def expected_hessians(config, tensors, samples, first=0):
    """{site: (H, Hout)} of the samples from `first` on."""
    model = Llama(config, tensors, dtype=np.float64)
    linears = {}
    for index, layer in enumerate(model.layers):
        for short in SITES:
            name = short.rpartition(".")[2]
            layer[name] = linears[f"model.layers.{index}.{short}"] = Shifted(layer[name])
    length, rows = max(map(len, samples)), {site: ([], []) for site in linears}
    for number, sample in list(enumerate(samples))[first:]:
        slopes = drawn_gradients(model.logits(sample), number * length)
        inputs = {site: linear.input for site, linear in linears.items()}

        def loss(sample=sample, slopes=slopes):
            return (model.logits(sample) * slopes).sum()

        for site, linear in linears.items():
            gradient = np.empty((len(sample), len(tensors[site + ".weight"])))
            for place in np.ndindex(*gradient.shape):
                linear.place = *place, STEP
                above = loss()
                linear.place = *place, -STEP
                gradient[place] = (above - loss()) / (2 * STEP)
            linear.place = None
            rows[site][0].append(inputs[site] * np.linalg.norm(gradient, axis=1, keepdims=True))
            rows[site][1].append(gradient)
    stacked = {site: [np.concatenate(part) for part in parts] for site, parts in rows.items()}
    return {site: [2 * part.T @ part / len(part) for part in parts] for site, parts in stacked.items()}


def square(triangle):
    """The symmetric matrix of a lower triangle, row by row."""
    size = int((2 * len(triangle)) ** 0.5)
    matrix = np.zeros((size, size), triangle.dtype)
    matrix[np.tril_indices(size)] = triangle
    return matrix + np.tril(matrix, -1).T


def gather(model, folder, tokens, **options):
    """The tensors of the statistics file, matrices whole, and the file."""
    folder.mkdir(exist_ok=True)
    text = " ".join(f"{name}={value}" for name, value in options.items())
    file = folder / "loss.safetensors"
    result = run_tool("easyquant-compile", model, f'--pipeline=equant-calibrate-loss{{tokens="{tokens}" work="{folder}/work" statistics="{file}" {text}}}')
    assert result.returncode == 0, result.stderr
    return {name: tensor if name.endswith("_tokens") else square(tensor) for name, tensor in load_file(file).items()}, file


@pytest.mark.parametrize("arch, bos", [("llama", False), ("llama", True), ("olmo2", False)])
def test_hessians_are_those_of_differences(tmp_path, arch, bos):
    """Grouped-query attention, samples of two lengths. The token that begins texts counts: others attend to it. Linears of OLMo 2 read what
    goes into a layer."""
    config, tensors = random_llama(seed=3, arch=arch, hidden=16, ffn=20, heads=4, kv_heads=2, vocab=29)
    model = write_model(tmp_path / "model", config, tensors)
    samples = [random_tokens(1, 6, 29), random_tokens(2, 4, 29)]
    found, _ = gather(model, tmp_path / "run", write_tokens(tmp_path / "tokens", samples, bos))
    assert_hessians(found, "loss", expected_hessians(config, tensors, samples))
    # The last one of two samples is held out.
    assert_hessians(found, "held_out", expected_hessians(config, tensors, samples, first=1))
    for site in {name.partition("/")[0] for name in found}:
        assert found[f"{site}/loss_tokens"].tolist() == [10, 4]
        assert {name.partition("/")[2] for name in found if name.startswith(f"{site}/")} == {
            "loss_inputs", "loss_outputs", "held_out_inputs", "held_out_outputs", "loss_tokens"}


def assert_hessians(found, prefix, expected):
    for site, parts in expected.items():
        for name, part in zip((f"{prefix}_inputs", f"{prefix}_outputs"), parts):
            np.testing.assert_allclose(found[f"{site}/{name}"], part, rtol=0, atol=1e-4 * np.abs(part).max(), err_msg=f"{site}/{name}")


@pytest.fixture(scope="module")
def samples():
    return [random_tokens(seed, length, 97) for seed, length in ((1, 64), (2, 40), (3, 96), (4, 57), (5, 90), (6, 33), (7, 80), (8, 71))]


def test_any_number_of_threads_gives_the_same_bytes(tiny_llama, tmp_path, samples):
    tokens = write_tokens(tmp_path / "tokens", samples)
    one, three = (gather(tiny_llama, tmp_path / str(threads), tokens, threads=threads)[1].read_bytes() for threads in (1, 3))
    assert one == three


def test_a_run_that_was_ended_goes_on(tiny_llama, tmp_path, samples):
    """As a run leaves its journal that was ended behind the last layer."""
    tokens = write_tokens(tmp_path / "tokens", samples)
    _, whole = gather(tiny_llama, tmp_path / "whole", tokens)
    blocked = tmp_path / "blocked"
    blocked.mkdir()
    (blocked / "work" / "step_1.safetensors").mkdir(parents=True)  # the second layer's file has no place
    command = [f'--pipeline=equant-calibrate-loss{{tokens="{tokens}" work="{blocked}/work" statistics="{blocked}/loss.safetensors"}}']
    assert run_tool("easyquant-compile", tiny_llama, *command).returncode == 1
    assert (blocked / "work" / "step_0.safetensors").is_file() and not (blocked / "loss.safetensors").exists()
    (blocked / "work" / "step_1.safetensors").rmdir()
    before = (blocked / "work" / "step_0.safetensors").stat().st_mtime_ns
    result = run_tool("easyquant-compile", tiny_llama, *command)
    assert result.returncode == 0, result.stderr
    assert (blocked / "loss.safetensors").read_bytes() == whole.read_bytes()
    assert before and not list((blocked / "work").iterdir())


def rounded(model, work, tokens, options, plan_of=lambda site: None if site == "lm_head" else plan(["gptq"])):
    work.mkdir(exist_ok=True)
    result = run_pass(planned_module(model, work, plan_of), f"--equant-gptq=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    return {site: dequantized(work, f"gptq_{site.split('.')[2]}.safetensors", site, GROUP)
            for site in (f"model.layers.{layer}.{short}" for layer in (0, 1) for short in SITES)}


def damped(hessian, damping):
    return hessian + damping * np.mean(np.diag(hessian)) * np.eye(len(hessian))


def nearest(weight):
    return np.concatenate([np.clip(np.rint(part / scale_of(part)[:, None]), -7, 7) * scale_of(part)[:, None]
                           for part in np.split(weight, range(GROUP, weight.shape[1], GROUP), axis=1)], axis=1)


def test_gptq_rounds_in_the_metric_of_the_loss(tiny_llama, tmp_path, samples):
    _, tensors = random_llama()
    tokens = write_tokens(tmp_path / "tokens", samples)
    hessians, _ = gather(tiny_llama, tmp_path / "run", tokens)
    by_loss, by_both = (rounded(tiny_llama, tmp_path / name, tokens, f"hessian={name}") for name in ("loss", "loss-both"))
    gains = []
    for site, found in by_loss.items():
        weight = tensors[site + ".weight"].astype(np.float64)
        inputs = damped(hessians[site + "/loss_inputs"].astype(np.float64), 0.01)

        def loss(other, outputs, weight=weight, inputs=inputs):
            return np.trace(outputs @ (weight - other) @ inputs @ (weight - other).T)

        alone = np.eye(len(weight))
        assert loss(found, alone) == pytest.approx(loss(brain_quantizer(weight, inputs, act_order=True), alone), rel=0.005), site
        assert loss(found, alone) < loss(nearest(weight), alone), site
        outputs = damped(hessians[site + "/loss_outputs"].astype(np.float64), 0.1)
        assert loss(by_both[site], outputs) < loss(nearest(weight), outputs), site
        gains.append(loss(by_both[site], outputs) / loss(found, outputs))
    assert np.exp(np.mean(np.log(gains))) < 0.95, gains


@pytest.mark.parametrize("metric", ["loss", "loss-both"])
def test_threads_change_no_code(tiny_llama, tmp_path, samples, metric):
    tokens = write_tokens(tmp_path / "tokens", samples)
    one, three = (rounded(tiny_llama, tmp_path / str(threads), tokens, f"hessian={metric} threads={threads}") for threads in (1, 3))
    for site, weight in one.items():
        assert (weight == three[site]).all(), site


def codes_of(work):
    return {file.name: load_file(file) for file in work.glob("gptq_*")}


@pytest.mark.parametrize("metric", ["loss", "loss-both"])
def test_a_file_gives_what_running_the_model_gives(tiny_llama, tmp_path, samples, metric):
    tokens = write_tokens(tmp_path / "tokens", samples)
    _, file = gather(tiny_llama, tmp_path / "run", tokens)
    rounded(tiny_llama, tmp_path / "run-backward", tokens, f"hessian={metric}")
    rounded(tiny_llama, tmp_path / "from-file", tokens, f"hessian={metric} statistics={file}")
    one, other = codes_of(tmp_path / "run-backward"), codes_of(tmp_path / "from-file")
    assert one.keys() == other.keys() and one
    for name, tensors in one.items():
        for key, values in tensors.items():
            assert values.tobytes() == other[name][key].tobytes(), (name, key)


def ranges(model, work, tokens, options):
    """{site: scales} that equant-choose-ranges finds."""
    work.mkdir()
    module = planned_module(model, work, lambda site: plan([], rule="hessian_diagonal"))
    result = run_pass(module, f"--equant-choose-ranges=tokens={tokens} {options}")
    assert result.returncode == 0, result.stderr
    return {name.removesuffix(".weight_scale"): tensor for file in work.glob("choose-ranges_*") for name, tensor in load_file(file).items()}


def test_ranges_in_the_metric_of_the_loss(tiny_llama, tmp_path, samples):
    """What columns weigh is the diagonal of H; the head's ranges are those of plain squares."""
    _, tensors = random_llama()
    tokens = write_tokens(tmp_path / "tokens", samples)
    hessians, file = gather(tiny_llama, tmp_path / "run", tokens)
    ways = {"plain": "", "one": "hessian=loss threads=1", "three": "hessian=loss threads=3", "file": f"hessian=loss statistics={file}"}
    plain, by_loss, again, from_file = (ranges(tiny_llama, tmp_path / name, tokens, options) for name, options in ways.items())
    assert np.array_equal(plain["lm_head"], by_loss["lm_head"])
    better = worse = 0
    for site in by_loss.keys() - {"lm_head"}:
        weight, weights = tensors[site + ".weight"].astype(np.float64), np.diag(hessians[site + "/loss_inputs"]).astype(np.float64)

        def losses(scales, weight=weight, weights=weights):
            scale = np.repeat(scales.astype(np.float64), GROUP, axis=1)[:, :weight.shape[1]]
            errors = weights * (weight - np.clip(np.rint(weight / scale), -7, 7) * scale) ** 2
            return np.add.reduceat(errors, range(0, weight.shape[1], GROUP), axis=1)

        assert np.array_equal(by_loss[site], again[site]), site
        # The samples held out are sums of their own in the file.
        assert np.isclose(by_loss[site], from_file[site], rtol=1e-5).mean() > 0.99, site
        better += (losses(by_loss[site]) < losses(plain[site])).sum()
        worse += (losses(by_loss[site]) > losses(plain[site])).sum()
    assert better > 100 and worse < 0.2 * better, (better, worse)


def test_a_file_serves_the_rotated_basis_too(tmp_path, samples):
    """Values are rotated by their rows as well, by which attention's output is rotated."""
    model = write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=96, heads=4, kv_heads=2))
    tokens = write_tokens(tmp_path / "tokens", samples)
    _, file = gather(model, tmp_path / "run", tokens)
    codes = {}
    for name, options in (("run-backward", ""), ("from-file", f" statistics={file}")):
        work = tmp_path / name
        work.mkdir()
        module = planned_module(model, work, lambda site: None if site == "lm_head" else plan(["gptq"], "<i4, symmetric, group = 16, hadamard = 16>"))
        result = run_pass(module, "--equant-rotate", f"--equant-gptq=tokens={tokens} hessian=loss-both{options}")
        assert result.returncode == 0, result.stderr
        assert "axis = 0" in result.stdout
        codes[name] = codes_of(work)
    for name, tensors in codes["run-backward"].items():
        for key, values in tensors.items():
            if key.endswith("weight_codes"):  # sums in another order: a code in the middle may go either way
                assert (values == codes["from-file"][name][key]).mean() > 0.97, key


def test_a_file_follows_factors(tmp_path, samples):
    """AWQ scales columns, and rows of what makes the activation that a site reads."""
    model = write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=96, heads=4, kv_heads=4))
    tokens = write_tokens(tmp_path / "tokens", samples)
    _, file = gather(model, tmp_path / "run", tokens)
    codes = {}
    for name, options in (("run-backward", ""), ("from-file", f" statistics={file}")):
        work = tmp_path / name
        work.mkdir()
        module = planned_module(model, work, lambda site: None if site == "lm_head" else plan(["awq", "gptq"]))
        result = run_pass(module, f"--equant-awq=tokens={tokens}", f"--equant-gptq=tokens={tokens} hessian=loss-both{options}")
        assert result.returncode == 0, result.stderr
        assert "axis = 1" in result.stdout and "axis = 0" in result.stdout
        codes[name] = codes_of(work)
    for name, tensors in codes["run-backward"].items():
        for key, values in tensors.items():
            # Tokens count otherwise where rows are scaled: there codes are others.
            if key.endswith("weight_codes") and "v_proj" not in key and "up_proj" not in key:
                assert (values == codes["from-file"][name][key]).mean() > 0.97, key


def test_statistics_of_something_else_are_refused(tiny_llama, tmp_path, samples):
    tokens = write_tokens(tmp_path / "tokens", samples)
    _, file = gather(tiny_llama, tmp_path / "run", tokens)
    work = tmp_path / "work"
    work.mkdir()

    def refused(model, text, options, *words):
        module = planned_module(model, work, lambda site: None if site == "lm_head" else plan(["gptq"]))
        assert_refused(run_pass(module, f"--equant-gptq=tokens={text} {options}"), *words)
        assert not list(work.glob("gptq_*"))

    refused(write_model(tmp_path / "other", *random_llama(seed=99)), tokens, f"hessian=loss statistics={file}", "statistics of another model")
    shorter = write_tokens(tmp_path / "shorter", samples[:4])
    refused(tiny_llama, shorter, f"hessian=loss statistics={file}", "statistics of another text", "8 x 96 tokens", "4 x 96 tokens", "--nsamples")
    refused(tiny_llama, tokens, f"hessian=sinks statistics={file}", "hessian=loss", "found hessian=sinks")
    refused(tiny_llama, tokens, f"hessian=loss statistics={tmp_path}/none", "none")
    activations = calibrate(tiny_llama, tmp_path / "activations", tokens, statistics="absmax")
    refused(tiny_llama, tokens, f"hessian=loss statistics={activations}", "loss_inputs", "--statistic fisher")


def test_a_file_from_the_command_line(tmp_path):
    """One file for two schemes; each artifact is the one that is made without it."""
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=7)))
    text = tmp_path / "text.txt"
    text.write_bytes(np.random.default_rng(3).integers(33, 127, 4000).astype(np.uint8).tobytes())
    calib, file = (f"--calib={text}", "--nsamples=4", "--seqlen=48"), tmp_path / "fisher.safetensors"
    assert easyquant("calibrate", model, *calib, "--statistic=fisher", "-o", file).returncode == 0
    for scheme in ("W4A16", "W3A16_ASYM"):
        ways = {"run": (), "read": (f"--statistics={file}",)}
        for name, options in ways.items():
            done = easyquant("compile", model, "-o", tmp_path / f"{scheme}-{name}", "--method=gptq" if scheme == "W4A16" else "--method=zeropoint+gptq",
                             f"--scheme={scheme}", "--group-size=16", "--hessian=loss-both", *calib, *options)  # fmt: skip
            assert done.returncode == 0, done.stderr
        assert folder_contents(tmp_path / f"{scheme}-run") == folder_contents(tmp_path / f"{scheme}-read")
    out = tmp_path / "out"
    assert_refused(easyquant("compile", model, "-o", out, "--method=gptq", "--scheme=W4A16", *calib, f"--statistics={file}"), "--statistics goes with --hessian loss", "sinks")
    other = easyquant("compile", model, "-o", out, "--method=gptq", "--scheme=W4A16", "--hessian=loss", *calib, "--seed=1", f"--statistics={file}")
    assert_refused(other, "statistics of another text", "seed 0", "seed 1")
    assert not out.exists()


def test_memory_is_foretold(tmp_path):
    """What 10 million windows would take, no machine has: nothing runs, and the text is not read."""
    model = write_letters(write_model(tmp_path / "model", *random_llama(seed=7)))
    text = tmp_path / "text.txt"
    text.write_text("a")
    many = (f"--calib={text}", "--nsamples=100000000", "--seqlen=48")
    calibrate_fisher = ("calibrate", model, "--statistic=fisher")
    shown = easyquant(*calibrate_fisher, f"--calib={text}", "--nsamples=100", "--seqlen=48", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    states = 100 * 48 * 40 * 4 * 3
    assert f"{states / 1e6:.1f} MB for hidden states before every layer" in shown.stdout and "100 x 48 tokens" in shown.stdout and "available" in shown.stdout
    assert easyquant("calibrate", model, *many, "--dry-run").returncode == 0
    sides = [size for rows, columns in ((40, 40), (8, 40), (8, 40), (40, 40), (52, 40), (52, 40), (40, 52)) for size in (rows, columns)]
    layer = sum(size * size for size in sides)
    memory = LossMemory.of(plans_of_float(model).sites, plans_of_float(model).model, 1000, 100, 48)
    assert memory.hessians == 4 * layer * 5 and memory.file == 4 * layer * 2
    compile_by_loss = ("compile", model, "--method=gptq", "--scheme=W4A16", "--hessian=loss")
    for command in (calibrate_fisher, compile_by_loss):
        assert_refused(easyquant(*command, *many, "-o", tmp_path / "out"), "the Hessians of the loss take about", "100,000,000 x 48 tokens", "available", "fewer or shorter samples")
    assert not (tmp_path / "out").exists()
    assert_refused(easyquant(*calibrate_fisher, f"--calib={text}"), "-o STATISTICS is missing")


def test_what_cannot_be_is_refused(tiny_llama, tmp_path):
    one = write_tokens(tmp_path / "one", [random_tokens(1, 1, 97), random_tokens(2, 1, 97)])
    single = write_tokens(tmp_path / "single", [random_tokens(1, 30, 97)])
    work = tmp_path / "work"
    work.mkdir()
    module = planned_module(tiny_llama, work, lambda site: None if site == "lm_head" else plan(["gptq"]))
    # A query of the only token there is changes nothing.
    assert_refused(run_pass(module, f"--equant-gptq=tokens={one} hessian=loss"), "model.layers.1.self_attn.q_proj", "does not depend on it", "longer samples")
    assert_refused(run_pass(module, f"--equant-gptq=tokens={single} hessian=loss-both"), "1 sample", "hessian=loss-both", "two")
    result = run_tool("easyquant-compile", tiny_llama, f'--pipeline=equant-calibrate-loss{{tokens="{one}" work="{work}" statistics="{work}/loss"}}')
    assert_refused(result, "q_proj", "does not depend on it")
    assert not (work / "loss").exists() and not list(work.glob("gptq_*"))


def test_gradients_that_are_not_finite_are_refused(tmp_path):
    """Embeddings of zeros: forward everything is 0, whatever the weights are. Backward the last layer's down_proj, or the head before it, overflows."""
    config, tensors = random_llama(seed=5, tied=False)
    tensors["model.embed_tokens.weight"] *= 0
    down = "model.layers.1.mlp.down_proj.weight"
    samples = [random_tokens(1, 30, 97), random_tokens(2, 20, 97)]
    tokens = write_tokens(tmp_path / "tokens", samples)
    work = tmp_path / "work"
    work.mkdir()
    cases = {"layer": ({"lm_head.weight": 1e18, down: 1e22}, "the gradient of the loss at the output of site 'model.layers.1.mlp.up_proj'"),
             "head": ({"lm_head.weight": 1e37}, "the gradients behind the last layer")}  # fmt: skip
    for name, (factors, place) in cases.items():
        grown = {key: (tensor * factors.get(key, 1)).astype(np.float32) for key, tensor in tensors.items()}
        assert all(np.isfinite(tensor).all() for tensor in grown.values())
        model = write_model(tmp_path / name, config, grown)
        words = (place, "token 0 of sample 0", "expected a finite number", "Calibrate on other text")
        pipeline = f'--pipeline=equant-calibrate-loss{{tokens="{tokens}" work="{work}" statistics="{tmp_path}/loss"}}'
        assert_refused(run_tool("easyquant-compile", model, pipeline), *words)
        module = planned_module(model, work, lambda site: None if site == "lm_head" else plan(["gptq"]))
        assert_refused(run_pass(module, f"--equant-gptq=tokens={tokens} hessian=loss"), *words)
        assert not (tmp_path / "loss").exists() and not list(work.glob("gptq_*"))


def test_only_the_basis_of_the_model_is_gathered_in(tmp_path):
    model = write_model(tmp_path / "model", *random_llama(seed=5, hidden=64, ffn=96, heads=4, kv_heads=2))
    tokens = write_tokens(tmp_path / "tokens", [random_tokens(1, 30, 97)])
    module = planned_module(model, tmp_path, lambda site: None if site == "lm_head" else plan([], "<i4, symmetric, group = 16, hadamard = 16>"))
    result = run_pass(module, "--equant-rotate", f"--equant-calibrate-loss=tokens={tokens} work={tmp_path} statistics={tmp_path}/loss")
    assert_refused(result, "model.layers.0.self_attn.q_proj", "has gone through equant.hadamard", "before what transforms weights")
    assert not (tmp_path / "loss").exists()
