# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The commands on real artifacts, compiled by the real tools: figures, files, texts."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from easyquant.evaluation.weights import example_weights, read_site, scaled_sites
from easyquant.formats.packed import relative_error
from easyquant.runtime.artifact import Artifact
from command_line import Done, run_command_line
from helpers import BUILD, random_llama, test_data, write_letters, write_model

VOCABULARY = 97


def easyquant(*arguments) -> Done:
    return run_command_line(*arguments, EASYQUANT_TOOLS=str(BUILD / "bin"))


def succeed(*arguments) -> Done:
    done = easyquant(*arguments)
    assert done.returncode == 0, done.stderr
    return done


@pytest.fixture(scope="module")
def model(workspace):
    """A random llama with a tokenizer of one token a byte, 33 to 126."""
    return write_letters(write_model(workspace / "front-desk", *random_llama(seed=3, vocab=VOCABULARY, context=96)))


@pytest.fixture(scope="module")
def built(model, workspace):
    """built(scheme, *options): that artifact, made by `easyquant compile`."""
    made = {}

    def get(scheme: str, *options):
        key = (scheme, *options)
        if key not in made:
            made[key] = workspace / f"desk-{len(made)}"
            succeed("compile", model, "-o", made[key], "--scheme", scheme, *options)
        return made[key]

    return get


@pytest.fixture(scope="module")
def text(workspace):
    file = workspace / "text"
    file.write_text("".join(map(chr, np.random.default_rng(5).integers(33, 127, 1000))))
    return file


def evaluate(tmp_path, artifact, text, *options) -> dict:
    file = tmp_path / "result.json"
    succeed("eval", artifact, "--text", text, "--json", file, *options)
    return json.loads(file.read_text())


def test_compile_says_what_it_made(model, tmp_path):
    done = succeed("compile", model, "-o", tmp_path / "out", "--scheme", "W8A8")
    assert "W8A8" in done.stdout and "compiled in" in done.stdout
    assert (tmp_path / "out" / "tokenizer.json").read_bytes() == (model / "tokenizer.json").read_bytes()


def test_smoothquant_chooses_alpha_for_each_activation(built, text):
    out = built("W8A8", "--method", "smoothquant", "--alpha", "search", "--calib", text, "--nsamples", "4", "--seqlen", "48")
    transforms = json.loads((out / "manifest.json").read_text())["quantization"]["transforms"]
    smoothed = [entry for entry in transforms if "skipped" not in entry]
    # q, k and v; gate and up; down, of two layers. The model has grouped queries: o_proj is not smoothed.
    assert sorted(len(entry["sites"]) for entry in smoothed) == [1, 1, 2, 2, 3, 3]
    assert all(entry["method"] == "smoothquant" for entry in transforms)
    for entry in smoothed:
        assert 0 <= entry["alpha"] <= 1 and abs(entry["alpha"] * 20 - round(entry["alpha"] * 20)) < 1e-5
    skipped = [entry for entry in transforms if "skipped" in entry]
    assert [entry["sites"][0].split(".")[-1] for entry in skipped] == ["o_proj"] * 2 and all("alpha" not in entry for entry in skipped)
    assert not out.with_name(out.name + ".work").exists(), "what was computed on the way is removed"


def test_compile_keeps_an_artifact_that_exists(model, built):
    folder = built("W8A8")
    before = (folder / "manifest.json").read_bytes()
    done = easyquant("compile", model, "-o", folder, "--scheme", "none")
    assert done.returncode == 1 and "Traceback" not in done.stderr and "--force" in done.stderr
    assert (folder / "manifest.json").read_bytes() == before


def test_perplexity_is_that_of_the_logits(built, text, tmp_path, workspace):
    """Against the definition, on logits of the same artifact in one piece."""
    result = evaluate(tmp_path, built("W8A8"), text, "--context", "40", "--max-windows", "5", "--reference", built("none"))
    from easyquant import _runtime

    tokens = np.array([3 + byte - 33 for byte in text.read_bytes()], dtype=np.int32)
    losses, divergences, agreements, largest = [], [], [], 0.0
    for window in tokens[:200].reshape(5, 40):
        rows = []
        for scheme in ("W8A8", "none"):
            session = _runtime.Session(_runtime.Model(str(built(scheme))))
            logits = np.array(session.score(window[:-1]), dtype=np.float64)
            rows.append((logits, logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))))
        (q_logits, q), (p_logits, p) = rows
        losses.append(-q[np.arange(39), window[1:]].mean())
        divergences.append((np.exp(p) * (p - q)).sum(axis=1))
        agreements.append(p.argmax(axis=1) == q.argmax(axis=1))
        largest = max(largest, np.abs(p_logits - q_logits).max())
    assert result["tokens_scored"] == 195
    assert result["perplexity"] == pytest.approx(np.exp(np.mean(losses)), rel=1e-5)
    assert result["perplexity_stderr"] == pytest.approx(np.exp(np.mean(losses)) * np.std(losses, ddof=1) / np.sqrt(5), rel=1e-4)
    assert result["kl_mean"] == pytest.approx(np.mean(divergences), rel=1e-3)
    assert result["kl_p99"] == pytest.approx(np.percentile(divergences, 99), rel=1e-3)
    assert result["top1_agreement"] == np.mean(agreements)
    assert result["max_logit_difference"] == pytest.approx(largest, rel=1e-5)
    protocol = result["protocol"]
    assert (protocol["context"], protocol["stride"], protocol["windows"], protocol["bos"]) == (40, 40, 5, "none")
    assert protocol["corpus_sha256"] and protocol["isa"] in ("avx2", "avx512vnni") and "float32" in protocol["reference"]


