# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Quantized KV caches end to end: against a numpy decoder, their memory, truncation, refusals, and on SmolLM2."""

import json

import numpy as np
import pytest
from oracles.checkpoint import read_folder, read_llama2c
from oracles.kv_cache import QuantizedCacheLlama
from oracles.llama import Llama

from command_line import run_command_line
from easyquant.evaluation.evaluate import calls_of_window, share_past_codes
from easyquant.runtime.artifact import Artifact
from helpers import BUILD, Runner, assert_refused, kl, random_gpt2, random_llama, random_tokens, run_tool, test_data, write_model

SMALL = ("--kv-group=16", "--kv-residual=32", "--kv-sinks=4")


def decode(runner: Runner, tokens):
    """The logits of every token, each decoded over the cache of those before it."""
    runner.session.reset()
    return np.concatenate([runner.session.score(np.array([token], np.int32)) for token in tokens])


@pytest.fixture(scope="module")
def story():
    """160 tokens of no story at all."""
    return random_tokens(4, 160, 512)


KEYS = {"channel": {}, "pre-rope": {"pre_rope": True}, "token": {"keys_per_token": True}}
EACH_ONCE = [("channel", 8), ("pre-rope", 4), ("token", 2)]


@pytest.mark.parametrize("keys, bits", [*EACH_ONCE, *(pytest.param(keys, bits, marks=pytest.mark.slow) for keys in KEYS for bits in (8, 4, 2) if (keys, bits) not in EACH_ONCE)])
def test_stories_match_a_numpy_decoder(runner, stories, story, keys, bits):
    """fp32 everywhere else, so that only codes at a tie may differ."""
    options = KEYS[keys]
    flags = [*(["--kv-keys=pre-rope"] if options.get("pre_rope") else []), *(["--kv-key-scales=token"] if options.get("keys_per_token") else [])]
    subject = runner(stories, "--scheme=none", "--kv-cache=f32", f"--kv-scheme=int{bits}", *SMALL, *flags)
    found = decode(subject, story)
    config, tensors = read_llama2c(test_data("stories260K.bin"))
    oracle = QuantizedCacheLlama(config, tensors, kv={"bits": bits, "group": 16, "residual": 32, "sinks": 4, **options})
    expected = oracle.logits(story)
    float_logits = decode(runner(stories, "--scheme=none"), story)
    # Quantization moves the logits; the artifact moves with the oracle.
    moved, apart = kl(float_logits, expected), kl(expected, found)
    assert moved > 1e-7
    assert apart < 0.02 * moved + 1e-9, (moved, apart)


