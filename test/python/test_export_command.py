# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant export` and `compile --export`: what they do unasked, and what they refuse before anything is written."""

import json
import re
import subprocess

import numpy as np
import pytest
from oracles import clients
from oracles.checkpoint import read_folder

from command_line import run_command_line as easyquant
from easyquant.compiler.options import choices_of
from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import BUILD, assert_refused, random_gpt2, random_llama, run_tool, write_gguf, write_letters, write_model

FORMATS = ("compressed-tensors", "gptq", "gptq_v2", "awq")


@pytest.fixture(scope="module")
def llama():
    return random_llama(seed=3, hidden=64, ffn=96, heads=4, kv_heads=2, tied=True)


@pytest.fixture(scope="module")
def model(llama, tmp_path_factory):
    folder = write_letters(write_model(tmp_path_factory.mktemp("export") / "model", *llama))
    (folder / "generation_config.json").write_text('{"eos_token_id": 2}')
    return folder


@pytest.fixture(scope="module")
def plain(model, tmp_path_factory):
    """The artifact of what export does by default."""
    out = tmp_path_factory.mktemp("plain") / "artifact"
    options = ("--scheme=W4A16", "--activation-basis=plain", "--head=float", "--group-size=32", "--scale-type=f16")
    done = easyquant("compile", model, "-o", out, *options)
    assert done.returncode == 0, done.stderr
    return Artifact.open(out)


def test_the_formats_are_those_of_the_codecs():
    assert tuple(choices_of("export")) == FORMATS