def test_a_model_is_a_reference_too(model, built, text, tmp_path):
    """Compiled as float on the way, so that comparing the float artifact with it finds no difference."""
    result = evaluate(tmp_path, built("none"), text, "--context", "40", "--max-windows", "2", "--reference", model)
    assert result["kl_mean"] == result["kl_p99"] == result["max_logit_difference"] == 0.0
    assert result["top1_agreement"] == 1.0 and "compiled as float" in result["protocol"]["reference"]


def test_a_reference_of_another_model_is_refused(built, text, tmp_path, workspace):
    other = write_model(tmp_path / "other", *random_llama(seed=4, vocab=120))
    (other / "tokenizer.json").write_bytes((built("none") / "tokenizer.json").read_bytes())
    succeed("compile", other, "-o", tmp_path / "out", "--scheme", "none")
    done = easyquant("eval", built("none"), "--text", text, "--reference", tmp_path / "out")
    assert done.returncode == 1 and "vocabulary has 120 tokens" in done.stderr and "Traceback" not in done.stderr


def rewritten(model, folder, change) -> Path:
    """A copy of the model whose tokenizer.json another program has written."""
    shutil.copytree(model, folder)
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    change(tokenizer["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, indent=1))
    return folder


def test_a_reference_may_have_its_tokenizer_in_another_form(model, built, text, tmp_path):
    """As the GGUF of a model that was compiled from a Hugging Face folder has."""
    other = rewritten(model, tmp_path / "other", lambda vocabulary: None)
    result = evaluate(tmp_path, built("none"), text, "--context", "40", "--max-windows", "2", "--reference", other)
    assert result["kl_mean"] == 0.0 and result["protocol"]["reference"].startswith("other, compiled as float")


def exchange_two(vocabulary):
    """What texts hold is another token now, one of a hundred."""
    vocabulary["A"], vocabulary["</s>"] = vocabulary["</s>"], vocabulary["A"]


def exchange_all(vocabulary):
    numbers = list(vocabulary.values())[3:]
    vocabulary |= dict(zip(list(vocabulary)[3:], numbers[1:] + numbers[:1]))


@pytest.mark.parametrize("change, words", [(exchange_two, "makes other tokens of"), (exchange_all, "gives 3% of the tokens the numbers that they have in")])
def test_a_reference_that_reads_other_tokens_is_refused(model, built, text, tmp_path, change, words, monkeypatch):
    monkeypatch.setattr("easyquant.evaluation.evaluate.SAME_TOKENS", 0.97)
    other = rewritten(model, tmp_path / "other", change)
    done = easyquant("eval", built("none"), "--text", text, "--context", "40", "--reference", other)
    assert done.returncode == 1 and f"--reference {other}: its tokenizer {words}" in done.stderr and str(built("none")) in done.stderr, done.stderr


def test_a_reference_that_is_not_there(built, text):
    done = easyquant("eval", built("none"), "--text", text, "--reference", "nope")
    message = "error: --reference nope: there is no such artifact or model; expected an artifact, a Hugging Face folder or a GGUF file\n"
    assert done.returncode == 1 and done.stderr == message
    done = easyquant("eval", built("none"), "--text", text, "--reference", "HuggingFaceTB/nope")
    assert done.returncode == 1 and "download it with `hf download HuggingFaceTB/nope`" in done.stderr


def test_run_is_greedy_and_repeats_the_prompt(built):
    options = ("run", built("W8A8"), "--prompt", "abc", "--max-new-tokens", "12")
    done = succeed(*options)
    assert done.stdout.startswith("abc") and "tokens/s" in done.stderr
    assert succeed(*options, "--threads", "1").stdout == done.stdout


def test_run_samples_by_seed(built):
    def run(seed):
        return succeed("run", built("none"), "--prompt", "abc", "--max-new-tokens", "30", "--temperature", "30", "--seed", seed).stdout

    assert run(1) == run(1) != run(2)


def test_run_stops_where_the_context_ends(built):
    done = succeed("run", built("none"), "--prompt", "a" * 90, "--max-new-tokens", "50", "--temperature", "2", "--seed", "7")
    assert "the context of 96 tokens is full" in done.stderr or "</s>" not in done.stdout
    done = easyquant("run", built("none"), "--prompt", "a" * 97)
    assert done.returncode == 1 and "97 tokens, but the context" in done.stderr


def test_bench_measures(built, tmp_path):
    succeed("bench", built("W4A8", "--group-size", "32"), "--prefill", "40", "--decode", "8", "--repeats", "2", "--json", tmp_path / "b.json")
    result = json.loads((tmp_path / "b.json").read_text())
    for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "weights_bytes", "peak_rss_bytes"):
        assert result[key] > 0
    low, high = result["prefill_tokens_per_s_range"]
    assert low <= result["prefill_tokens_per_s"] <= high
    done = easyquant("bench", built("none"), "--prefill", "90", "--decode", "8")
    assert done.returncode == 1 and "more than the context" in done.stderr


def test_bench_measures_batches(built, tmp_path):
    options = ("--prefill", "20", "--decode", "4", "--repeats", "3", "--threads", "1", "--json", tmp_path / "b.json")
    shown = succeed("bench", built("W8A8"), "--batch", "4,2", *options).stdout
    result = json.loads((tmp_path / "b.json").read_text())
    assert [row["sequences"] for row in result["batch"]] == result["protocol"]["batch"] == [1, 2, 4] and "times one" in shown and " 1 thread " in shown
    for row in result["batch"]:
        for key in ("prefill_tokens_per_s", "decode_tokens_per_s", "prefill_ratio", "decode_ratio"):
            low, high = row[f"{key}_range"]
            assert 0 < low <= row[key] <= high
    one = result["batch"][0]
    assert one["decode_ratio_range"] == [1, 1] and all(result[key] == one[key] for key in ("prefill_tokens_per_s", "decode_tokens_per_s"))
    for wrong in ("0", "1,", "many", "-1"):
        done = easyquant("bench", built("W8A8"), f"--batch={wrong}")
        assert done.returncode == 1 and f"--batch {wrong}: expected numbers of sequences joined by commas" in done.stderr


def test_inspect_counts_sites_and_parameters(model, built):
    shown = succeed("inspect", built("W4A8", "--group-size", "32")).stdout
    assert "W4A8 in groups of 32" in shown and "int4/group 32" in shown and "int8/token" in shown
    assert "model.layers.*.mlp.down_proj" in shown and "model.layers.1.mlp.down_proj" in succeed("inspect", "--all", built("none")).stdout
    assert "model.layers.*.mlp.down_proj.weight" in succeed("inspect", model).stdout


@pytest.mark.parametrize("scheme, options", [("W8A8", ("--method", "absmax")), ("W4A8", ("--group-size", "32")), ("W4A16", ("--group-size", "64"))])
def test_weights_read_back_have_the_error_that_the_manifest_states(built, scheme, options):
    exact, quantized = Artifact.open(built("none")), Artifact.open(built(scheme, *options))
    name = "model.layers.1.mlp.down_proj"
    stated = next(site["weight_error"] for site in quantized.manifest["sites"] if site["name"] == name)
    assert relative_error(read_site(exact, name), read_site(quantized, name)) == pytest.approx(stated, rel=1e-4)


def test_the_example_of_the_demo_is_a_site_that_no_method_scaled(built, text):
    """Weights that SmoothQuant multiplied by factors are unlike the model's, though nothing is wrong with them."""
    smoothed = Artifact.open(built("W8A8", "--method", "smoothquant", "--alpha", "search", "--calib", text, "--nsamples", "4", "--seqlen", "48"))
    example = example_weights([Artifact.open(built("none")), smoothed], ["float", "W8A8"])
    assert example.site.endswith(".self_attn.o_proj")
    stated = {site["name"]: site["weight_error"] for site in smoothed.manifest["sites"]}
    assert example.after[0][2] == pytest.approx(stated[example.site], rel=1e-4)
    assert "model.layers.1.mlp.down_proj" in scaled_sites(smoothed) and example.site not in scaled_sites(smoothed)


def test_run_from_the_first_token_on_tells_the_published_story(stories, tmp_path):
    """An empty prompt is the beginning-of-text token."""
    succeed("compile", stories, "-o", tmp_path / "out", "--scheme", "none")
    told = succeed("run", tmp_path / "out", "--prompt", "", "--max-new-tokens", "200").stdout.removesuffix("\n")
    assert len(told) > 300 and test_data("stories260K.greedy257.txt").read_text().startswith(told)
