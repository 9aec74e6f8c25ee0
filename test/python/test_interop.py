# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""benchmarks/interop.py without its clients, which need packages of PyPI: its figures, its page, and what it says of a client that fails."""

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import interop
import interop_clients
import numpy as np
import pytest
from peer import Worker, cache_folder, environment_of
from safetensors.numpy import load_file, save_file

from helpers import random_llama, write_byte_level, write_model

REPOSITORY = Path(interop.__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    sizes = {"hidden": 64, "ffn": 96, "heads": 4, "kv_heads": 2, "layers": 1, "vocab": 330}
    return write_byte_level(write_model(tmp_path_factory.mktemp("model") / "llama", *random_llama(seed=3, **sizes)))


def test_the_page_says_what_was_not_run(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("a text " * 200)
    command = [sys.executable, REPOSITORY / "benchmarks" / "interop.py", model, "--text", text, "-o", tmp_path / "out",
               "--cache", tmp_path / "cache", "--only", "nothing is called so"]  # fmt: skip
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "interop.md").read_text()
    assert page == done.stdout.removesuffix("\n")
    names = [f"{row.name} ({', '.join(row.clients)})" for row in interop.EXPORTS] + [f"in {row.name} ({row.client})" for row in interop.IMPORTS]
    assert f"\n- {', '.join(names)}: not asked for by --only\n" in page
    assert str(tmp_path) not in page and not list((tmp_path / "cache").iterdir())


def test_groups_divide_the_columns_of_all_linears(model):
    assert interop.group_of(model) == 32


def test_figures():
    ours = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]], np.float32)) + np.float32(3)
    theirs = np.log(np.array([[0.25, 0.5, 0.25], [0.2, 0.3, 0.5]], np.float32)) - np.float32(7)
    assert interop.divergence(ours, theirs) == pytest.approx((0.5 * np.log(2) - 0.25 * np.log(2)) / 2, rel=1e-6)
    assert interop.divergence(ours, ours) == 0
    assert interop.distance(np.array([3.0, 4.0]), np.array([3.0, 4.5])) == pytest.approx(0.1)


def test_what_holds():
    """Weights are equal, logits within the bound of the client's arithmetic, greedy steps alike where activations stay float."""
    out = interop.Row("gptq W4A16", "gptqmodel", linears=7, equal=7, type="float16", apart=1e-2, alike=64, steps=64)
    assert out.ok and out.logits == "1.0e-02, bound 2e-02; 64 of 64"
    assert not replace(out, equal=6, largest=1e-9).ok and not replace(out, apart=3e-2).ok and not replace(out, alike=63).ok
    assert not replace(out, type="float32").ok
    assert replace(out, name="compressed-tensors W8A8", client="transformers", apart=1.5e-1, alike=60).ok
    assert not replace(out, name="compressed-tensors NVFP4A16", equal=0, largest=1e-7).ok
    # llama.cpp rounds activations beside codes of its own accord.
    rounded = replace(out, name="gguf Q4_K", client="llama.cpp", type="float32", alike=60)
    assert rounded.ok and not replace(rounded, client="llama.cpp, floats").ok and not replace(rounded, apart=0.3).ok
    back = interop.Row("in gptqmodel W4A16", "gptqmodel", linears=7, equal=7, type="float16", kept=7, sites=7, kl=9e-5)
    assert back.ok and not replace(back, kept=6).ok and not replace(back, kl=1.1e-4).ok


def test_each_row_has_an_environment():
    named = {client for row in interop.EXPORTS for client in row.clients} | {name for row in interop.IMPORTS for name in (row.maker, row.client)}
    assert {interop.ENVIRONMENTS.get(name, name) for name in named} == set(interop_clients.CLIENTS)


def client_worker(client):
    """A client without an environment of its own where the tests' has it: its worker."""
    if client == "iree" and not importlib.util.find_spec("iree"):
        pytest.skip("needs iree-base-compiler and iree-base-runtime of PyPI")
    if client == "llama.cpp" and environment_of(cache_folder(None)) is None:
        pytest.skip("needs llama-cpp-python as benchmarks/peers_llama_cpp.py installs it")
    return Worker(environment_of(cache_folder(None)) if client == "llama.cpp" else sys.executable, interop_clients.CLIENTS[client].worker)


@pytest.mark.parametrize("row, client", [
    (interop.Export("onnx", "W4A16_ASYM", ("onnxruntime",)), "genai"),
    (interop.Export("linalg", "W4A16", ("iree",)), "iree"),
    (interop.Export("gguf", "Q4_0", ("llama.cpp, floats", "llama.cpp")), "llama.cpp"),
])  # fmt: skip
def test_a_client_beside_an_artifact(model, tmp_path, monkeypatch, row, client):
    """What differs is seen, too."""
    args = SimpleNamespace(model=model, cache=tmp_path / "cache", torch=None, output=tmp_path)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(interop, "PROMPT", "A short text")
    bench = interop.Bench(args, tmp_path / "scratch")
    worker = bench.environments.workers[client] = client_worker(client)
    bench.export(row)
    linears = 8 if row.format == "gguf" else 7  # with the head
    assert [(found.client, found.linears, found.steps, found.type) for found in bench.found] == [(name, linears, interop.STEPS, "float32") for name in row.clients]
    assert all(found.ok for found in bench.found) and bench.found[0].apart < 1e-5, bench.found
    tensors = load_file(tmp_path / "scratch" / "ours.safetensors")
    tensors["model.layers.0.self_attn.q_proj"][3, 5] += 0.5
    save_file(tensors, tmp_path / "other.safetensors")
    found = worker.ask("weights", ours=str(tmp_path / "other.safetensors"))
    assert found["equal"] == linears - 1 and found["largest"] > 0.05
    bench.environments.close()


def test_a_checkpoint_that_a_library_made(model, tmp_path, monkeypatch):
    """What the artifact keeps are the numbers that the library reads."""
    if environment_of(cache_folder(None)) is None:
        pytest.skip("needs llama-cpp-python as benchmarks/peers_llama_cpp.py installs it")
    (tmp_path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 20)
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(interop, "WINDOW", 16)
    bench = interop.Bench(SimpleNamespace(model=model, cache=None, torch=None, output=tmp_path, text=tmp_path / "text.txt"), tmp_path / "scratch")
    bench.take(interop.Import("llama.cpp", "Q4_0", "llama.cpp, floats"))
    [found] = bench.found
    assert (found.name, found.client, found.linears, found.sites) == ("in llama.cpp Q4_0", "llama.cpp, floats", 8, 8)
    assert found.ok and found.kl < 1e-8, found
    bench.environments.close()


def test_a_client_that_fails_says_why():
    """By its own words, or by the status of its process."""
    worker = Worker(sys.executable, "easyquant_worker.py")
    with pytest.raises(interop_clients.Unavailable, match="ValueError: unknown request 'sing'"):
        interop_clients.ask(worker, "sing")
    worker.process.kill()
    worker.process.wait()
    with pytest.raises(interop_clients.Unavailable, match="it ended with status -9"):
        interop_clients.ask(worker, "describe", packages=[])


def test_an_environment_that_cannot_be_made_says_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    client = interop_clients.Client("nobody", "torch_clients.py", ("no-such-package-of-interop==1.0",), torch=False)
    monkeypatch.setitem(interop_clients.CLIENTS, "nobody", client)
    environments = interop_clients.Environments(tmp_path, None)
    for _ in range(2):  # it is not tried again
        with pytest.raises(interop_clients.Unavailable, match="(?i)error: .*no-such-package-of-interop"):
            environments.worker("nobody")
    environments.close()