@pytest.mark.parametrize("format", FORMATS)
def test_the_defaults_are_what_every_client_takes(model, plain, tmp_path, format):
    done = easyquant("export", model, "--format", format, "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(rf"{tmp_path / 'out'}: checkpoint in {format}, [0-9.]+ KB, written in .* of memory\n", done.stdout)
    config, tensors = read_folder(tmp_path / "out")
    for site in plain.manifest["sites"]:
        linear = clients.read_linear(tensors, site["name"], config["quantization_config"])
        assert (linear is None) == (site["weight"] is None)
        if linear is not None:
            np.testing.assert_array_equal(linear.weight, read_site(plain, site["name"]).astype(np.float16))
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json"):
        assert (tmp_path / "out" / name).read_bytes() == (model / name).read_bytes()


def test_compile_exports_the_same(model, tmp_path):
    for command in (("export", "--format=gptq"), ("compile", "--export=gptq")):
        assert easyquant(command[0], model, command[1], "-o", tmp_path / command[0]).returncode == 0
    assert (tmp_path / "export" / "model.safetensors").read_bytes() == (tmp_path / "compile" / "model.safetensors").read_bytes()


def test_a_gguf_file_becomes_a_folder_with_a_tokenizer(llama, tmp_path):
    gguf = write_gguf(tmp_path / "model.gguf", *llama)
    out = tmp_path / "out"
    result = run_tool("easyquant-compile", gguf, "--export=gptq", "-o", out)
    assert result.returncode == 0, result.stderr
    folder = tmp_path / "folder"
    assert run_tool("easyquant-compile", write_model(tmp_path / "model", *llama), "--export=gptq", "-o", folder).returncode == 0
    assert (out / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()


def test_a_dry_run_predicts_the_bytes(model, tmp_path):
    for format in FORMATS:
        out = tmp_path / format
        plans = json.loads(run_tool("easyquant-compile", model, f"--export={format}", "--dry-run").stdout)
        assert run_tool("easyquant-compile", model, f"--export={format}", "-o", out).returncode == 0
        stored = sum(value.nbytes for value in read_folder(out)[1].values())
        assert plans["other_bytes"] + sum(site["bytes"] for site in plans["sites"]) == stored
        assert plans["passes"][-1] == "equant-quantize"
    done = easyquant("export", model, "--format=awq", "--dry-run")
    assert done.returncode == 0 and "int4/group 32, f16" in done.stdout and "KV cache" not in done.stdout, done.stderr


def test_the_pipeline_is_what_easyquant_opt_runs(model, tmp_path):
    printed = run_tool("easyquant-compile", model, "--export=gptq", "-o", tmp_path / "piped", "--dump-pipeline").stdout
    assert "equant-export-checkpoint{" in printed and "equant-fuse-shared-input" not in printed
    done = subprocess.run(["bash", "-o", "pipefail", "-c", printed], env={"PATH": f"{BUILD / 'bin'}:/usr/bin:/bin"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert run_tool("easyquant-compile", model, "--export=gptq", "-o", tmp_path / "out").returncode == 0
    assert (tmp_path / "piped" / "model.safetensors").read_bytes() == (tmp_path / "out" / "model.safetensors").read_bytes()


# ---------------------------------------------------------------------------------------------------------------- errors

REFUSALS = [
    ("gptq", ["--scheme=W5A16"], "site 'model.layers.0.self_attn.q_proj': gptq holds integers of 2, 3, 4 or 8 bits, found int5", "compressed-tensors"),
    ("gptq", ["--scheme=W8A8"], "gptq holds quantized weights beside float activations, found activations in int8", "W4A16"),
    ("gptq", ["--scale-type=f32"], "gptq holds f16 scales", "--scale-type f16"),
    ("gptq", ["--activation-basis=hadamard"], "gptq holds weights in the plain basis", "--activation-basis plain"),
    ("gptq", ["--head=int8"], "site 'lm_head': gptq holds a float head", "--head float"),
    ("gptq", ["--scheme=NF4A16"], "gptq holds integers of 2, 3, 4 or 8 bits, found nf4"),
    ("gptq_v2", ["--scale-type=two-level"], "gptq_v2 holds f16 scales", "--scale-type f16"),
    ("awq", ["--scheme=W3A16"], "awq holds integers of 4 bits, found int3", "W4A16_ASYM"),
    ("awq", ["--group-size=40"], "awq holds whole groups: 64 columns are no multiple of 40"),
    ("compressed-tensors", ["--scheme=T4A16"], "compressed-tensors holds integers, FP8 and FP4, found", "a table of values", "take an integer scheme"),
    ("compressed-tensors", ["--scale-type=two-level"], "compressed-tensors holds scales of one level", "--scale-type f16"),
    ("compressed-tensors", ["--head=int8"], "holds float embeddings; take --head float where it is tied to the head"),
    ("compressed-tensors", ["--scheme=none"], "no site is quantized; a scheme other than none makes a compressed-tensors checkpoint"),
    ("gptq", ["--target=cpu"], "--target is an option of artifacts, and --export gptq writes a checkpoint; leave one of the two out"),
    ("gptq", ["--tensor-parallel=2"], "--tensor-parallel is an option of artifacts"),
    ("gptq", ["--context=16"], "--context is an option of artifacts"),
    ("gptq", ["--kv-scheme=int8"], "--kv-scheme is an option of artifacts"),
    ("gptq", ["--force"], "--force is an option of artifacts"),
    ("gptq", ["--emit-ir-after=kernels"], "--emit-ir-after kernels: with --export there is no such phase; expected import or quantize"),
]  # fmt: skip


@pytest.mark.parametrize("format, options, expected", [(format, options, expected) for format, options, *expected in REFUSALS])
def test_what_a_format_does_not_hold_is_refused(model, tmp_path, format, options, expected):
    out = tmp_path / "out"
    assert_refused(run_tool("easyquant-compile", model, f"--export={format}", "-o", out, *options), *expected)
    assert not out.exists() and not list(tmp_path.iterdir())


def test_sinks_and_online_scales_are_refused(model, tmp_path):
    for options, expected in [(["--activations=online-ema"], "holds no activations whose scales follow a sequence"),
                              (["--activations=static", "--sinks=keep"], "take --sinks none")]:  # fmt: skip
        result = run_tool("easyquant-compile", model, "--export=compressed-tensors", "--scheme=W8A8", "--dry-run", "--with-text", *options)
        assert_refused(result, "site 'model.layers.0.self_attn.q_proj': compressed-tensors holds", expected)


def test_a_zero_point_of_0_is_refused_in_version_1(llama, tmp_path):
    config, tensors = llama
    tensors = {name: np.abs(value) if name == "model.layers.1.mlp.up_proj.weight" else value for name, value in tensors.items()}
    model = write_model(tmp_path / "model", config, tensors)
    options = ["--scheme=W4A16_ASYM", "-o", tmp_path / "out"]
    assert_refused(run_tool("easyquant-compile", model, "--export=gptq", *options),
                   "site 'model.layers.1.mlp.up_proj': the zero point of row 0, group 0 is 0 (the least code), and gptq stores zero points less 1",
                   "take gptq_v2")  # fmt: skip
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]
    for format in ("gptq_v2", "awq"):
        assert run_tool("easyquant-compile", model, f"--export={format}", *options[:2], tmp_path / format).returncode == 0


def test_models_that_checkpoints_do_not_hold(tmp_path):
    gpt2 = write_model(tmp_path / "gpt2", *random_gpt2())
    result = run_tool("easyquant-compile", gpt2, "--export=awq", "-o", tmp_path / "out")
    assert_refused(result, f"{gpt2}: models of the architecture gpt2 keep the weights of their linears transposed (Conv1D)", "compile an artifact")
    config, tensors = random_llama(hidden=64, ffn=96, heads=4)
    tensors["model.norm.weight"] = tensors["model.norm.weight"] * 1e6
    large = write_model(tmp_path / "large", config, tensors)
    result = run_tool("easyquant-compile", large, "--export=gptq", "-o", tmp_path / "out")
    assert_refused(result, "'model.norm.weight': ", "is beyond the range of f16, in which gptq checkpoints have their floats")
    odd = write_model(tmp_path / "odd", *random_llama())  # 40, 52 and 8
    assert_refused(run_tool("easyquant-compile", odd, "--export=gptq", "--group-size=0", "-o", tmp_path / "out"),
                   "site 'model.layers.0.mlp.gate_proj': gptq packs 4 bits into words of 32: 52 rows do not fill them", "leave the site float")  # fmt: skip
    assert run_tool("easyquant-compile", odd, "--export=compressed-tensors", "--group-size=0", "-o", tmp_path / "out").returncode == 0
    assert_refused(run_tool("easyquant-compile", odd, "--export=compressed-tensors", "--group-size=0", "-o", tmp_path / "out"), "exists; give another folder")


def test_a_recipe_names_what_it_asks_for(model, tmp_path):
    recipe = tmp_path / "recipe.json"
    recipe.write_text(json.dumps({"scheme": "W4A16", "head": "float", "group_size": 32,
                                  "sites": [{"match": "re:.*up_proj", "scheme": "W4A16", "group_size": 16}]}))  # fmt: skip
    result = run_tool("easyquant-compile", model, "--export=awq", f"--recipe={recipe}", "-o", tmp_path / "out")
    assert_refused(result, "site 'model.layers.0.mlp.up_proj': awq has one group size for all sites, found 16 here and 32 in")


@pytest.mark.parametrize("arguments, message", [
    (("--format=gguf",), "--format gguf: expected one of compressed-tensors, gptq, gptq_v2, awq"),
    ((), "--format FORMAT is missing"),
    (("--format=gptq", "--target=cpu"), "unknown option --target"),
])  # fmt: skip
def test_the_command_line_explains_itself(model, tmp_path, arguments, message):
    done = easyquant("export", model, "-o", tmp_path / "out", *arguments)
    assert done.returncode == 1 and message in done.stderr


def test_the_help_says_what_is_taken_by_default():
    page = " ".join(easyquant("export", "--help", COLUMNS="100").stdout.split())
    assert "--format FORMAT" in page and "One of compressed-tensors, gptq, gptq_v2, awq. (required)" in page
    assert "Q3, Q4, Q5, Q6. (default: W4A16)" in page and "plain, hadamard. (default: plain)" in page
    assert "--kv-scheme" not in page and "--target " not in page
