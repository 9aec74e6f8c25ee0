# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""One default everywhere: what help states, what the pipeline does, and what the recipe records."""

import json
import re

import pytest
import typer

from calibrating import write_tokens
from easyquant.commands.cli import app
from easyquant.compiler.options import OPTIONS, CompileOptions
from helpers import ISA, compile_model, folder_contents, random_tokens, run_tool, with_slow

# Command lines that together read every option that makes a difference to a pass.
BASES = {
    "plain": (),
    "asymmetric": ("--scheme=W4A16_ASYM",),
    "float": ("--scheme=none",),
    "own-head": ("--scheme=W8A8", "--head=W5A16"),
    "composed": ("--scheme=W4A8", "--method=smoothquant+awq+gptq", "--activations=static", "--kv-scheme=int4"),
    "percentile": ("--scheme=W8A8", "--activations=static", "--observer=percentile", "--weight-observer=percentile"),
    "followed": ("--scheme=W8A8", "--activations=online-window"),
    "distilled": ("--scheme=W4A8", "--method=zeroquant+lkd"),
    "learned": ("--scheme=W4A8", "--method=signround"),
}
# Options whose default is another by what else is asked, as help says: the text, and what is meant on a base.
DEPENDENT = {
    # test_mixes.py tests those of mixes.
    "method": ("absmax; zeropoint for _ASYM; for mixes awq+signround where calibration text is given, else zeropoint",
               {"plain": "absmax", "asymmetric": "zeropoint"}),
    # test_kept_codes.py tests those of checkpoints that are quantized.
    "scheme": ("W8A8; keep where the checkpoint is quantized", {"plain": "W8A8"}),
    "activation-group-size": ("0; 32 with keepA8", {"plain": "0", "asymmetric": "0"}),
    "context": ("the model's", {"plain": "96"}),
    "group-size": ("128 below 8 bits", {"plain": "0", "asymmetric": "128", "composed": "128"}),
    "head-group-size": ("128 below 8 bits", {"own-head": "128"}),
    "scale-type": ("f16 of groups, f32 of rows", {"plain": "f32", "asymmetric": "f16", "composed": "f16"}),
    "activations": ("dynamic but for FP8 and NVFP4", {"plain": "dynamic", "asymmetric": "dynamic", "float": "dynamic"}),
    "activation-basis": ("hadamard where activations are int8, else plain",
                         {"plain": "hadamard", "asymmetric": "plain", "float": "plain", "composed": "hadamard"}),
    "sinks": ("keep where static or online activations are int8 by observer minmax or absmax, else none", {"plain": "none", "asymmetric": "none"}),
    # Without text here; with it, test_methods.py.
    "weight-observer": ("absmax; hessian-diagonal where calibration text is given and weights are in groups or activations float",
                        {"plain": "absmax", "asymmetric": "absmax"}),
    "head": ("int8 in quantized schemes, float in none, keep in keep", {"plain": "int8", "asymmetric": "int8", "float": "float"}),
}
# Options that decide nothing about the model, but what is read, written or shown. Only these of them state a default.
OUTSIDE = {"draft-head": "auto", "threads": "all CPUs", "closest": "no", "max-shard-bytes": "5 GB", "opset": "the least that its schemes need", "work": "OUT.work, removed at the end", "comm": "auto", "comm-timeout": "600"}
WORDS = {"yes": "true", "no": "false"}


def stated(text):
    """What a help text says is the default, or None."""
    found = re.search(r"\(default: ([^)]*)\)", " ".join(text.split()))
    return found and found[1].split(", all of them")[0].split(", a float cache")[0]


def options_of_compile():
    """{name: stated default or None} of `easyquant compile`."""
    command = typer.main.get_command(app).commands["compile"]
    found = {}
    for parameter in command.params:
        name = parameter.opts[0].removeprefix("--")
        default = stated(parameter.help or "")
        if default is None and parameter.show_default and parameter.default not in (None, False, []) and name != "model":
            default = str(getattr(parameter.default, "value", parameter.default))
        found[name] = default
    return found


