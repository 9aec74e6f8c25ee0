# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Models by their names at Hugging Face: from the local cache, and never from the network."""

import json
import shutil

import pytest
from huggingface_hub import constants

from easyquant.runtime.artifact import Artifact
from command_line import run_command_line as easyquant
from helpers import random_llama, write_model

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def cache(tmp_path, monkeypatch):
    """An empty cache of downloads."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def download(cache, name: str):
    """The folder of a download as `hf download` leaves it."""
    repository = cache / f"models--{name.replace('/', '--')}"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(REVISION)
    (repository / "snapshots").mkdir()
    return repository / "snapshots" / REVISION


def test_a_download_is_compiled_by_its_name(cache, tmp_path):
    write_model(download(cache, "someone/Small-1"), *random_llama(layers=1))
    done = easyquant("compile", "someone/Small-1", "-o", tmp_path / "out", "--scheme", "W8A16")
    assert done.returncode == 0, done.stderr
    assert Artifact.open(tmp_path / "out").manifest["source"]["name"] == "Small-1", "and not the revision"
    assert "Small-1 (huggingface)" in easyquant("inspect", "someone/Small-1").stdout
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("scheme: W8A8\n")
    assert "sites of Small-1" in easyquant("recipe", "check", recipe, "someone/Small-1").stdout


def test_a_name_without_a_download_says_how_to_get_it(cache, tmp_path):
    cache.mkdir()
    for command in (("compile", "-o", tmp_path / "out"), ("inspect",), ("calibrate", "--calib", "t", "-o", tmp_path / "s")):
        done = easyquant(command[0], "someone/Small-1", *command[1:])
        assert done.returncode == 1 and f"not in {cache}: download it with `hf download someone/Small-1`" in done.stderr
    (download(cache, "someone/Half")).parent.rmdir()
    done = easyquant("compile", "someone/Half", "-o", tmp_path / "out")
    assert done.returncode == 1 and "hf download someone/Half" in done.stderr


def test_what_can_only_be_a_path_is_no_name(cache, tmp_path):
    for path in (tmp_path / "none", "model", "a/b/c"):
        done = easyquant("compile", path, "-o", tmp_path / "out")
        assert done.returncode == 1 and "no such file or folder" in done.stderr and "hf download" not in done.stderr


def test_of_several_gguf_files_one_has_to_be_named(cache, tmp_path):
    folder = download(cache, "someone/Small-GGUF")
    folder.mkdir()
    for kind in ("Q4_0", "Q8_0"):
        (folder / f"small.{kind}.gguf").write_bytes(b"GGUF")
    done = easyquant("compile", "someone/Small-GGUF", "-o", tmp_path / "out")
    assert done.returncode == 1 and "2 GGUF files; give one of them" in done.stderr and str(folder / "small.Q4_0.gguf") in done.stderr
    (folder / "small.Q8_0.gguf").unlink()
    assert "small.Q4_0.gguf: " in easyquant("compile", "someone/Small-GGUF", "-o", tmp_path / "out").stderr, "the only one is taken"


def test_a_path_that_is_there_is_not_looked_for(cache, tmp_path, monkeypatch):
    write_model(download(cache, "someone/Small"), *random_llama(layers=1))
    monkeypatch.chdir(tmp_path)
    shutil.copytree(cache / "models--someone--Small" / "snapshots" / REVISION, tmp_path / "someone" / "Small")
    config = tmp_path / "someone" / "Small" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"num_hidden_layers": "none"}))
    done = easyquant("compile", "someone/Small", "-o", "out", "--scheme", "none")
    assert done.returncode == 1 and "num_hidden_layers" in done.stderr
