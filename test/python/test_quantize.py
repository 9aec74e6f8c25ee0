# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant.quantize`, and what `easyquant.Model` makes of a model."""

import inspect
from pathlib import Path
from typing import get_args

import pytest

import easyquant
from easyquant.compiler.keywords import CALIBRATION, COMPILED, KEPT, CompileKeywords, ModelKeywords, compile_options
from easyquant.compiler.options import CompileOptions
from easyquant.support.errors import UserError
from command_line import run_command_line
from helpers import folder_contents

TEXT = ("calib", *CALIBRATION)


def test_keywords_are_those_of_the_table():
    assert set(ModelKeywords.__annotations__) == {*KEPT, *TEXT} and set(CompileKeywords.__annotations__) == {*COMPILED, *TEXT}
    assert not {"dry_run", "dump_pipeline", "emit_ir_after", "copy_file"} & set(COMPILED) and len(KEPT) > 40
    for name, option in COMPILED.items():
        kinds = {"switch": (bool,), "integer": (int,), "number": (float,), "text or number": (str, float)}
        expected = kinds.get(option.kind, (str, Path) if option.is_path else (str,))
        annotation = CompileKeywords.__annotations__[name]
        assert option.kind == "list" or (get_args(annotation) or (annotation,)) == expected, name
    parameters = inspect.signature(easyquant.quantize).parameters
    assert list(parameters)[:3] == ["model", "output", "progress"] and set(parameters) == {"model", "output", "progress", *COMPILED, *TEXT}
    assert "W4A16_ASYM" in get_args(get_args(parameters["scheme"].annotation)[0])


def test_is_what_the_command_makes(letters_model, tmp_path, capsys):
    options = {"scheme": "W4A8", "group_size": 8, "ignore": ["lm_head"], "activation_basis": "plain"}
    made = easyquant.quantize(letters_model, tmp_path / "made", **options)
    assert capsys.readouterr() == ("", ""), "a library is quiet"
    arguments = ("--scheme", "W4A8", "--group-size", 8, "--ignore", "lm_head", "--activation-basis", "plain")
    done = run_command_line("compile", letters_model, "-o", tmp_path / "command", *arguments)
    assert done.returncode == 0 and folder_contents(tmp_path / "made") == folder_contents(tmp_path / "command")
    assert made.path == tmp_path / "made" and made.description == "letters, W4A8 in groups of 8 (absmax)"
    assert made.bytes == sum(file.stat().st_size for file in made.path.iterdir()) and made.cost.wall_seconds > 0
    assert str(made).startswith(f"{made.path}: {made.description}, ") and str(made).endswith("of memory")
    with easyquant.Model(made) as model:
        assert len(model.generate("abc", max_tokens=5).tokens) == 5
    checkpoint = easyquant.quantize(letters_model, tmp_path / "checkpoint", scheme="W8A16", export="compressed-tensors", head="float")
    assert checkpoint.description == "checkpoint in compressed-tensors" and (checkpoint.path / "config.json").is_file()


def test_calibrates(letters_model, tmp_path):
    text = tmp_path / "text"
    text.write_text("abc def ghi " * 100)
    made = easyquant.quantize(str(letters_model), str(tmp_path / "out"), scheme="W4A16", group_size=8, method="gptq", calib=str(text), nsamples=2, seqlen=16)
    assert "(gptq)" in made.description
    assert compile_options({"calib": text, "nsamples": 3, "seqlen": 7, "seed": 1, "calib_bos": True}).calibration.arguments() == [
        "--calib", str(text), "--nsamples", "3", "--seqlen", "7", "--seed", "1", "--calib-bos",
    ]  # fmt: skip


def test_follows_and_stops(letters_model, tmp_path):
    seen = []
    easyquant.quantize(letters_model, tmp_path / "out", scheme="W8A8", progress=lambda *facts: seen.append(facts))
    assert len(seen) > 2 and all(isinstance(phase, str) and 0 <= done <= max(done, total) for phase, done, total in seen)

    def stop(*facts):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        easyquant.quantize(letters_model, tmp_path / "stopped", scheme="W8A8", progress=stop)
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("options, message", [
    ({"schema": "W8A8"}, "found the option 'schema', which does not exist here; did you mean scheme?"),
    ({"qqq": 1}, "found the option 'qqq', which does not exist here; see `easyquant compile --help`"),
    ({"dry_run": True}, "found the option 'dry_run', which does not exist here; `easyquant compile --dry-run` shows it"),
    ({"scheme": "w8a8"}, "scheme: found 'w8a8', expected one of none, keep, "),
    ({"scheme": 8}, "scheme: found 8, expected one of none"),
    ({"scheme": "w4a8"}, "; did you mean W4A8?"),
    ({"group_size": "8"}, "group_size: found '8', expected a whole number of at least 0"),
    ({"group_size": -8}, "group_size: found -8, expected a whole number of at least 0"),
    ({"hadamard_block": 1024}, "hadamard_block: found 1024, expected a whole number of at least 16 and at most 512"),
    ({"clip": 1}, "clip: found 1, expected True or False"),
    ({"ignore": "lm_head"}, "ignore: found 'lm_head', expected a list of texts"),
    ({"method": 3}, "method: found 3, expected a text"),
    ({"method": "gtpq"}, "did you mean 'gptq'?"),
    ({"alpha": None, "recipe": 3}, "recipe: found 3, expected a path"),
    ({"nsamples": 3}, "nsamples: goes with calib, the file of a text"),
    ({"calib": "nowhere.txt"}, "calib nowhere.txt: there is no such file; expected a text in UTF-8"),
    ({"calib": __file__, "nsamples": 0}, "nsamples: found 0, expected a whole number of at least 1"),
    ({"progress": 3}, "progress: found 3, expected True, None or a function"),
])  # fmt: skip
def test_mistakes_are_told(letters_model, tmp_path, options, message):
    with pytest.raises(UserError) as raised:
        easyquant.quantize(letters_model, tmp_path / "out", **options)
    assert message in str(raised.value) and not (tmp_path / "out").exists()


def test_none_is_the_default():
    assert compile_options(dict.fromkeys([*COMPILED, *TEXT])) == CompileOptions()


def test_a_model_is_compiled_once(letters_model, tmp_path, monkeypatch):
    monkeypatch.setenv("EASYQUANT_CACHE", str(tmp_path))
    with easyquant.Model(letters_model, threads=1, scheme="W8A8") as model:
        first = model.generate("abc", max_tokens=5)
        assert f"{tmp_path}/artifacts/letters-" in repr(model)
    with easyquant.Model(letters_model, threads=1, scheme="W8A8") as model:
        assert model.generate("abc", max_tokens=5) == first
    assert len(list(tmp_path.glob("artifacts/letters-*"))) == 1
    with pytest.raises(UserError, match="found the option 'force', which does not exist here; easyquant.quantize has it"):
        easyquant.Model(letters_model, force=True)
    with pytest.raises(UserError, match="is compiled already, so that scheme does not apply"):
        easyquant.Model(next(tmp_path.glob("artifacts/letters-*")), scheme="W8A8")
