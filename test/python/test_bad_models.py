# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""What the compiler does with models and options that cannot be: an error that says what and where, and no file."""

import json
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from helpers import ISA, Runner, assert_refused, compile_model, folder_contents, random_llama, random_tokens, run_tool, tool, write_model


@pytest.fixture
def model(tmp_path):
    return write_model(tmp_path / "model", *random_llama())


def edit_config(model, **changes):
    config = json.loads((model / "config.json").read_text())
    config |= changes
    (model / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value != "remove"}))


def edit_weights(model, change):
    tensors = load_file(model / "model.safetensors")
    change(tensors)
    save_file(tensors, model / "model.safetensors")


def edit_header(model, change):
    """Changes the JSON header of the safetensors file and leaves the data alone."""
    path = model / "model.safetensors"
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length:])


def truncate(path, size):
    path.write_bytes(path.read_bytes()[:size])


DOWN = "model.layers.1.mlp.down_proj.weight"


def nan_weight(tensors):
    tensors[DOWN] = tensors[DOWN].copy()
    tensors[DOWN][3, 5] = np.nan


def infinite_weight(tensors):
    tensors[DOWN] = tensors[DOWN].copy()
    tensors[DOWN][0, 0] = -np.inf


def transposed_weight(tensors):
    tensors[DOWN] = np.ascontiguousarray(tensors[DOWN].T)


def integer_weight(tensors):
    tensors[DOWN] = tensors[DOWN].astype(np.int32)


# name: (what to do to the model, words of the message)
DAMAGE = {
    "no config": (lambda m: (m / "config.json").unlink(), ["config.json"]),
    "config is not JSON": (lambda m: (m / "config.json").write_text("{"), ["config.json"]),
    "config is a list": (lambda m: (m / "config.json").write_text("[]"), ["config.json"]),
    "unknown architecture": (lambda m: edit_config(m, model_type="mamba", architectures=["MambaForCausalLM"]), ["amba", "llama", "gpt2"]),
    "no hidden size": (lambda m: edit_config(m, hidden_size="remove"), ["config.json", "hidden_size"]),
    "negative layers": (lambda m: edit_config(m, num_hidden_layers=-1), ["config.json", "num_hidden_layers", "-1"]),
    "heads that do not divide": (lambda m: edit_config(m, num_key_value_heads=2), ["config.json", "5", "2"]),
    "unknown activation": (lambda m: edit_config(m, hidden_act="relu6"), ["config.json", "relu6"]),
    "no weights": (lambda m: (m / "model.safetensors").unlink(), ["safetensors"]),
    "empty weights": (lambda m: truncate(m / "model.safetensors", 0), ["model.safetensors"]),
    "truncated header": (lambda m: truncate(m / "model.safetensors", 100), ["model.safetensors"]),
    "truncated data": (lambda m: truncate(m / "model.safetensors", 60000), ["model.safetensors"]),
    "huge header": (lambda m: (m / "model.safetensors").write_bytes(b"\xff" * 7 + b"\x7f" + b"{}"), ["model.safetensors"]),
    "missing tensor": (lambda m: edit_weights(m, lambda t: t.pop(DOWN)), [DOWN]),
    "transposed tensor": (lambda m: edit_weights(m, transposed_weight), [DOWN, "40", "52"]),
    "integer tensor": (lambda m: edit_weights(m, integer_weight), [DOWN, "I32"]),
    "overlapping tensors": (lambda m: edit_header(m, lambda h: h[DOWN].update(data_offsets=h["model.norm.weight"]["data_offsets"])), ["model.safetensors", DOWN]),
    "offsets past the end": (lambda m: edit_header(m, lambda h: h[DOWN].update(data_offsets=[2**40, 2**40 + 40 * 52 * 4])), ["model.safetensors"]),
    "negative offset": (lambda m: edit_header(m, lambda h: h[DOWN].update(data_offsets=[-8, 8312])), ["model.safetensors"]),
    "overflowing shape": (lambda m: edit_header(m, lambda h: h[DOWN].update(shape=[2**62, 8])), ["model.safetensors"]),
    "NaN weight": (lambda m: edit_weights(m, nan_weight), [DOWN.removesuffix(".weight")]),
    "infinite weight": (lambda m: edit_weights(m, infinite_weight), [DOWN.removesuffix(".weight")]),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_damaged_model(model, tmp_path, name):
    damage, words = DAMAGE[name]
    damage(model)
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out"), *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"], "something was written"


