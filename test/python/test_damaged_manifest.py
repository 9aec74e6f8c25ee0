# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Every field of a manifest gone, of another type or absurd: each command that opens artifacts says one thing, or works."""

import copy
import json
import shutil

import pytest

from command_line import run_command_line
from helpers import BUILD, sign_manifest

ABSURD = {bool: [None, 7], int: ["many", -1, 2**63 - 1, 1e300], float: [None, -1.0], str: [None, "", "[/no markup]", "../\x00" * 99],
          list: [None, {}, [None]], dict: [None, [], {}], type(None): ["x"]}  # fmt: skip


def fields(value, where=()):
    """Paths of all fields; in a list those of the first entry."""
    for key, inner in value.items() if isinstance(value, dict) else list(enumerate(value))[:1]:
        yield (*where, key)
        if isinstance(inner, (dict, list)):
            yield from fields(inner, (*where, key))


def damages(manifest):
    """(what was done, the manifest with one field removed or replaced)."""
    for path in fields(manifest):
        changed = copy.deepcopy(manifest)
        holder = changed
        for key in path[:-1]:
            holder = holder[key]
        value = holder.pop(path[-1])
        yield f"without {path}", copy.deepcopy(changed)
        for absurd in ABSURD[type(value)]:
            if isinstance(holder, list):
                holder[:1] = [absurd]
            else:
                holder[path[-1]] = absurd
            yield f"{path} = {absurd!r}", copy.deepcopy(changed)


def is_refused(out, what, command) -> bool:
    done = run_command_line(*command, EASYQUANT_TOOLS=str(BUILD / "bin"))
    if done.returncode == 0:
        return False
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 1 and len(errors) == 1 and str(out) in errors[0], (what, command, done)
    return True


@pytest.fixture
def commands(tmp_path):
    text = tmp_path / "text"
    text.write_text("x" * 40)
    return [
        ("run", "--prompt", "", "--max-new-tokens", "1"),
        ("eval", "--text", text, "--context", "4", "--max-windows", "1"),
        ("bench", "--prefill", "2", "--decode", "1", "--repeats", "1"),
        ("recipe", "show"),
    ]


def artifact_for_gpus(manifest):
    """The same with what an artifact for GPUs has beside it, as far as commands show it."""
    chip = {"ptx": "model.so", "machine_code": True, "kernels": 4, "launches": 9, "arena_bytes": 0}
    gpu = {"abi": 3, "program": "model.so", "fatbin": "model.so", "later": "sm_80", "max_rows": 8, "weights_bytes": 1}
    gpu |= {"cache": {"page_tokens": 64, "page_bytes": 64, "window_bytes": 0}, "cache_type": "f16"}
    files = manifest["files"] | {"weights.gpu.safetensors": manifest["files"]["weights.safetensors"]}
    cache = {"bits": 4, "group_size": 64, "residual": 128, "sinks": 4, "keys": "post-rope", "key_scales": "channel"}
    return manifest | {"gpu": gpu | {"chips": {"sm_80": chip}}, "files": files, "program": manifest["program"] | {"cache_scheme": cache}}


def test_damaged_fields(artifact, stories, tmp_path, commands):
    source = artifact(stories, "--scheme=W4A8", "--group-size=32")
    out = tmp_path / "out"
    shutil.copytree(source, out)
    manifest = json.loads((source / "manifest.json").read_text())
    manifest["sites"] = manifest["sites"][:1]
    manifest = artifact_for_gpus(manifest)
    sign_manifest(out, manifest)
    assert run_command_line("inspect", out).returncode == 0
    accepted = 0
    for index, (what, changed) in enumerate(damages(manifest)):
        sign_manifest(out, changed)
        seen = is_refused(out, what, ("inspect", out))
        accepted += not seen
        if not seen or index % 20 == 0:  # by the same reader; what it lets pass has to work or be an error of its own
            name, *options = commands[index % len(commands)]
            is_refused(out, what, ("recipe", "show", out) if name == "recipe" else (name, out, *options))
    assert index > 250 and accepted < index / 4, "most damage is seen"


def test_the_checksum_comes_first(artifact, stories, tmp_path, commands):
    out = tmp_path / "out"
    shutil.copytree(artifact(stories, "--scheme=W4A8", "--group-size=32"), out)
    manifest = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(manifest.replace('"bits": 4', '"bits": 2', 1))
    for name, *options in [("inspect",), *commands]:
        done = run_command_line(*((name, *options, out) if name == "recipe" else (name, out, *options)))
        assert done.returncode == 1 and "manifest.json: damaged: found checksum" in done.stderr and "compile the artifact again" in done.stderr