@pytest.mark.parametrize("bits", [8, 4, 2])
@pytest.mark.parametrize("head_dim", [32, 48], ids=["H32", "H16"])
def test_rotated_keys_match_a_numpy_decoder(runner, workspace, bits, head_dim):
    """Channels of keys that are large in every token: behind H one scale a token serves all."""
    config, tensors = random_llama(27, hidden=64, ffn=64, heads=4, kv_heads=2, head_dim=head_dim, context=160)
    for layer in range(2):
        for name, factor in (("k_proj", 12), ("q_proj", 1 / 12)):
            weight = tensors[f"model.layers.{layer}.self_attn.{name}.weight"]
            weight[[head * head_dim + 5 for head in range(len(weight) // head_dim)]] *= factor
    folder = write_model(workspace / f"key-outliers-{bits}-{head_dim}", config, tensors)
    tokens, kv = random_tokens(4, 120, 97), {"bits": bits, "group": 16, "residual": 32, "sinks": 4}
    oracle = QuantizedCacheLlama(*read_folder(folder), kv={**kv, "hadamard": True}, dtype=np.float64)
    expected, plain = oracle.logits(tokens), Llama(*read_folder(folder), dtype=np.float64).logits(tokens)
    found = decode(runner(folder, "--scheme=none", "--kv-cache=f32", f"--kv-scheme=int{bits}", "--kv-keys=hadamard", *SMALL), tokens)
    moved, apart = kl(plain, expected), kl(expected, found)
    assert moved > 1e-7
    assert apart < 0.02 * moved + 1e-9, (moved, apart)
    per_token = QuantizedCacheLlama(*read_folder(folder), kv={**kv, "keys_per_token": True}, dtype=np.float64).logits(tokens)
    assert moved < kl(plain, per_token)


@pytest.mark.parametrize("options", [{}, {"pre_rope": True}], ids=["post-rope", "pre-rope"])
def test_a_part_of_each_head_is_rotated(runner, workspace, options):
    folder = workspace / f"part-{len(options)}"
    write_model(folder, *random_llama(28, arch="phi3", hidden=96, ffn=64, heads=4, kv_heads=2, context=160, partial_rotary_factor=0.67))
    # Heads of 24, of which 16 turn.
    tokens, kv = random_tokens(4, 120, 97), {"bits": 4, "group": 32, "residual": 32, "sinks": 4, **options}
    flags = ["--kv-group=32", "--kv-residual=32", "--kv-sinks=4", *(["--kv-keys=pre-rope"] if options else [])]
    found = decode(runner(folder, "--scheme=none", "--kv-cache=f32", "--kv-scheme=int4", *flags), tokens)
    expected = QuantizedCacheLlama(*read_folder(folder), kv=kv, dtype=np.float64).logits(tokens)
    moved, apart = kl(Llama(*read_folder(folder), dtype=np.float64).logits(tokens), expected), kl(expected, found)
    assert moved > 1e-7
    assert apart < 0.02 * moved + 1e-9, (moved, apart)


@pytest.mark.parametrize("inputs, step, read", [(48, 1, 12), (48, 16, 0), (52, 16, 4), (160, 7, 160 - 42)])
def test_who_attends_to_codes_is_known(runner, stories, story, inputs, step, read):
    """Caches of 2 and of 8 bits differ by their codes alone: in the logits of the tokens that see them, and of no other."""
    found = []
    for bits in (8, 2):
        subject = runner(stories, "--scheme=none", "--kv-cache=f32", f"--kv-scheme=int{bits}", *SMALL)
        subject.session.reset()
        found.append(np.concatenate([subject.session.score(story[begin:end]) for begin, end in calls_of_window(inputs, step)]))
    assert (found[0] != found[1]).any(axis=1).sum() == read
    assert share_past_codes({"sinks": 4, "residual": 32}, inputs, step) == read / inputs


def test_fewer_bits_say_less(runner, stories, story):
    reference = decode(runner(stories, "--scheme=none"), story)
    found = [kl(reference, decode(runner(stories, "--scheme=none", f"--kv-scheme=int{bits}", *SMALL), story)) for bits in (8, 4, 2)]
    assert found[0] < 0.1 * found[1] < 0.1 * found[2]


def test_chunks_see_the_cache_that_tokens_see(runner, stories, story):
    """A call of several tokens sees what the first of them would: the logits of that one are the same, however the past came."""
    subject = runner(stories, "--scheme=none", "--kv-cache=f32", "--kv-scheme=int4", *SMALL)
    one_by_one = decode(subject, story)
    for past in (31, 36, 37, 100):
        subject.session.reset()
        for token in story[:past]:
            subject.session.decode(token)
        chunk = np.array(story[past : past + 17], np.int32)
        np.testing.assert_allclose(subject.session.score(chunk)[0], one_by_one[past], atol=2e-4)


@pytest.mark.parametrize("kv_type, element", [("f32", 4), ("f16", 2)])
def test_memory_falls(artifact, stories, kv_type, element):
    """Two sessions show what a token takes; one shows what window and sinks take."""
    def sizes(*options):
        out = artifact(stories, "--scheme=none", f"--kv-cache={kv_type}", *options)
        program = json.loads((out / "manifest.json").read_text())["program"]
        small, large = (Runner(out, context=context, threads=1).session.bytes for context in (256, 512))
        cache = program["cache"]
        assert cache["page_tokens"] == 64
        assert large - small == 4 * cache["page_bytes"]
        assert Artifact.open(out).cache_bytes(500) == cache["window_bytes"] + 8 * cache["page_bytes"]
        return program

    elements = 5 * 2 * 4 * 8  # layers, keys and values, heads, dimensions
    full = sizes()
    assert (full["cache"]["window_bytes"], full["cache"]["page_bytes"], full["cache_scheme"]) == (0, 64 * elements * element, None)
    for bits in (8, 4):
        program = sizes(f"--kv-scheme=int{bits}", *SMALL)
        slices = 2 * element * 5 * 4  # those of values; keys have one for 16 tokens of each of 8 channels
        assert program["cache"]["page_bytes"] == 64 * (elements * bits // 8 + slices + slices * 8 // 16)
        assert program["cache"]["window_bytes"] == 36 * elements * element
        assert program["cache_scheme"] == {
            "bits": bits, "group_size": 16, "residual": 32, "sinks": 4, "keys": "post-rope", "key_scales": "channel"
        }  # fmt: skip


def test_truncated_sessions_go_on(runner, stories, story):
    """What has left the window comes back as its codes say: close to what was there, and the same for the same past."""
    subject = runner(stories, "--scheme=none", "--kv-cache=f32", "--kv-scheme=int8", *SMALL)
    expected = decode(subject, story)[60]
    for held in (61, 80, 150):
        subject.session.reset()
        for token in story[:held]:
            subject.session.decode(token)
        subject.session.truncate(60)
        np.testing.assert_allclose(subject.session.score(np.array(story[60:61], np.int32))[0], expected, atol=0.05)


@pytest.mark.parametrize("arguments, message", [
    (["--kv-scheme=int3"], "unknown KV scheme 'int3'; legal are none, int8, int4 and int2"),
    (["--kv-scheme=int4", "--kv-residual=100"], "KV residual of 100 tokens: expected a positive multiple of the group of 64"),
    (["--kv-scheme=int4", "--kv-group=24"], "KV group of 24: expected a power of two from 16 to 1024"),
    (["--kv-scheme=int4", "--kv-keys=rope"], "unknown place of KV keys 'rope'"),
    (["--kv-scheme=int4", "--kv-keys=hadamard"], "heads of 8 dimensions, which are no whole blocks of 16; take keys=post-rope"),
    (["--kv-scheme=int4", "--kv-keys=hadamard", "--kv-key-scales=channel"], "has scales of keys per token, found --kv-key-scales channel"),
    (["--kv-scheme=int4", "--kv-keys=hadamard", "--target=sm_80"], "heads of 8 dimensions, which are no whole blocks of 16; take keys=post-rope"),
    (["--kv-residual=128"], "need --kv-scheme int8, int4 or int2"),
])  # fmt: skip
def test_refuses_what_is_no_scheme(stories, tmp_path, arguments, message):
    assert_refused(run_tool("easyquant-compile", stories, "-o", tmp_path / "out", "--scheme=none", *arguments), message)
    assert list(tmp_path.iterdir()) == []


def test_refuses_keys_before_a_rotation_that_is_no_multiple(tmp_path):
    model = write_model(tmp_path / "phi3", *random_llama(28, arch="phi3", hidden=64, heads=4, kv_heads=2, partial_rotary_factor=0.75))
    arguments = ["--scheme=none", "--kv-scheme=int4", "--kv-keys=pre-rope"]
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out", *arguments),
                   "keys=pre-rope: layer 0: 12 dimensions of a head are rotated", "needs a multiple of 8", "keep keys behind it")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("width, message", [(48, "heads of 12 dimensions"), (64, "no keys that lm.rope rotates")])
def test_refuses_models_that_it_cannot_serve(tmp_path, width, message):
    model = write_model(tmp_path / "gpt2", *random_gpt2(width=width))
    arguments = ["--scheme=none", "--kv-scheme=int4", "--kv-keys=pre-rope"]
    assert_refused(run_tool("easyquant-compile", model, "-o", tmp_path / "out", *arguments), message)
    assert not (tmp_path / "out").exists()


def test_eval_decodes(artifact, stories, tmp_path):
    """In one large call of prefill none of the past is codes, of which eval warns; decoding attends to them, and the stamp says which it was."""
    tokenizer = f"--copy-file={stories / 'tokenizer.json'}"
    out = artifact(stories, "--scheme=none", "--kv-scheme=int2", *SMALL, tokenizer)
    reference = artifact(stories, "--scheme=none", tokenizer)
    text = tmp_path / "text"
    text.write_bytes(test_data("austen-6-novels.txt").read_bytes()[:4000])
    figures = {}
    for protocol in (["prefill"], ["decode", "--kv-chunk=4"]):
        file = tmp_path / f"{protocol[0]}.json"
        done = run_command_line(
            "eval", out, "--text", text, "--context=256", "--max-windows=2", "--reference", reference,
            f"--kv-protocol={protocol[0]}", *protocol[1:], "--json", file, EASYQUANT_TOOLS=str(BUILD / "bin"))  # fmt: skip
        assert done.returncode == 0, done.stderr
        figures[protocol[0]] = json.loads(file.read_text())
        assert ("warning: KV cache: nothing was quantized" in done.stderr) == (protocol == ["prefill"])
    assert figures["decode"]["kl_mean"] > 10 * figures["prefill"]["kl_mean"]
    assert figures["decode"]["protocol"]["kv_protocol"].startswith("decode: 4 tokens a call")
    assert figures["prefill"]["protocol"]["kv_protocol"].startswith("prefill: 256 tokens a call")
    assert figures["prefill"]["kv_codes_share"] == 0 and "86% of the tokens attended to codes" in figures["decode"]["protocol"]["kv_codes"]
    assert "int2 in groups of 16, newest 32 and first 4 f16" in figures["decode"]["protocol"]["kv_cache"]


@pytest.mark.slow
def test_keys_per_channel_are_better_than_per_token(artifact, smollm2, wikitext):
    """On SmolLM2, against its float cache; calls of 32 tokens attend to the codes of the past."""
    window = np.array(wikitext[0][:384], np.int32)

    def logits(*options):
        session = Runner(artifact(smollm2, "--scheme=W8A16", *options), context=384).session
        return np.concatenate([session.score(window[at : at + 32]) for at in range(0, len(window), 32)])

    reference = logits()
    found = {}
    for bits in (4, 2):
        for scales in ("channel", "token"):
            found[bits, scales] = kl(reference, logits(f"--kv-scheme=int{bits}", f"--kv-key-scales={scales}"))
    print(found)
    assert found[4, "channel"] < 0.02
    assert found[4, "channel"] < 0.8 * found[4, "token"]
    assert found[2, "channel"] < 0.5 * found[2, "token"]