def options_of_compiler():
    """{name: stated default or None} of easyquant-compile."""
    text = run_tool("easyquant-compile", "--help").stdout
    entries = re.findall(r"^  (?:-h,)?-{1,2}([a-z][a-z0-9-]*)([^\n]*(?:\n {20,}[^\n]*)*)", text, re.MULTILINE)
    found = {}
    for name, rest in entries:
        shown = re.match(r"(?:,--no-\S+)? ?\S*=(\S+)", rest)
        found[name] = shown[1] if shown else stated(rest)
    return found


COMPILE, COMPILER = options_of_compile(), options_of_compiler()
OWNERS = {option.name: option.owner for option in OPTIONS.values()}
SHARED = sorted(COMPILE.keys() & COMPILER.keys())


@pytest.fixture(scope="module")
def tokens(tmp_path_factory):
    return write_tokens(tmp_path_factory.mktemp("tokens") / "tokens.safetensors", [random_tokens(seed, 40, 97) for seed in range(4)])


@pytest.fixture(scope="module")
def expanded(tiny_llama, tokens):
    """The passes of easyquant-compile with all of their options, as easyquant-opt reads them."""
    known = {}

    def get(*options):
        if options not in known:
            printed = run_tool("easyquant-compile", tiny_llama, "-o", "out", f"--tokens={tokens}", *options, "--dump-pipeline")
            assert printed.returncode == 0, printed.stderr
            text = re.search(r"--pass-pipeline='(.*)'\n", printed.stdout)[1]
            shown = run_tool("easyquant-opt", "--dump-pass-pipeline", f"--pass-pipeline={text}", input="")
            known[options] = shown.stderr[: shown.stderr.index("\n)\n")]
        return known[options]

    return get


def explicit(name, value):
    if value in WORDS:
        return f"--{'' if value == 'yes' else 'no-'}{name}"
    return f"--{name}={value}"


def test_both_command_lines_state_the_same(expanded):
    assert len(SHARED) > 30
    for name in SHARED:
        theirs = COMPILER[name]
        assert COMPILE[name] == theirs or name in OUTSIDE, f"--{name}: {COMPILE[name]!r} and {theirs!r}"
    assert {name: COMPILE[name] for name in OUTSIDE} == OUTSIDE
    # No option is held by one alone but those that are about text, files and what is shown.
    assert COMPILE.keys() - COMPILER.keys() <= {"model", "output", "calib", "nsamples", "seqlen", "seed", "calib-bos", "lkd", "help"}


def takes(base, name):
    """Does a base name the method that reads the option?"""
    owner = OWNERS.get(name)
    method = next((option.partition("=")[2] for option in BASES[base] if option.startswith("--method=")), "absmax")
    return owner in (None, "static", "online") or owner in method.split("+")


CONSTANT = [name for name in SHARED if COMPILE[name] is not None and name not in DEPENDENT and name not in OUTSIDE]


@pytest.mark.parametrize("name", CONSTANT)
def test_what_help_states_is_what_the_passes_do(expanded, name):
    """Given with the default that help states, an option changes no option of any pass."""
    accepted = 0
    for key, base in BASES.items():
        if any(option.startswith(f"--{name}=") for option in base) or not takes(key, name):
            continue
        if name.endswith("-percentile") and base != BASES["percentile"] or name.startswith("kv-") and name not in ("kv-cache", "kv-scheme") and base != BASES["composed"]:
            continue  # refused elsewhere
        assert expanded(*base, explicit(name, COMPILE[name])) == expanded(*base), f"{name} on {base}"
        accepted += 1
    assert accepted


