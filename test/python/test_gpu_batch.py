# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Batches on a GPU: simulated, and through a CUDA driver that simulates.

Every launch is for all sequences. Attention takes pieces of each, which are cut as for the sequence alone: it has the bits of a session that
is fed the same tokens in the same calls.
"""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from calibrating import write_tokens
from easyquant import _runtime
from easyquant.compiler.footprint import GPU_STEP_ROWS
from helpers import BUILD, random_gemma4, random_gpt2, random_llama, random_tokens, write_model

CHIP = "--target=sm_80"
VOCAB = 97  # of the seeded models; a GPT-2 has more
CONTEXT = 64
MODELS = {
    "llama": ("llama", ["--scheme=W8A8"]),
    "asymmetric llama": ("llama", ["--scheme=W8A8_ASYM"]),
    "qwen3": ("qwen3", ["--scheme=W4A8", "--group-size=32"]),
    "gpt2": ("gpt2", ["--scheme=W8A8"]),
    "deep llama": ("deep llama", ["--scheme=W8A8"]),
    "deep llama, int8 cache": ("deep llama", ["--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"]),
    "int8 cache": ("qwen3", ["--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"]),
    "int4 cache": ("llama", ["--scheme=W8A8", "--kv-scheme=int4", "--kv-group=16", "--kv-residual=16", "--kv-sinks=2"]),
    "long llama": ("long llama", ["--scheme=W8A8"]),
    "long llama, int8 cache": ("long llama", ["--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=32", "--kv-sinks=3"]),
    "long llama, int4 cache": ("long llama", ["--scheme=W8A8", "--kv-scheme=int4", "--kv-keys=hadamard", "--kv-group=16", "--kv-residual=16"]),
    "wide llama": ("wide llama", ["--scheme=W8A8"]),
    "gemma2": ("gemma2", ["--scheme=W8A8"]),
    "gemma2, int4 cache": ("gemma2", ["--scheme=W8A8", "--kv-scheme=int4", "--kv-group=16", "--kv-residual=16", "--kv-sinks=2"]),
    "gemma4": ("gemma4", ["--scheme=W8A8"]),
    "gemma4, int8 cache": ("gemma4", ["--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"]),
    "gemma4 of shared keys": ("gemma4 of shared keys", ["--scheme=W8A8"]),
    "int4 cache of rotated keys": ("llama", ["--scheme=W8A8", "--kv-scheme=int4", "--kv-keys=hadamard", "--kv-group=16", "--kv-residual=16"]),
}


@pytest.fixture(scope="module")
def open_model(artifact, workspace):
    """open_model(name, **place): a seeded model of MODELS, on the simulator."""
    made = {}

    def get(name, options=None, **place):
        arch, own = MODELS[name]
        if arch not in made:
            model = {
                "llama": lambda: random_llama(11, heads=4, kv_heads=2, head_dim=16),
                "qwen3": lambda: random_llama(12, arch="qwen3", heads=4, kv_heads=2, head_dim=16),
                "deep llama": lambda: random_llama(14, heads=4, kv_heads=2, head_dim=16, layers=24),
                "long llama": lambda: random_llama(15, heads=4, kv_heads=2, head_dim=16, layers=1, context=640),
                "wide llama": lambda: random_llama(16, heads=4, kv_heads=2, head_dim=16, layers=2, ffn=2052),
                "gpt2": lambda: random_gpt2(13),
                "gemma2": lambda: random_llama(17, arch="gemma2", heads=4, kv_heads=2, head_dim=16, attn_logit_softcapping=1.5, final_logit_softcapping=3.0),
                "gemma4": lambda: random_gemma4(18, layers=2, layer_types=["sliding_attention", "full_attention"], attention_k_eq_v=True,
                                                num_global_key_value_heads=1),
                "gemma4 of shared keys": lambda: random_gemma4(19, layers=3, layer_types=["sliding_attention", "full_attention", "full_attention"],
                                                               num_kv_shared_layers=1),
            }[arch]()
            made[arch] = write_model(workspace / f"{arch.replace(' ', '-')}-batch", *model)
        return _runtime.Model(str(artifact(made[arch], *(options or own), CHIP)), device="simt", **place)

    return get


class Pair:
    """A batch, and a session for each of its sequences that is told the same."""

    def __init__(self, model, sequences, same=np.testing.assert_array_equal, context=CONTEXT):
        self.model, self.same, self.context = model, same, context
        self.batch = _runtime.Batch(model, context=context, sequences=sequences)
        self.sessions, self.told = {}, {}

    def add(self, origin=None):
        id = self.batch.add() if origin is None else self.batch.fork(origin)
        self.sessions[id] = _runtime.Session(self.model, context=self.context)
        self.told[id] = []
        for call, argument in self.told.get(origin, []):
            self.tell(id, call, argument)
        return id

    def tell(self, id, call, argument):
        self.told[id].append((call, argument))
        return getattr(self.sessions[id], call)(argument)

    def remove(self, id):
        self.batch.remove(id)
        del self.sessions[id]

    def move(self, id):
        """By way of its bytes."""
        saved = self.batch.save(id)
        self.batch.remove(id)
        heir = self.batch.restore(saved)
        assert self.batch.save(heir) == saved
        self.sessions[heir], self.told[heir] = self.sessions.pop(id), self.told.pop(id)

    def truncate(self, id, position):
        self.batch.truncate(id, position)
        self.tell(id, "truncate", position)

    def append(self, prompts, all_logits=False):
        """prompts: tokens by sequence."""
        results = self.batch.append(list(prompts.items()), all_logits=all_logits)
        for (id, tokens), found in zip(prompts.items(), results, strict=True):
            expected = self.tell(id, "score" if all_logits else "prefill", np.asarray(tokens, np.int32))
            if all_logits:
                self.same(found, expected)
            else:
                assert found is None
            self.same(self.batch.logits(id), self.sessions[id].logits)
            assert self.batch.position(id) == self.sessions[id].position


def mix(pair, seed=0):
    """Prompts of different lengths in one step, all decode, some decode beside a prompt, and back."""
    ids = [pair.add() for _ in range(5)]
    lengths = [1, 7, 20, 33, 12]
    pair.append({id: random_tokens(seed + id, length, VOCAB) for id, length in zip(ids, lengths, strict=True)}, all_logits=True)
    pair.append({id: [3 + id] for id in ids})
    pair.append({id: [40 + id] for id in reversed(ids[1:])})
    pair.append({ids[0]: random_tokens(seed + 9, 18, VOCAB), ids[3]: [5], ids[1]: [6, 7]})
    fork = pair.add(ids[3])
    pair.append({ids[3]: [8], fork: random_tokens(seed + 10, 3, VOCAB)})
    for id in (ids[2], fork):
        pair.truncate(id, 11)
    pair.append({fork: [9], ids[2]: random_tokens(seed + 11, 9, VOCAB), ids[4]: [10]}, all_logits=True)
    pair.append({id: [11] for id in (*ids, fork)})


@pytest.mark.parametrize("name", [name for name in MODELS if "deep" not in name and "long" not in name])
def test_sequences_have_the_bits_of_sessions(open_model, name):
    mix(Pair(open_model(name), 6))


@pytest.mark.parametrize("name", [name for name in MODELS if "long" in name])
def test_sequences_around_the_ends_of_pieces(open_model, name):
    """Tokens are cut at multiples of 256, behind the sinks of a cache of codes where its tiles begin."""
    pair = Pair(open_model(name), 10, context=640)
    lengths = (254, 256, 257, 511, 512, 1, 100)
    ids = [pair.add() for _ in lengths]
    for id, length in zip(ids, lengths, strict=True):
        pair.append({id: random_tokens(id, length, VOCAB)})
    for token in range(4):
        pair.append({id: [token + id] for id in ids})
    fork = pair.add(ids[3])
    # A prompt, some rows, and single tokens in one step.
    pair.append({ids[0]: random_tokens(70, 20, VOCAB), ids[2]: random_tokens(71, 8, VOCAB), fork: [5], ids[3]: [6, 7], ids[4]: [8]})
    for id, position in ((fork, 300), (ids[4], 256), (ids[1], 255)):
        pair.truncate(id, position)
    pair.append({id: [9 + id, 3] for id in (*ids, fork)})
    pair.append({id: [9 + id] for id in (*ids, fork)})


def test_blocks_that_share_columns(open_model, artifact, workspace):
    """The linears behind wide rows have few columns of results: blocks share K in steps of more rows than a session has."""
    model = open_model("wide llama", simt_checks=True)
    folder = artifact(workspace / "wide-llama-batch", *MODELS["wide llama"][1], CHIP)
    kernels = json.loads((folder / "program.gpu.json").read_text())["chips"]["sm_80"]["kernels"]
    shared = [kernel for kernel in kernels if re.fullmatch(r"linear_40x2052_i8_q_accumulate_f32_mma_\d+x\d+x\d+_split\d", kernel["name"])]
    assert {re.search(r"mma_(\d+)x", kernel["name"])[1] for kernel in shared} >= {"32", "64"}
    pair = Pair(model, 7)
    ids = [pair.add() for _ in range(7)]
    # Steps of 6, 24, 7, 60 and 7 rows: counters are zero again behind each.
    pair.append({id: [id] for id in ids[:6]})
    pair.append({id: random_tokens(id, 12, VOCAB) for id in ids[:2]})
    pair.append({id: [3 + id] for id in ids})
    pair.append({id: random_tokens(20 + id, 20, VOCAB) for id in ids[:3]})
    pair.append({id: [40 + id] for id in ids})


def test_float_linears_are_within_the_rounding_of_their_sums(open_model):
    """Their kernels are chosen by the rows of the step."""
    model = open_model("llama", ["--scheme=none", "--kv-cache=f16"])
    mix(Pair(model, 6, lambda found, expected: np.testing.assert_allclose(found, expected, atol=1e-2 * np.abs(expected).max())))


@pytest.mark.parametrize("name", ["gpt2", "int8 cache"])
def test_nothing_is_found_by_the_checks(open_model, name):
    mix(Pair(open_model(name, simt_checks=True), 6), seed=50)


def test_nothing_is_found_by_the_checks_where_parts_are_combined(open_model):
    pair = Pair(open_model("long llama, int8 cache", simt_checks=True), 3, context=640)
    ids = [pair.add() for _ in range(3)]
    pair.append({id: random_tokens(id, 258 + id, VOCAB) for id in ids[:2]})
    pair.append({ids[0]: [1], ids[1]: [2, 3, 4], ids[2]: [5]})


@pytest.mark.parametrize("name", ["llama", "int4 cache"])
def test_sequences_come_and_go(open_model, name):
    random = np.random.default_rng(3)
    pair = Pair(open_model(name), 5)
    for _ in range(40):
        ids = list(pair.sessions)
        if len(ids) < 5 and random.integers(2):
            pair.add(random.choice(ids) if ids and random.integers(2) else None)
        elif ids and not random.integers(6):
            pair.remove(random.choice(ids))
        elif ids and not random.integers(3):
            pair.move(random.choice(ids))
        prompts = {}
        for id in random.permutation(list(pair.sessions)):
            room = CONTEXT - pair.batch.position(id)
            if not random.integers(6) or room == 0:
                pair.truncate(id, int(random.integers(pair.batch.position(id) + 1)))
            elif random.integers(4):
                count = 1 if random.integers(2) else int(random.integers(1, min(room, 30) + 1))
                prompts[int(id)] = random.integers(VOCAB, size=count, dtype=np.int32)
        if prompts:
            pair.append(prompts)


# --------------------------------------------------------------------------------------------------------------- launches


def launches_of(model, prompts):
    """The launches of the last step, by phase, of a call that appends `prompts` to as many new sequences and then a token to each."""
    batch = _runtime.Batch(model, context=CONTEXT, sequences=len(prompts), measure=True)
    ids = [batch.add() for _ in prompts]
    batch.append(list(zip(ids, prompts, strict=True)))
    before = batch.breakdown()
    batch.append([(id, [1]) for id in ids])
    after = batch.breakdown()
    return {phase: after[phase]["launches"] - before[phase]["launches"] for phase in after}, batch


@pytest.mark.parametrize("name", ["llama", "gpt2", "int8 cache"])
def test_all_is_launched_once_a_step(open_model, name):
    model = open_model(name)
    alone, _ = launches_of(model, [[1, 2, 3]])
    if name != "int8 cache":  # rotation and append, attention
        assert alone["attention"] == 2 * 2
    for count in (2, 8, 256):
        together, _ = launches_of(model, [[1] * (1 + i % 2) for i in range(count)])
        # Linears of many rows are other kernels, as many.
        assert together == alone


@pytest.mark.parametrize("name", ["llama", "int8 cache"])
def test_bytes_that_a_decode_step_uploads(open_model, name):
    """At most 64 a sequence and 32 a piece, of which a sequence has one here; and the heads of two lists, and what tables are filled up with."""
    for sequences in (1, 16, 256):
        batch = _runtime.Batch(open_model(name), context=CONTEXT, sequences=sequences, measure=True)
        ids = [batch.add() for _ in range(sequences)]
        batch.append([(id, [1, 2]) for id in ids])
        before = batch.breakdown()["load"]["bytes"]
        batch.append([(id, [3]) for id in ids])
        assert 0 < batch.breakdown()["load"]["bytes"] - before <= (64 + 32) * sequences + 2 * 32 + 5 * 16


def test_a_long_prompt_is_one_step(open_model):
    """A step has up to 4,096 rows, where CPUs take 512."""
    model = open_model("long llama")
    assert model.manifest["gpu"]["max_rows"] == GPU_STEP_ROWS == 4096
    launches = []
    for tokens in (40, 600):
        batch = _runtime.Batch(model, context=640, sequences=1, measure=True)
        assert batch.append([(batch.add(), random_tokens(1, tokens, VOCAB))]) == [None]
        launches.append({phase: cost["launches"] for phase, cost in batch.breakdown().items() if phase in ("attention", "gemm", "quantize")})
    assert launches[0] == launches[1]


def test_what_sequences_go_back_is_restored_in_a_launch_a_layer(open_model):
    model = open_model("int8 cache")
    batch = _runtime.Batch(model, context=CONTEXT, sequences=4, measure=True)
    ids = [batch.add() for _ in range(4)]
    batch.append([(id, random_tokens(id, 40, VOCAB)) for id in ids])

    def step():
        before = batch.breakdown()["attention"]["launches"]
        assert batch.append([(id, [1]) for id in ids]) == [None] * 4
        return batch.breakdown()["attention"]["launches"] - before

    alike = step()
    batch.truncate(ids[1], 30)
    layers = 2
    assert step() == alike + layers
    assert step() == alike
    for id in ids[:3]:
        batch.truncate(id, 20)
    assert step() == alike + layers


def check_steps_that_are_left(model):
    """Sequences are as they were; the model takes its time."""

    class Enough(Exception):
        pass

    pair = Pair(model, 6)
    ids = [pair.add() for _ in range(6)]
    pair.append({id: random_tokens(id, 1 + 4 * id, VOCAB) for id in ids})
    prompts = {id: random_tokens(20 + id, 30, VOCAB) for id in ids}
    for most in (1, 2):  # it is asked every 50 ms
        asked = []

        def progress(done, total, asked=asked, most=most):
            asked.append((done, total))
            if len(asked) == most:
                raise Enough

        with pytest.raises(Enough):
            pair.batch.append(list(prompts.items()), progress=progress)
        assert asked == [(0, 6 * 30)] * most
        assert [pair.batch.position(id) for id in ids] == [pair.sessions[id].position for id in ids]
    pair.append(prompts)  # sessions have not been left


@pytest.mark.parametrize("name", ["deep llama", "deep llama, int8 cache"])
def test_an_interrupted_step_leaves_all_sequences_as_they_were(open_model, name):
    check_steps_that_are_left(open_model(name, simt_checks=True))


# ------------------------------------------------------------------------------------------------------------------ cuda

DECODE = """
import sys
from easyquant import _runtime