def test_missing_shard(tmp_path):
    model = write_model(tmp_path / "model", *random_llama(), shards=3)
    (model / "model-00002-of-00003.safetensors").unlink()
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out"), "model-00002-of-00003.safetensors")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_shard_outside_the_folder(tmp_path):
    model = write_model(tmp_path / "model", *random_llama(), shards=2)
    index = json.loads((model / "model.safetensors.index.json").read_text())
    index["weight_map"][DOWN] = "../secret.safetensors"
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out"), "../secret.safetensors")


@pytest.mark.parametrize("content, words", [
    (b"", []), (b"GGUF", []), (b"GGUF\x03\x00\x00\x00" + b"\xff" * 16, []), (b"GGUF\x63\x00\x00\x00" + bytes(16), ["99", "3"]),
    (b"PK\x03\x04" + bytes(100), [])])
def test_damaged_gguf(tmp_path, content, words):
    model = tmp_path / "model.gguf"
    model.write_bytes(content)
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out"), "model.gguf", *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.gguf"]


def test_truncated_gguf(smollm2_gguf, tmp_path):
    model = tmp_path / "model.gguf"
    with open(smollm2_gguf, "rb") as file:
        model.write_bytes(file.read(4_000_000))
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out"), "model.gguf")


@pytest.mark.parametrize("options, words", [
    (["--scheme=W7A8"], ["W7A8", "W8A8", "W4A16"]),
    (["--scheme=int5"], ["int5", "W8A8"]),
    (["--scheme=W4A16", "--group-size=-32"], ["-32"]),
    (["--scheme=W4A16", "--group-size=12"], ["12", "8"]),
    (["--scheme=W8A8", "--method=magic"], ["magic", "absmax"]),
    (["--target=abacus"], ["abacus", "cpu"]),
    (["--head=int3"], ["int3", "int8"]),
    (["--kv-cache=f8"], ["f8", "f16"]),
    (["--isa=neon"], ["neon", "avx2"]),
    (["--ignore=model.layers.7.mlp.down_proj"], ["model.layers.7.mlp.down_proj"]),
    (["--ignore=re:.*[unclosed"], ["re:.*[unclosed"]),
    (["--targets=re:nothing.*"], ["re:nothing.*"]),
    (["--copy-file=/nonexistent/tokenizer.json"], ["/nonexistent/tokenizer.json"]),
])
def test_bad_options(tiny_llama, tmp_path, options, words):
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", *options), *words)
    assert list(tmp_path.iterdir()) == []


def test_unknown_scheme_on_the_command_line(tiny_llama, tmp_path):
    command = [sys.executable, "-m", "easyquant", "compile", tiny_llama, "-o", tmp_path / "out", "--scheme", "W7A8"]
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    assert result.returncode == 1, result.stderr
    assert "W7A8" in result.stderr and "W8A8" in result.stderr and "Traceback" not in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_missing_model(tmp_path):
    assert_refused(run_tool("easyquant-compile", tmp_path / "nothing", "-o", tmp_path / "out"), "nothing")