def test_what_is_given_reaches_a_pass(expanded):
    """The test above sees a difference where there is one: every such option is read by a pass."""
    others = {"yes": "no", "no": "yes", "0": "3", "4": "3", "16": "8", "32": "16", "0.9": "0.8", "64": "32", "128": "64", "200": "100", "0.01": "0.02", "0.5": "0.7", "99.99": "99.9",
              "W8A8": "W8A16", "dynamic": "static", "minmax": "mse", "absmax": "mse", "auto": "f16", "none": "int8", "cpu": "sm_80",
              "post-rope": "hadamard", "sinks": "loss", "channel": "token", "512": "64", "1": "2"}  # fmt: skip
    for name in CONSTANT:
        other = explicit(name, others[COMPILE[name]])
        free = [base for key, base in BASES.items() if takes(key, name) and not any(option.startswith(f"--{name}=") for option in base)]
        if name.startswith("kv-") or name.endswith("-percentile"):
            free = [BASES["percentile" if name.endswith("-percentile") else "plain" if name in ("kv-cache", "kv-scheme") else "composed"]]
        assert any(expanded(*base, other) != expanded(*base) for base in free), other


@pytest.mark.parametrize("name", DEPENDENT)
def test_defaults_that_depend_on_the_scheme(tiny_llama, tmp_path, name):
    text, expected = DEPENDENT[name]
    assert COMPILE[name] == text
    for base, value in expected.items():
        options = (*[option for option in BASES[base] if not option.startswith(("--method", "--activations"))], "--emit-ir-after=quantize")
        default = run_tool("easyquant-compile", tiny_llama, *options, cwd=tmp_path)
        given = run_tool("easyquant-compile", tiny_llama, *options, explicit(name, value), cwd=tmp_path)
        # A type of scales and the groups of a head are only recorded where they were asked for.
        unsaid = re.sub(r'scale_type = "f[0-9]+", |head_group_size = [0-9]+ : i64, ', "", given.stdout)
        assert default.returncode == given.returncode == 0 and default.stdout == unsaid, (base, given.stderr)


def test_passes_do_what_their_help_states():
    """Every option of every pass of ours with a value of its own states it."""
    text = run_tool("easyquant-opt", "--help").stdout
    sections = re.findall(r"^ +--((?:equant|easyquant|lm|convert-equant)-[a-z0-9-]+) +-   .*\n((?: {8}--.*\n)*)", text, re.MULTILINE)
    assert len(sections) > 25
    for flag, listed in sections:
        if not listed:
            continue
        shown = run_tool("easyquant-opt", "--dump-pass-pipeline", f"--{flag}", input="").stderr
        printed = dict(re.findall(r"([a-z-]+)=(\S*)(?=[ }])", shown[: shown.index("\n)\n")]))
        for name, description in re.findall(r"--([a-z-]+)(?:=<[^>]*>)? +- (.*)", listed):
            default, value = stated(description), printed.get(name, "")
            if default is None:
                assert value in ("", "-1", "0"), f"--{flag}={name} is {value} and does not say so"
            else:
                assert value == default or float(value) == float(default), f"--{flag}={name} states {default} and is {value}"


def test_help_lists_ours_first():
    ours, everything = (run_tool("easyquant-opt", option).stdout for option in ("--help", "--help-hidden"))
    assert "--equant-absmax" in ours and "--canonicalize" not in ours and "--help-hidden" in ours and len(ours.splitlines()) < 450
    assert "--equant-absmax" in everything and "--canonicalize" in everything


