# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Code of kernels that is kept between compilations: used, the same bytes, never damaged."""

import shutil
import subprocess

import pytest

from helpers import ISA, assert_refused, compile_model, folder_contents, run_tool, tool, xxh3_128


SITE = b"model.layers.1.mlp.down_proj"


@pytest.fixture
def compile_with(tiny_llama, tmp_path, monkeypatch):
    """compile_with(cache): the files of an artifact that was compiled with that folder, or without one."""

    def compile(cache=""):
        monkeypatch.setenv("EASYQUANT_CODE_CACHE", str(cache))
        return folder_contents(compile_model(tiny_llama, tmp_path / "out", "--scheme=W8A8", ISA, "--force"))

    return compile


def kept_files(cache):
    return sorted(path for path in cache.iterdir() if path.name != "llvmcache.timestamp")


def test_same_bytes(compile_with, tmp_path):
    cache = tmp_path / "new" / "cache"
    expected = compile_with()
    assert compile_with(cache) == expected
    kept = folder_contents(cache)
    assert compile_with(cache) == expected
    assert folder_contents(cache) == kept and len(kept_files(cache)) > 10  # one of each kernel, and one of the program


def test_what_is_kept_is_used(compile_with, tmp_path):
    """A name that was changed in the object of the program is in what is linked of it again."""
    cache = tmp_path / "cache"
    compile_with(cache)
    (program,) = (file for file in kept_files(cache) if SITE in file.read_bytes())
    code = program.read_bytes()[32:].replace(SITE, SITE.upper())
    program.write_bytes(xxh3_128(code).encode() + code)
    assert SITE.upper() in compile_with(cache)["model.so"]


def test_programs_share_kernels(compile_with, tiny_llama, tmp_path):
    cache = tmp_path / "cache"
    compile_with(cache)
    first = kept_files(cache)
    compile_model(tiny_llama, tmp_path / "float head", "--scheme=W8A8", "--head=float", ISA)
    more = set(kept_files(cache)) - set(first)
    assert 1 < len(more) < len(first) / 2


def test_a_program_that_was_built_again_generates_its_code(compile_with, tiny_llama, tmp_path):
    cache = tmp_path / "cache"
    expected = compile_with(cache)
    first = len(kept_files(cache))
    again = shutil.copy(tool("easyquant-compile"), tmp_path / "easyquant-compile")  # another file, with another time
    done = subprocess.run([again, tiny_llama, "-o", tmp_path / "again", "--scheme=W8A8", ISA], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert len(kept_files(cache)) == 2 * first
    assert folder_contents(tmp_path / "again") == expected


@pytest.mark.parametrize("damage", [lambda b: b[:-1], lambda b: b[:20], lambda b: b"", lambda b: b[:90] + bytes([b[90] ^ 1]) + b[91:]])
def test_what_is_damaged_is_replaced(compile_with, tmp_path, damage):
    cache = tmp_path / "cache"
    expected = compile_with(cache)
    whole = {file: file.read_bytes() for file in kept_files(cache)}
    for file, content in whole.items():
        file.write_bytes(damage(content))
    assert compile_with(cache) == expected
    assert {file: file.read_bytes() for file in kept_files(cache)} == whole


def test_a_folder_that_cannot_be_written(tiny_llama, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("EASYQUANT_CODE_CACHE", str(tmp_path / "file"))
    result = run_tool("easyquant-compile", tiny_llama, "-o", tmp_path / "out", "--scheme=W8A8", ISA)
    assert_refused(result, f"EASYQUANT_CODE_CACHE: {tmp_path / 'file'}: ")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file"]