model = _runtime.Model(sys.argv[1], device=sys.argv[2])
batch = _runtime.Batch(model, context=64, sequences=4)
ids = [batch.add() for _ in range(4)]
batch.append([(id, [1 + id, 5, 7 + id][:1 + id % 3]) for id in ids])
for count in (4, 4, 2, 4, 2, 1, 3):
    batch.append([(id, [int(batch.logits(id).argmax())]) for id in ids[-count:]])
print([int(batch.logits(id).argmax()) for id in ids], [float(batch.logits(id).max()) for id in ids])
"""


def run_on_both(script, out, folder):
    """What a script prints on the simulator, and on the driver that simulates, and how often it calls what of this."""
    log = folder / "calls"
    fake = {"LD_LIBRARY_PATH": str(BUILD / "unittests" / "fake-cuda"), "FAKE_CUDA_LOG": str(log), "FAKE_CUDA_IMAGE": str(out / "kernels.sm_80.ptx")}
    printed = {}
    for device in ("simt", "cuda"):
        result = subprocess.run([sys.executable, "-c", script, out, device], env=os.environ | fake, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        printed[device] = result.stdout
    return printed, dict(line.split() for line in log.read_text().splitlines())


@pytest.mark.parametrize("options", [
    ["--kv-scheme=int8", "--kv-group=16", "--kv-residual=16"], ["--activations=online-window", "--online-window=3", "--sinks=keep"],
])  # fmt: skip
def test_decode_steps_are_recorded_by_filled_up_numbers_of_sequences(artifact, workspace, tmp_path, options):
    model = write_model(workspace / f"llama-recorded-{options[0].strip('-').replace('=', '-')}", *random_llama(14, heads=4, kv_heads=2, head_dim=16))
    if "--sinks=keep" in options:
        options = [*options, f"--tokens={write_tokens(tmp_path / 'tokens.safetensors', [random_tokens(seed, 24, VOCAB) for seed in range(3)])}"]
    out = artifact(model, "--scheme=W8A8", *options, CHIP)
    printed, calls = run_on_both(DECODE, out, tmp_path)
    assert printed["cuda"] == printed["simt"]
    assert (calls["cuStreamBeginCapture"], calls["cuGraphLaunch"], calls["allocated"]) == ("3", "7", "0"), "of three sequences as of four"


MANY = """
import sys
from easyquant import _runtime