COMPOSITIONS = {
    "zeropoint": ("--scheme=W4A16_ASYM",), "symmetric": ("--scheme=W4A8", "--method=symmetric"),
    "zeroquant": ("--scheme=W8A8", "--method=zeroquant", "--mixed"), "smoothquant": ("--scheme=W8A8", "--method=smoothquant"),
    "search": ("--scheme=W8A8", "--method=smoothquant", "--alpha=search", "--activations=static"),
    "gptq": ("--scheme=W4A16", "--method=gptq"),
    "zeroquant+lkd": ("--scheme=W4A8", "--method=zeroquant+lkd"), "smoothquant+awq+gptq": BASES["composed"],
    "not-defaults": ("--scheme=W4A16", "--method=awq+gptq", "--no-act-order", "--static-groups", "--no-clip", "--group-size=16", "--hessian=loss",
                     "--head=float", "--ignore=re:layers.0"),
    "percentile": (*BASES["percentile"], "--weight-percentile=99.5", "--observer-percentile=99.5"),
    "hessian-diagonal": ("--scheme=W4A16_ASYM", "--weight-observer=hessian-diagonal", "--head=W5A16", "--head-group-size=16"),
    "ranges by loss": ("--scheme=W4A16_ASYM", "--weight-observer=hessian-diagonal", "--hessian=loss"),
    "online": ("--scheme=W8A8", "--activations=online-window", "--online-window=5", "--online-decay=0.5", "--online-tokens=16"),
    "signround": ("--scheme=W5A16", "--method=awq+signround", "--steps=6"),
    "two-level": ("--scheme=W6A8", "--group-size=16", "--scale-type=two-level"),
    "observer": ("--scheme=W8A8", "--activations=static", "--observer=percentile", "--observer-percentile=99"),
    "sinks": ("--scheme=W8A8_ASYM", "--activations=static", "--sinks=keep"), "no sinks": ("--scheme=W8A8", "--activations=static", "--sinks=none"),
    "online sinks": ("--scheme=W8A8", "--activations=online-ema"), "static in the plain basis": ("--scheme=W8A8", "--activations=static", "--activation-basis=plain"),
}  # fmt: skip


@pytest.mark.parametrize("name", with_slow(COMPOSITIONS, "zeropoint", "symmetric", "search", "gptq", "percentile", "two-level", "observer", "no sinks", "online", "signround",
                                           "online sinks", "static in the plain basis"))  # fmt: skip
def test_the_recipe_makes_the_artifact_again(tiny_llama, tokens, tmp_path, expanded, name):
    """To the byte; and what it records is what the passes did."""
    options = COMPOSITIONS[name]
    first = compile_model(tiny_llama, tmp_path / "first", *options, f"--tokens={tokens}", ISA)
    second = compile_model(tiny_llama, tmp_path / "second", f"--recipe={first / 'recipe.json'}", f"--tokens={tokens}", ISA)
    assert folder_contents(first) == folder_contents(second)
    recipe = json.loads((first / "recipe.json").read_text())
    weights = re.sub(r"equant-simquant-kv\{[^}]*\}", "", expanded(*options))  # whose sinks are others
    passes = dict(re.findall(r"([a-z-]+)=(\S+?)[ }]", weights))
    for key in ("hessian", "act_order", "static_groups", "clip", "damping", "search_samples", "epochs", "steps", "observer", "weight_percentile", "observer_percentile", "activations",
                "weight_observer", "sinks"):  # fmt: skip
        if key.replace("_", "-") not in passes:
            continue
        if key == "hessian" and key not in recipe and passes[key] == COMPILE[key]:
            continue  # of ranges, which only the loss changes
        if key in ("sinks", "weight_percentile", "observer_percentile") and key not in recipe:
            continue  # only recorded where it was asked for, or where ranges are by percentile
        if key == "observer" and recipe["activations"] == "dynamic":
            continue  # of equant-quantize, which has nothing to do with it
        found, expected = recipe[key], passes[key.replace("_", "-")]
        if isinstance(found, str):
            assert found == expected, key
        else:
            assert str(found).lower() == expected or found == float(expected), key


def test_options_of_python_are_those_of_the_compiler():
    """Every field of CompileOptions is an option of both command lines, under the same name."""
    for field in CompileOptions.__dataclass_fields__:
        name = field.replace("_", "-")
        assert name in COMPILE and name in COMPILER or name == "calibration", name