def test_output_that_is_there_stays(tiny_llama, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", out), str(out), "--force")
    # --force replaces an artifact, never something else.
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", out, "--force"), str(out))
    assert folder_contents(out) == {"thesis.txt": b"years of work"}
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_force_replaces_an_artifact(artifact, tiny_llama, tmp_path):
    out = compile_model(tiny_llama, tmp_path / "out", "--scheme=none", ISA)
    before = folder_contents(out)
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", out), "--force")
    assert folder_contents(out) == before
    compile_model(tiny_llama, out, "--scheme=W8A8", "--force", ISA)
    assert folder_contents(out) == folder_contents(artifact(tiny_llama, "--scheme=W8A8"))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_folder_that_cannot_be_written(tiny_llama, tmp_path):
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", "/proc/easyquant-out"), "/proc/easyquant-out")
    file = tmp_path / "file"
    file.write_text("")
    assert_refused(run_tool("easyquant-compile", tiny_llama, "-o", file / "out"), str(file))


def test_full_disk(tiny_llama, tmp_path):
    """A file system of 64 KiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", disk], capture_output=True, text=True)
    if mounted.returncode != 0:
        pytest.skip(f"needs the right to mount a small file system: {mounted.stderr.strip()}")
    try:
        result = run_tool("easyquant-compile", tiny_llama, "-o", disk / "out")
        left = list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)
    assert_refused(result, str(disk), "No space left")
    assert left == []


def test_a_full_disk_behind_remarks(tiny_llama, tmp_path):
    """Notes and errors are lost, results are not, nor the status."""

    def status(*arguments):
        with open("/dev/full", "w") as full:
            return subprocess.run([sys.executable, "-m", "easyquant", *map(str, arguments)], stdout=subprocess.DEVNULL, stderr=full).returncode

    assert status("compile", tiny_llama, "-o", tmp_path / "out", "--scheme=W8A8") == 0
    assert (tmp_path / "out" / "manifest.json").exists()
    assert status("inspect", tmp_path / "nothing") == 1


def test_write_that_fails(tiny_llama, tmp_path):
    """A limit on file sizes stands for a disk that fills up: writes fail with an error."""

    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))

    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", preexec_fn=limit, restore_signals=False)
    assert_refused(result, str(tmp_path))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_ended_compile(tiny_llama, tmp_path, number):
    """Ended at any moment, there is no artifact; a later compile is not disturbed."""
    out = tmp_path / "out"
    command = [str(tool("easyquant-compile")), str(tiny_llama), "-o", str(out)]
    seen_temporary = False
    for delay in (0.0, 0.05, 0.3, 1.0):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 30
        while process.poll() is None and not any(tmp_path.iterdir()) and time.monotonic() < deadline:
            time.sleep(0.002)
        seen_temporary |= any(path != out for path in tmp_path.iterdir())
        time.sleep(delay)
        process.send_signal(number)
        status = process.wait(timeout=30)
        if status == 0 or out.exists():
            break  # the artifact was there before the signal came, perhaps not yet the end of the process: it is whole
        if number != signal.SIGKILL:
            assert list(tmp_path.iterdir()) == [], "a signal that can be handled leaves nothing behind"
    assert seen_temporary
    if out.exists():
        assert np.isfinite(Runner(out).score(random_tokens(0, 8, 97))).all()
    compile_model(tiny_llama, out, "--force")
    assert [path.name for path in tmp_path.iterdir()] == ["out"], "what a killed compilation left is removed by the next"
    assert np.isfinite(Runner(out).score(random_tokens(0, 8, 97))).all()


def test_group_that_does_not_divide_is_legal(tmp_path):
    """Groups of 48 on rows of 100."""
    model = write_model(tmp_path / "model", *random_llama(9, hidden=100, ffn=100, heads=5, kv_heads=5))
    out = compile_model(model, tmp_path / "out", "--scheme=W4A16", "--group-size=48", "--isa=avx2")
    manifest = json.loads((out / "manifest.json").read_text())
    site = next(site for site in manifest["sites"] if site["name"] == "model.layers.0.mlp.down_proj")
    assert site["weight"]["group_size"] == 48 and site["in_features"] == 100
    assert 0 < site["weight_error"] < 0.15


def test_ignored_sites_stay_float(tmp_path, tiny_llama):
    out = compile_model(tiny_llama, tmp_path / "out", "--scheme=W8A8", "--ignore=re:.*down_proj", "--isa=avx2")
    sites = json.loads((out / "manifest.json").read_text())["sites"]
    floats = {site["name"] for site in sites if site["weight"] is None}
    assert floats == {f"model.layers.{layer}.mlp.down_proj" for layer in range(2)}


def test_other_users_cannot_be_locked_out(artifact, tiny_llama):
    """Files are readable as the umask says, not as a temporary file's mode says."""
    umask = os.umask(0)
    os.umask(umask)
    out = artifact(tiny_llama, "--scheme=W8A8")
    for path in (out, *out.iterdir()):
        assert path.stat().st_mode & 0o444 == 0o444 & ~umask, path
