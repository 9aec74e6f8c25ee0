# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models that are used as they are: compiled once, found again, and never an artifact of something else."""

import os
import shutil
import threading
from pathlib import Path

import pytest

from easyquant.compiler import cache
from easyquant.compiler.calibration import CalibrationText
from easyquant.compiler.options import CompileOptions
from easyquant.runtime.artifact import Artifact
from easyquant.support.errors import UserError
from easyquant.support.files import cache_folder
from command_line import run_command_line as easyquant
from helpers import random_llama, write_letters, write_model

W8A8 = CompileOptions(scheme="W8A8")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    return write_letters(write_model(tmp_path_factory.mktemp("cache") / "letters", *random_llama(seed=11, layers=1)))


@pytest.fixture
def model(source, tmp_path):
    return Path(shutil.copytree(source, tmp_path / "letters"))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("EASYQUANT_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "artifacts"


@pytest.fixture
def compilations(monkeypatch):
    """Models that were compiled."""
    made, compile_model = [], cache.compile_model

    def counted(model, output, *arguments, **keywords):
        made.append(output)
        return compile_model(model, output, *arguments, **keywords)

    monkeypatch.setattr(cache, "compile_model", counted)
    return made


def test_the_cache_is_where_the_environment_says(tmp_path, monkeypatch):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("EASYQUANT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "easyquant"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "easyquant"


def test_is_compiled_once_and_found_again(model, folder, compilations, capsys):
    phases = []
    first = cache.artifact_of(model, W8A8, lambda phase, done, total: phases.append(phase))
    assert first.path.parent == folder and first.path.name.startswith("letters-") and first.shown == model and first.scheme == "W8A8"
    assert phases and f"compiling {model} once" in capsys.readouterr().err
    again = cache.artifact_of(model, CompileOptions(scheme="W8A8", threads=1))  # which changes no result
    assert again == first and len(compilations) == 1 and capsys.readouterr().err == ""


def test_what_an_artifact_depends_on_makes_another_one(model, tmp_path, compilations):
    text, recipe = tmp_path / "text", tmp_path / "recipe.yaml"
    text.write_text("abc def " * 200)
    recipe.write_text("scheme: W8A16\n")
    calibrated = CalibrationText(text, 2, 16)

    def keys():
        several = (None, W8A8, CompileOptions(scheme="W4A16"), CompileOptions(scheme="W4A16", group_size=8), CompileOptions(recipe=recipe),
                   CompileOptions(scheme="W8A8", ignore=["lm_head"]), CompileOptions(scheme="W8A8", calibration=calibrated))  # fmt: skip
        return [cache._key(model, options or CompileOptions()) for options in several]

    before = keys()
    assert len(set(before)) == len(before) and keys() == before
    recipe.write_text("scheme: W8A8\n")
    text.write_text("def abc " * 200)
    assert [one == other for one, other in zip(before, keys(), strict=True)] == [True] * 4 + [False, True, False]
    before = keys()
    weights = model / "model.safetensors"
    facts = weights.stat()
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)  # of the same size,
    os.utime(weights, ns=(facts.st_atime_ns, facts.st_mtime_ns))  # and as if it had not been changed: small ones are compared whole
    changed = keys()
    assert not set(before) & set(changed)
    os.utime(weights)
    touched = keys()
    config = model / "tokenizer_config.json"
    config.write_text(config.read_text() + " ")
    assert not set(changed) & set(touched) and not set(touched) & set(keys())
    (model / "README.md").write_text("which no compilation reads")
    assert cache._key(model, W8A8) == cache._key(model, W8A8) and compilations == []


def test_an_artifact_is_what_it_is(letters):
    artifact = letters("--scheme=W8A8")
    assert cache.artifact_of(artifact).path == artifact
    with pytest.raises(UserError, match="is compiled already, so that scheme does not apply; give the model that it came from"):
        cache.artifact_of(artifact, W8A8)


def test_what_is_damaged_is_made_again(model, compilations, capsys):
    first = cache.artifact_of(model, W8A8)
    (first.path / "manifest.json").write_bytes((first.path / "manifest.json").read_bytes().replace(b"W8A8", b"W8A9", 1))
    assert cache.artifact_of(model, W8A8) == first and len(compilations) == 2
    assert "is damaged and is made again" in capsys.readouterr().err
    with open(first.path / "weights.safetensors", "r+b") as weights:
        weights.truncate(100)
    assert cache.artifact_of(model, W8A8) == first and len(compilations) == 3
    (first.path / "manifest.json").unlink()
    assert cache.artifact_of(model, W8A8) == first and len(compilations) == 4 and Artifact.open(first.path)


def test_two_at_once_compile_once(model, compilations):
    found = []
    threads = [threading.Thread(target=lambda: found.append(cache.artifact_of(model, W8A8))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(compilations) == 1 and len(found) == 3 and found[0] == found[1] == found[2]


def test_an_error_leaves_nothing(model, folder, tmp_path):
    with pytest.raises(UserError, match="unknown method|method"):
        cache.artifact_of(model, CompileOptions(method="gtpq"))
    assert [path for path in folder.iterdir() if not path.name.endswith(".lock")] == []
    with pytest.raises(UserError, match=f"calib {tmp_path}/none: there is no such file"):
        cache.artifact_of(model, CompileOptions(calibration=CalibrationText(tmp_path / "none")))
    with pytest.raises(UserError, match="there is no such file or folder"):
        cache.artifact_of(tmp_path / "none")


def test_a_folder_that_cannot_be_is_an_error(model, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EASYQUANT_CACHE", str(tmp_path / "file"))
    with pytest.raises(UserError, match="file/artifacts/.*; let EASYQUANT_CACHE name a folder that can be written"):
        cache.artifact_of(model, W8A8)


def test_the_command_shows_and_clears(model, folder):
    artifact = cache.artifact_of(model, W8A8)
    shown = easyquant("cache").stdout
    assert artifact.path.name in shown and "letters, W8A8" in shown and str(folder) in shown
    cleared = easyquant("cache", "--clear")
    assert cleared.returncode == 0 and cleared.stdout.endswith("removed\n") and not artifact.path.exists()
    assert "letters" not in easyquant("cache").stdout.replace(str(folder), "")


def test_run_takes_a_model(model, folder):
    for _ in range(2):
        done = easyquant("run", model, "--scheme", "W8A8", "--prompt", "abc", "--max-new-tokens", 4)
        assert done.returncode == 0 and done.stdout.startswith("abc"), done.stderr
    assert "compiling" not in done.stderr and len(list(folder.glob("letters-*"))) == 1
    done = easyquant("run", next(folder.glob("letters-*")), "--scheme", "W8A8", "--prompt", "abc")
    assert done.returncode == 1 and "is compiled already, so that scheme does not apply" in done.stderr
    help_text = easyquant("run", "--help").stdout
    assert "Quantization, where MODEL is compiled" in help_text and "--kv-scheme" in help_text and "--dry-run" not in help_text
