# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""equant-search-bitwidths and `easyquant search`. The oracles are the model itself with every choice compiled into it by hand
(plans of that choice, dequantized weights, a float64 forward pass), and the enumeration of all choices."""

import importlib.util
import itertools
import json
import subprocess
import sys

import gguf
import numpy as np
import pytest
import yaml
from safetensors.numpy import load_file

from easyquant.evaluation.weights import read_site
from easyquant.runtime.artifact import Artifact
from helpers import assert_refused, folder_contents, random_llama, run_tool, write_byte_level, write_model
from oracles.llama import Llama
from oracles.schemes import Scheme
from page_structure import Structure
from searching import COMMON, TEXT, Searched, command, kl_of, rounded
from test_loss_statistics import gather


@pytest.fixture(scope="module")
def searched(tmp_path_factory):
    return Searched(tmp_path_factory.mktemp("search"))


@pytest.fixture(scope="module")
def report(searched):
    return searched.search("grid", "avg-bits=6,4.5")


def test_the_choice_is_the_best_of_all_by_the_table(report):
    tables = [[choice for choice in group["choices"] if "loss" in choice] for group in report["groups"]]
    assert len(tables) == 8
    for point in report["points"]:
        limit = point["budget"]["value"] * report["weights"] / 8
        best = min(sum(c["loss"] for c in choice) for choice in itertools.product(*tables) if sum(c["bytes"] for c in choice) <= limit)
        assert point["predicted"] == pytest.approx(best, rel=1e-9)
        assert point["bytes"] <= limit and point["avg_bits"] <= point["budget"]["value"]


def test_the_verified_loss_is_that_of_the_recipe(searched, report, tmp_path):
    for point in report["points"]:
        assert point["verified"] == pytest.approx(searched.loss_of(point["recipe"], tmp_path), rel=2e-3)


def test_losses_by_the_hessians_of_the_loss(searched, report):
    """tr(Hout E H E^T) / (4 tr(Hout)) of every format, from Hessians in a file and E of an oracle; from a file or a pass backward alike."""
    found = searched.search("by-loss", "avg-bits=6,4.5 sensitivity=loss")
    hessians, file = gather(searched.folder / "model", searched.folder / "loss", searched.tokens)
    again = searched.search("by-loss-of-a-file", f'avg-bits=6,4.5 sensitivity=loss statistics="{file}"')
    assert found["groups"] == again["groups"] and found["forwards"] > again["forwards"]
    for group in found["groups"]:
        for choice in group["choices"]:
            if "loss" not in choice:
                continue
            scheme, expected = found["formats"][choice["format"]], 0
            for site in group["sites"]:
                weight = searched.tensors[f"{site}.weight"]
                error = weight.astype(np.float64) - rounded(weight, {"bits": int(scheme["scheme"][1]), "group_size": scheme["group_size"]})
                inputs, outputs = (hessians[f"{site}/loss_{side}"].astype(np.float64) for side in ("inputs", "outputs"))
                expected += np.trace(outputs @ error @ inputs @ error.T) / (4 * np.trace(outputs))
            assert choice["loss"] == pytest.approx(expected, rel=1e-3), (group["name"], scheme["name"])
    for point, measured in zip(found["points"], report["points"]):
        assert point["predicted"] == pytest.approx(point["verified"], rel=0.5), "nats of the whole model"
        assert point["verified"] < 1.5 * measured["verified"]


def test_the_hessians_of_the_loss_know_weights_alone(searched):
    assert_refused(searched.run("by-loss-refused", "avg-bits=6 sensitivity=loss", formats="W4A8"), "sensitivity=loss", "W4A8", "rounds activations", "q_proj")
    assert_refused(searched.run("by-loss-refused", "avg-bits=6 sensitivity=loss objective=loss"), "sensitivity=loss predicts the divergence", "objective=kl")
    assert_refused(searched.run("by-loss-refused", "avg-bits=6 sensitivity=fisher"), "unknown sensitivity 'fisher'", "blocks or loss")


def test_the_float_perplexity_is_that_of_the_model(searched, report):
    model = Llama(searched.config, searched.tensors, dtype=np.float64)
    losses = []
    for sample in searched.samples:
        logits = model.logits(sample)[:-1]
        logits = logits - logits.max(axis=1, keepdims=True)
        losses.append(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(logits)), np.asarray(sample)[1:]])
    for point in report["points"]:
        assert point["float_perplexity"] == pytest.approx(float(np.exp(np.concatenate(losses).mean())), rel=1e-4)
        assert point["perplexity"] > 1


def test_sites_that_read_one_input_share_a_format(searched, report):
    assert [group["kind"] for group in report["groups"]] == 2 * ["self_attn.q_proj+k_proj+v_proj", "self_attn.o_proj", "mlp.gate_proj+up_proj", "mlp.down_proj"]
    single = searched.search("single", "avg-bits=6", "per-site")
    assert len(single["groups"]) == 14 and all(len(group["sites"]) == 1 for group in single["groups"])


def test_what_compile_makes_of_the_recipe_has_the_bytes_that_were_counted(searched, report):
    recipe = searched.folder / "grid" / "recipe.json"
    assert json.loads(recipe.read_text()) == report["points"][0]["recipe"]
    result = run_tool("easyquant-compile", searched.folder / "model", "--recipe", recipe, "--dry-run")
    assert result.returncode == 0, result.stderr
    plans = json.loads(result.stdout)
    assert plans["header_bytes"] + plans["other_bytes"] + sum(site["bytes"] for site in plans["sites"]) == report["points"][0]["weights_bytes"]
    names = [form["name"] for form in report["formats"]]
    chosen = {site: names[number] for group, number in zip(report["groups"], report["points"][0]["formats"]) for site in group["sites"]}
    for site in plans["sites"]:
        if site["name"] in chosen:
            assert chosen[site["name"]] == f"W{site['weight']['bits']}A16 g{site['weight']['group_size']}"


class InPlace(Scheme):
    """Values come as they are: the search rotates what o_proj reads, and leaves rows of v_proj."""

    def linear(self, weight, dtype, **basis):
        return super().linear(weight, dtype, **{key: value for key, value in basis.items() if key == "hadamard"})


INT8 = "equant-absmax{scheme=W4A8 group-size=32}"


@pytest.mark.parametrize("basis", ["plain", "hadamard"])
@pytest.mark.parametrize("group", [0, 32])
def test_losses_contain_activations(searched, basis, group):
    options = (f"activation-bases={basis}", f"activation-group-sizes={group}")
    found = searched.search(f"int8-{basis}-{group}", "avg-bits=9", *options, plan=INT8, formats="W8A8", group_sizes=32)
    scheme = InPlace(8, 8, 32, None, hadamard=512 if basis == "hadamard" else 0, input_group=group)
    exact, rounded = (Llama(searched.config, searched.tensors, *own, dtype=np.float64) for own in ((), (scheme,)))
    expected = float(np.concatenate([kl_of(exact.logits(sample), rounded.logits(sample)) for sample in searched.samples]).mean())
    assert found["points"][0]["verified"] == pytest.approx(expected, rel=0.03)
    weights_alone = Llama(searched.config, searched.tensors, InPlace(8, None, 32, None, hadamard=scheme.hadamard), dtype=np.float64)
    without = float(np.concatenate([kl_of(exact.logits(sample), weights_alone.logits(sample)) for sample in searched.samples]).mean())
    assert abs(expected - without) > 0.1 * expected  # else activations could be missing


def test_the_basis_and_the_groups_of_activations_are_chosen(searched, tmp_path):
    found = searched.search("bases", "avg-bits=6", "activation-group-sizes=0,32", "fit=awq,signround", plan=INT8, formats="W4A8,W8A8,NF4A16", group_sizes="32,64")
    names = {form["name"] for form in found["formats"]}
    assert {"W4A8 g32", "W4A8 g32 hadamard", "W4A8 g64 hadamard a32", "NF4A16 g32"} <= names and not any("NF4A16" in name and "hadamard" in name for name in names)
    for group in found["groups"]:
        measured = [choice for choice in group["choices"] if "loss" in choice]
        kinds = {(form["basis"], form["activation_group_size"]) for choice in measured for form in [found["formats"][choice["format"]]]}
        assert kinds == {("plain", 0), ("plain", 32), ("hadamard", 0), ("hadamard", 32)}
    recipe = found["points"][0]["recipe"]
    assert recipe["activation_basis"] == "hadamard"
    for rule in recipe["sites"]:
        # awq alone would give integers zero points, which were not measured.
        assert rule["method"] == ("awq+signround" if rule["scheme"] == "NF4A16" else "absmax+awq+signround")
    done = run_tool("easyquant-compile", searched.folder / "model", "--recipe", searched.folder / "bases" / "recipe.json", "--dry-run", "--with-text")
    assert done.returncode == 0, done.stderr
    plans = {site["name"]: site for site in json.loads(done.stdout)["sites"]}
    for group, number in zip(found["groups"], found["points"][0]["formats"]):
        form = found["formats"][number]
        for name in group["sites"]:
            has_basis = plans[name]["weight"].get("hadamard", 0) > 0
            assert has_basis == (form["basis"] == "hadamard"), name


def test_what_is_no_choice_of_activations(searched):
    assert_refused(searched.run("bad", "avg-bits=6", "activation-bases=rotated", plan=INT8, formats="W4A8"), "unknown activation basis 'rotated'", "plain or hadamard")
    assert_refused(searched.run("bad", "avg-bits=6", "activation-group-sizes=48", plan=INT8, formats="W4A8"), "groups of 48 activations", "32, 64 or 128")
    assert_refused(searched.run("bad", "avg-bits=6", "fit=absmax", plan=INT8, formats="W4A8"), "fit: 'absmax' is no method that fits weights")
    assert_refused(searched.run("bad", "avg-bits=6", plan=f"{INT8},equant-rotate", formats="W4A8"), "is in a rotated basis already", "run equant-rotate behind it")


@pytest.mark.parametrize("form", ["W5A16_ASYM", "W6A16_ASYM", "W4A16+two-level", "W5A16_ASYM+two-level"])
def test_bytes_are_those_that_are_stored(searched, form):
    """Zero points of 5 and 6 bits take 8, scales of two levels 6 and a share of 16."""
    name = f"stored-{form}"
    point = searched.search(name, "avg-bits=9", formats=form)["points"][0]
    result = run_tool("easyquant-compile", searched.folder / "model", "--recipe", searched.folder / name / "recipe.json", "--dry-run")
    assert result.returncode == 0, result.stderr
    plans = json.loads(result.stdout)
    assert plans["header_bytes"] + plans["other_bytes"] + sum(site["bytes"] for site in plans["sites"]) == point["weights_bytes"]
    assert all((rule.get("scale_type") == "two-level") == ("two-level" in form) for rule in point["recipe"]["sites"])


def test_a_size_is_that_of_the_weights_file(searched, report):
    bytes_ = report["points"][0]["weights_bytes"]
    sized = searched.search("sized", f"max-bytes={bytes_}")
    assert sized["points"][0]["formats"] == report["points"][0]["formats"]
    assert_refused(searched.run("small", "max-bytes=1000"), "cannot be met", "with the smallest formats the weights take", "outside of what is searched")


@pytest.mark.parametrize("tied", [True, False])
def test_the_head_is_a_group(searched, tmp_path, tied):
    model = searched if tied else Searched(tmp_path, tied=False)
    whole = model.search("head", "max-bytes=1000000", "search-head")
    head = whole["groups"][-1]
    assert (head["name"], head["layer"], len(whole["groups"]), len(whole["layers"])) == ("lm_head", None, 9, 2)
    for choice in head["choices"]:
        form = whole["formats"][choice["format"]]
        scheme = {"bits": int(form["scheme"][1]), "group_size": form["group_size"]}
        assert choice["loss"] == pytest.approx(model.divergence(model.tensors | {model.head: rounded(model.tensors[model.head], scheme)}), rel=5e-3)
    # A budget of bytes that 8 bits everywhere do not fit.
    limit = whole["fixed_bytes"] + sum(group["choices"][2]["bytes"] for group in whole["groups"])
    found = model.search("head", f"max-bytes={limit}", "search-head")
    point = found["points"][0]
    assert point["weights_bytes"] <= limit and point["verified"] == pytest.approx(model.loss_of(point["recipe"], tmp_path, with_head=True), rel=5e-3)
    assert point["recipe"]["sites"][-1]["match"] == "lm_head"
    result = run_tool("easyquant-compile", model.folder / "model", "--recipe", model.folder / "head" / "recipe.json", "--dry-run")
    plans = json.loads(result.stdout)
    assert plans["header_bytes"] + plans["other_bytes"] + sum(site["bytes"] for site in plans["sites"]) == point["weights_bytes"]
    assert_refused(model.run("head", "avg-bits=4", "search-head"), "avg-bits counts the layers' weights alone")


def test_models_that_run_together_have_the_losses_of_each_alone(searched):
    """More than run at once, with several formats of the head among them."""
    whole = searched.search("sizes", "max-bytes=1000000", "search-head")
    least, most = (whole["fixed_bytes"] + sum(pick(choice["bytes"] for choice in group["choices"]) for group in whole["groups"]) for pick in (min, max))
    sizes = [str(least + (most - least) * part // 9) for part in range(10)]
    together = searched.search("together", f"max-bytes={','.join(sizes)}", "search-head")["points"]
    assert len({point["formats"][-1] for point in together}) > 1 and len({point["verified"] for point in together}) > 8
    for index in (0, 4, 9):
        alone = searched.search(f"alone-{index}", f"max-bytes={sizes[index]}", "search-head")["points"][0]
        assert {**alone, "evaluations": 1} == {**together[index], "evaluations": 1}


def test_an_interrupted_search_ends_with_the_same_bytes(searched, report):
    first = folder_contents(searched.folder / "grid" / "work")
    assert sorted(name for name in first if "choice" not in name) == ["search_0.safetensors", "search_1.safetensors"]
    searched.search("again", "avg-bits=6,4.5")
    for name in ("search_1.safetensors", *(name for name in first if "choice" in name)):
        (searched.folder / "again" / "work" / name).unlink()
    (searched.folder / "again" / "recipe.json").unlink()
    searched.search("again", "avg-bits=6,4.5", "threads=1")
    assert folder_contents(searched.folder / "again" / "work") == first
    assert (searched.folder / "again" / "recipe.json").read_bytes() == (searched.folder / "grid" / "recipe.json").read_bytes()
    # Where all is known nothing runs.
    assert searched.search("again", "avg-bits=6,4.5")["forwards"] == 0


def test_greedy_ends_no_worse_than_it_began(searched, report):
    found = searched.search("greedy", "avg-bits=4.5", "strategy=greedy", "evaluations=12")["points"][0]
    assert found["verified"] <= report["points"][1]["verified"] and found["evaluations"] <= 12
    assert found["local_optimum"] is False and found["avg_bits"] <= 4.5


def test_learned_is_verified(searched, report):
    found = searched.search("learned", "avg-bits=4.5", "strategy=learned", "evaluations=8")["points"][0]
    assert found["verified"] <= report["points"][1]["verified"] and len(found["coefficients"]) == 4
    assert all(weight >= 0 for weight in found["coefficients"].values())


def test_entropy_runs_nothing(searched):
    statistics = searched.folder / "statistics.safetensors"
    plan = (f'equant-insert-observers{{statistics=histogram}},equant-calibrate{{tokens="{searched.tokens}" work="{searched.folder}/calibration" '
            f'statistics="{statistics}"}},equant-attach-calibration,equant-absmax{{scheme=W4A16 group-size=16}}')
    found = searched.search("entropy", "avg-bits=4.5", "strategy=entropy", plan=plan, tokens=False)
    point = found["points"][0]
    assert point["verified"] is None and "forwards" not in found and point["avg_bits"] <= 4.5
    assert not (searched.folder / "entropy" / "work").exists()


def test_gptq_is_measured_by_itself(searched, report):
    found = searched.search("gptq", "avg-bits=4.5", plan="equant-absmax{scheme=W4A16 group-size=16 methods=gptq}")
    nearest, rounded_ = (sum(c["error"] for g in r["groups"] for c in g["choices"] if "error" in c and c["format"] == 0) for r in (report, found))
    assert rounded_ < nearest
    assert all(rule["method"] == "gptq" for rule in found["points"][0]["recipe"]["sites"])


def test_the_weighted_rule_is_measured_by_itself(searched, report):
    found = searched.search("weighted", "avg-bits=4.5", plan="equant-absmax{scheme=W4A16 group-size=16 weight-observer=hessian-diagonal}")
    plain, weighted = (sum(g["choices"][0]["weight_error"] for g in r["groups"]) for r in (report, found))
    assert weighted < plain
    assert found["points"][0]["verified"] is not None and found["points"][0]["recipe"]["weight_observer"] == "hessian-diagonal"


@pytest.mark.parametrize("observer", ["absmax", "hessian-diagonal"])
def test_learned_tables_are_measured_as_learned(searched, tmp_path, observer):
    """The losses of a whole model are those of what is compiled with the same text, whose tables come from it."""
    found = searched.search(f"tables-{observer}", "avg-bits=4.5", formats="T2A16,T3A16,T4A16", plan=f"equant-absmax{{scheme=W4A16 group-size=16 weight-observer={observer}}}")
    point = found["points"][0]
    (tmp_path / "recipe.json").write_text(json.dumps(point["recipe"]))
    made = run_tool("easyquant-compile", searched.folder / "model", "-o", tmp_path / "out", f"--recipe={tmp_path / 'recipe.json'}", f"--tokens={searched.tokens}")
    assert made.returncode == 0, made.stderr
    artifact = Artifact.open(tmp_path / "out")
    sites = {site["name"]: site["weight"] for site in artifact.manifest["sites"] if site["weight"] and site["name"] != "lm_head"}
    assert {weight["codes"] for weight in sites.values()} == {"table"}
    rounded = {f"{name}.weight": read_site(artifact, name) for name in sites}
    assert point["verified"] == pytest.approx(searched.divergence({**searched.tensors, **rounded}), rel=2e-3)
    errors = [[choice["weight_error"] for choice in group["choices"]] for group in found["groups"]]
    assert all(two > three > four for two, three, four in errors)


def test_the_objective_may_be_the_loss(searched):
    found = searched.search("loss", "lambda=0.01", "objective=loss")["points"][0]
    assert found["budget"] == {"kind": "lambda", "value": 0.01} and found["verified"] is not None


@pytest.mark.parametrize("options, expected", [
    (["avg-bits=2"], ("a budget of 2 bits a weight cannot be met: the smallest formats take", "give a larger budget")),
    ([], ("no budget",)),
    (["avg-bits=6", "strategy=guess"], ("unknown strategy 'guess'; expected grid, entropy, greedy or learned",)),
    (["avg-bits=6", "objective=size"], ("unknown objective 'size'",)),
    (["avg-bits=6", "strategy=entropy"], ("needs histograms of activations",)),
    (["avg-bits=6", "strategy=learned", "objective=loss"], ("take objective kl",)),
])  # fmt: skip
def test_bad_options(searched, options, expected):
    assert_refused(searched.run("bad", *options), *expected)
    assert not (searched.folder / "bad" / "recipe.json").exists()


def test_formats_that_cannot_be(searched):
    assert_refused(searched.run("bad", "avg-bits=6", formats="W7A16"), "W7A16")
    plan = "equant-absmax{scheme=W4A8 group-size=32}"
    assert_refused(searched.run("bad", "avg-bits=6", "target=sm_80", formats="W3A8", group_sizes=16, plan=plan),
                   "format W3A8 g16", "no kernel for GPUs: weights as int3", "group sizes that are multiples of 32", "take it out of the formats")
    everything = searched.search("all", "avg-bits=6", "target=sm_80", formats="all", group_sizes=32, plan=plan)
    schemes = {form["scheme"] for form in everything["formats"]}
    assert {"W2A8", "W3A8", "W4A8_ASYM", "W8A8"} <= schemes and not any("A16" in scheme for scheme in schemes)


def test_a_format_of_checkpoints_stands_for_the_schemes_that_it_holds(searched, tmp_path):
    plan = "equant-absmax{scheme=Q4_0 head=Q8_0}"
    found = searched.search("gguf", "avg-bits=6", formats="gguf", group_sizes=32, plan=plan)
    used = {found["formats"][choice["format"]]["name"] for group in found["groups"] for choice in group["choices"]}
    assert used == {"Q4_0 g32", "Q4_1 g32", "Q5_0 g32", "Q5_1 g32", "Q8_0 g32", "IQ4_NL g32", "MXFP4A16 g32"}
    assert all(len(group["sites"]) == 1 for group in found["groups"])
    # The file has the bytes that were counted.
    recipe = searched.folder / "gguf" / "recipe.json"
    result = run_tool("easyquant-compile", searched.folder / "model", "--recipe", recipe, "--export=gguf", "--dry-run")
    assert result.returncode == 0, result.stderr
    sites = {site["name"]: site["bytes"] for site in json.loads(result.stdout)["sites"]}
    chosen = {}
    for group, number in zip(found["groups"], found["points"][0]["formats"]):
        [chosen[group["sites"][0]]] = [choice["bytes"] for choice in group["choices"] if choice["format"] == number]
    assert chosen == {name: sites[name] for name in chosen}


# ---------------------------------------------------------------------------------------------------------- the command line


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("search-command")
    (folder / "text.txt").write_text(TEXT)
    return folder


def test_a_recipe_that_export_takes(folder):
    model = write_byte_level(write_model(folder / "bytes", *random_llama(seed=5, hidden=64, ffn=128, heads=2, kv_heads=1, vocab=320, context=512)))
    text = ("--calib", folder / "text.txt", "--nsamples=2", "--seqlen=32")
    found = command(model, "--formats=gguf", "--max-size=72kB", "--search-samples=2", *text, "-o", folder / "types.yaml")
    assert found.returncode == 0, found.stderr
    line = " ".join(found.stdout.split())
    assert f"export with `easyquant export {model} --recipe {folder / 'types.yaml'} --format gguf -o OUT --calib" in line
    recipe = yaml.safe_load((folder / "types.yaml").read_text())
    assert {recipe["scheme"], recipe["head"]} == {"Q4_0", "Q8_0"} and {rule["scheme"] for rule in recipe["sites"]} <= {"Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4A16"}
    made = subprocess.run([sys.executable, "-m", "easyquant", "export", *map(str, (model, "--format=gguf", "--recipe", folder / "types.yaml", *text, "-o", folder / "types"))],
                          capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    tensors = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(folder / "types" / "model.gguf").tensors}
    assert tensors["blk.0.attn_q.weight"] in ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "IQ4_NL", "MXFP4")
    assert_refused(command(model, "--formats=gguf", "--activations=int8", "--max-size=72kB", *text, "-o", folder / "no.yaml"),
                   "gguf holds quantized weights beside float activations")


def test_a_recipe_that_compile_takes(stories, folder):
    done = command(stories, "--avg-bits", "5.5", "--calib", folder / "text.txt", *COMMON, "--fit", "none", "-o", folder / "recipe.yaml", "--report", folder / "report")
    assert done.returncode == 0, done.stderr
    for shown in ("Budgets", "bits a weight", "verified KL", "forward passes"):
        assert shown in done.stdout
    recipe = yaml.safe_load((folder / "recipe.yaml").read_text())
    assert recipe["scheme"] == "W4A16" and recipe["sites"]
    assert recipe["weight_observer"] == "hessian-diagonal"
    # With the windows that the ranges were weighed by.
    line = f"easyquant compile {stories} --recipe {folder / 'recipe.yaml'} --calib {folder / 'text.txt'} --nsamples 2 --seqlen 64`; the text weighs"
    assert line in done.stdout
    checked = subprocess.run([sys.executable, "-m", "easyquant", "recipe", "check", folder / "recipe.yaml", stories], capture_output=True, text=True)
    assert checked.returncode == 0, checked.stderr
    page = (folder / "report" / "index.html").read_text()
    assert "Perplexity against size" in page and "Loss against time" not in page
    structure = Structure(page)
    structure.check_elements_are_closed()
    structure.check_nothing_outside_is_referred_to()
    structure.check_ids()
    structure.check_colours()
    assert not (folder / "recipe.yaml.work").exists()


def test_defaults(stories, folder):
    """int8 activations, each basis, and weights that compile fits."""
    text = ("--calib", folder / "text.txt", "--search-samples", "2", "--seqlen", "64", "--nsamples", "8")
    done = command(stories, "--avg-bits", "5.5", *text, "-o", folder / "default.yaml", "--report", folder / "default-report")
    assert done.returncode == 0, done.stderr
    recipe = yaml.safe_load((folder / "default.yaml").read_text())
    assert recipe["scheme"] == "W4A8" and all("A8" in rule["scheme"] for rule in recipe["sites"])
    assert all(rule["method"].endswith("awq+signround") for rule in recipe["sites"] if rule["scheme"].startswith("W"))
    bases = {form["basis"] for form in json.loads((folder / "default-report" / "search.json").read_text())["formats"]}
    assert bases == {"plain", "hadamard"}
    assert f"easyquant compile {stories} --recipe {folder / 'default.yaml'} --calib {folder / 'text.txt'} --nsamples 8 --seqlen 64" in done.stdout
    assert_refused(command(stories, "--avg-bits", "5.5", *text, "-o", folder / "bad.yaml", "--scheme", "W4A8", "--activations", "float"), "give one of --scheme and --activations")


def test_entropies_weigh_nothing(stories, folder):
    """Ranges by weighted error, the default where there is text, would ask compile for text again."""
    done = command(stories, "--avg-bits", "5.5", "--strategy", "entropy", "--calib", folder / "text.txt", *COMMON, "-o", folder / "entropy.yaml")
    assert done.returncode == 0, done.stderr
    assert yaml.safe_load((folder / "entropy.yaml").read_text())["weight_observer"] == "absmax" and "--calib" not in done.stdout


@pytest.mark.slow
def test_artifacts_of_a_front(stories, folder):
    options = ("--avg-bits", "5", "--calib", folder / "text.txt", "--formats", "W4A8,W8A8", "--search-samples", "2", "--seqlen", "64", "--nsamples", "4", "--fit", "signround",
               "--artifacts", "--front", folder / "artifacts", "--work", folder / "artifacts.work")  # fmt: skip
    peer = write_peer(folder / "peer.gguf", stories, gguf.GGMLQuantizationType.Q8_0)
    done = command(stories, *options, "--report", folder / "artifacts-report", "--peer", peer)
    assert done.returncode == 0, done.stderr
    page, is_installed = (folder / "artifacts-report" / "index.html").read_text(), importlib.util.find_spec("llama_cpp") is not None
    assert "Loss against speed of prefill" in page and "compiled and fitted" in page
    assert ("llama-cpp-python is not installed" in done.stderr) == (not is_installed) == ("run on llama.cpp" not in page)
    Structure(page).check_ids()
    [point] = json.loads((folder / "artifacts" / "search.json").read_text())["points"]
    fitted = point["fitted"]
    assert fitted["artifact"] == "recipe-5" and point["bytes"] < fitted["weights_bytes"] <= point["weights_bytes"]
    assert 0 < fitted["loss"] < 1.2 * point["verified"] and fitted["decode_tokens_per_s"] > 0
    assert Artifact.open(folder / "artifacts" / "recipe-5").manifest["sites"]
    assert "Artifacts, fitted as their recipes say" in done.stdout
    again = command(stories, *options)
    assert again.returncode == 0 and "compiling" not in again.stderr
    assert json.loads((folder / "artifacts" / "search.json").read_text())["points"] == [point]
    # Another fit takes the place of the artifact; the folder for work, now not named, goes with all that is in it.
    options = options[: options.index("--work")]
    other = command(stories, *(("5" if word == "4" else word) for word in options))
    assert other.returncode == 0 and "compiling" in other.stderr, other.stderr
    assert not (folder / "artifacts.work").exists()
    assert_refused(command(stories, "--avg-bits", "5", "--calib", folder / "text.txt", "--artifacts", "-o", folder / "bad.yaml"), "--artifacts: give --front OUT")


def test_a_front(stories, folder):
    done = command(stories, "--avg-bits", "5,6", "--calib", folder / "text.txt", *COMMON, "--front", folder / "front")
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in (folder / "front").iterdir()) == ["recipe-5.yaml", "recipe-6.yaml", "search.json"]
    points = json.loads((folder / "front" / "search.json").read_text())["points"]
    assert points[0]["predicted"] > points[1]["predicted"]


def test_a_recipe_by_the_hessians_of_the_loss(stories, folder):
    by_loss = ("--avg-bits", "5.5", *COMMON, "--fit", "none", "--sensitivity", "loss")
    done = command(stories, *by_loss, "--calib", folder / "text.txt", "-o", folder / "by-loss.yaml", "--report", folder / "by-loss")
    assert done.returncode == 0, done.stderr
    assert "verified KL" in done.stdout and yaml.safe_load((folder / "by-loss.yaml").read_text())["sites"]
    Structure((folder / "by-loss" / "index.html").read_text()).check_elements_are_closed()
    shown = command(stories, *by_loss, "--dry-run")
    assert shown.returncode == 0 and "Hessians of the loss" in shown.stdout and "of memory" in shown.stdout and "losses of blocks" not in shown.stdout, shown.stderr


@pytest.mark.parametrize("options, expected", [
    (("--avg-bits", "4", "--max-size", "1MB", "-o", "r.yaml"), "give one of --avg-bits, --max-size and --lambda"),
    (("-o", "r.yaml"), "a search needs one budget"),
    (("--max-size", "much", "-o", "r.yaml"), "expected a size such as 93.5MB"),
    (("--avg-bits", "4"), "give -o RECIPE, or --front OUT"),
    (("--avg-bits", "4", "-o", "r.yaml"), "give --calib FILE"),
    (("--avg-bits", "4", "-o", "r.yaml", "--statistics", "s"), "--statistics: goes with --strategy entropy"),
])  # fmt: skip
def test_bad_command_lines(stories, tmp_path, options, expected):
    done = subprocess.run([sys.executable, "-m", "easyquant", "search", str(stories), *options], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 1 and expected in " ".join(done.stderr.split()), done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_measures_nothing(stories, tmp_path):
    done = command(stories, "--avg-bits", "4", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "a forward pass" in done.stdout


def write_peer(path, model, quantization, **changes):
    """A GGUF of a llama in a Hugging Face folder, matrices in a type of ggml; `changes`: to config.json."""
    config = json.loads((model / "config.json").read_text()) | changes
    names = {"input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down"}  # fmt: skip
    whole = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight", "lm_head.weight": "output.weight"}
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    writer.add_token_list(changes.get("tokens") or sorted(vocabulary, key=vocabulary.get))
    for name, tensor in load_file(model / "model.safetensors").items():
        if name not in whole:
            _, _, layer, site = name.removesuffix(".weight").split(".", 3)
            if site in ("self_attn.q_proj", "self_attn.k_proj"):  # ggml rotates pairs of neighbours
                heads = config["num_attention_heads" if "q_proj" in site else "num_key_value_heads"]
                tensor = tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)
            whole_name = f"blk.{layer}.{names[site]}.weight"
        else:
            whole_name = whole[name]
        kind = quantization if tensor.ndim == 2 and tensor.shape[1] % 32 == 0 else gguf.GGMLQuantizationType.F32
        writer.add_tensor(whole_name, gguf.quants.quantize(tensor.astype(np.float32), kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_peers_are_measured(stories, folder, tmp_path):
    peers = [write_peer(tmp_path / f"{kind}.gguf", stories, gguf.GGMLQuantizationType[kind]) for kind in ("F32", "Q8_0", "Q4_0")]
    done = command(stories, "--avg-bits", "5.5", "--calib", folder / "text.txt", *COMMON, "-o", tmp_path / "r.yaml", "--report", tmp_path / "report",
                   *(word for peer in peers for word in ("--peer", peer)))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "report" / "search.json").read_text())
    exact, eight, four = found["peers"]
    # The same model loses nothing, and has the perplexity that the search has found.
    assert exact["loss"] < 1e-6 < eight["loss"] < four["loss"]
    assert exact["perplexity"] == pytest.approx(found["points"][0]["float_perplexity"], rel=1e-4)
    assert four["bytes"] < eight["bytes"] < exact["bytes"] < peers[0].stat().st_size
    assert f">{four['loss']:.4f}</td>" in (tmp_path / "report" / "index.html").read_text()


@pytest.mark.parametrize("changes, expected", [
    ({"num_attention_heads": 4}, "heads: found 4, the model has 8"),
    ({"num_key_value_heads": 2}, "kv heads: found 2, the model has 4"),
    ({"tokens": [f"t{i}" for i in range(512)]}, "tokenizer: found the same number for 0% of the tokens"),
])  # fmt: skip
def test_peers_of_other_shapes_or_tokens(stories, tmp_path, changes, expected):
    peer = write_peer(tmp_path / "peer.gguf", stories, gguf.GGMLQuantizationType.Q8_0, **changes)
    done = command(stories, "--avg-bits", "5", "--dry-run", "--peer", peer)
    assert done.returncode == 1 and expected in " ".join(done.stderr.split()), done.stderr
    assert "give a file of the same model" in " ".join(done.stderr.split())


def test_a_peer_of_another_model(stories, tmp_path, tiny_llama):
    made = subprocess.run([sys.executable, "test/Inputs/make_checkpoint.py", str(tmp_path / "peer.gguf"), "--arch", "llama", "--format", "gguf"], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    (tmp_path / "text.txt").write_text(TEXT)
    done = command(stories, "--avg-bits", "5", "--calib", tmp_path / "text.txt", *COMMON, "-o", tmp_path / "r.yaml", "--peer", tmp_path / "peer.gguf")
    assert done.returncode == 1 and "give a file of the same model" in " ".join(done.stderr.split())
    assert not (tmp_path / "r.yaml").exists()