model = _runtime.Model(sys.argv[1], device=sys.argv[2])
batch = _runtime.Batch(model, context=64, sequences=50)
ids = [batch.add() for _ in range(50)]
batch.append([(id, [1 + id]) for id in ids])
for count in (50, 3, 49, 7, 33, 6, 25, 11, 5, 48, 1):
    batch.append([(id, [2 + id]) for id in ids[:count]])
print([float(batch.logits(id).max()) for id in ids])
"""


def test_numbers_of_sequences_share_recordings(artifact, workspace, tmp_path):
    """64, 4, 64, 8, 48, 8, 32, 12, 8, 48 and 1 rows: what fills them up changes nobody's bits."""
    model = write_model(workspace / "llama-many", *random_llama(16, heads=4, kv_heads=2, head_dim=16, layers=1))
    out = artifact(model, "--scheme=W8A8", "--kv-scheme=int8", "--kv-group=16", "--kv-residual=16", CHIP)
    printed, calls = run_on_both(MANY, out, tmp_path)
    assert printed["cuda"] == printed["simt"]
    assert (calls["cuStreamBeginCapture"], calls["cuGraphLaunch"], calls["allocated"]) == ("7", "12", "0")


def test_more_sequences_than_there_is_memory_for(open_model, artifact, workspace):
    model = open_model("llama")
    path = artifact(workspace / "llama-batch", *MODELS["llama"][1], CHIP)
    command = "import sys\nfrom easyquant import _runtime\n_runtime.Batch(_runtime.Model(sys.argv[1], device='cuda'), sequences=10000)"
    fake = {"LD_LIBRARY_PATH": str(BUILD / "unittests" / "fake-cuda"), "FAKE_CUDA_MEMORY": "40000000", "FAKE_CUDA_IMAGE": str(path / "kernels.sm_80.ptx")}
    result = subprocess.run([sys.executable, "-c", command, path], env=os.environ | fake, capture_output=True, text=True)
    assert result.returncode == 1 and model.device == "simt"
    for word in ("10000 sequences", "bytes on the device", "fewer sequences"):
        assert word in result.stderr
