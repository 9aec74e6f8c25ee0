# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant search`: finds for each part of a model the format that is worth its bytes, and writes a recipe."""

import contextlib
import json
import math
import re
import shlex
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer
import yaml

from easyquant.commands.search_fits import ROUNDS, Fit, measure_fits
from easyquant.compiler.calibration import CalibrationText, tokens_of
from easyquant.compiler.driver import compiler_progress, find_model, run_compiler
from easyquant.compiler.loss_memory import LossMemory
from easyquant.compiler.options import OPTIONS, TRANSFORMS, CompileOptions, check_table, choices_of, takes_option
from easyquant.compiler.plans import LOSS_FORWARDS, Plans, forward_seconds, loss_memory_of_text, plans_of
from easyquant.compiler.statistics import calibrate, quoted
from easyquant.evaluation import llama_cpp_speed
from easyquant.evaluation.search_peers import Peer, as_json, check_peers, measure_peers, with_speeds
from easyquant.runtime.device import ThreadsOption
from easyquant.runtime.ranks import ALONE, Comm, CommOption, CommTimeoutOption, Ranks, model_of_rank
from easyquant.support.errors import UserError
from easyquant.support.files import check_writable, scratch_folder, write_atomically, write_json
from easyquant.terminal import console

FRONT = (2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 8.0)  # average bits
UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
TIMES = {"decode_ms": "linears, ms a token", "prefill_ms": "linears, ms for 512 tokens"}
# The pairs of a layer that are run to the end, with their part of the output head, in passes of the float model over the samples.
ENDS_PER_LAYER = 2.0


class Strategy(str, Enum):
    grid = "grid"
    entropy = "entropy"
    greedy = "greedy"
    learned = "learned"


class Objective(str, Enum):
    kl = "kl"
    loss = "loss"


class Sensitivity(str, Enum):
    blocks = "blocks"
    loss = "loss"


class Activations(str, Enum):
    int8 = "int8"
    float = "float"


class Basis(str, Enum):
    plain = "plain"
    hadamard = "hadamard"


MEASURES = {"kl": "KL", "loss": "loss"}
# Formats of checkpoints, which stand for the schemes that they hold.
EXPORTS = choices_of("export") if OPTIONS else ()
# The scheme at which errors become losses, by the activations.
NEAR_4_BITS = {Activations.int8: "W4A8", Activations.float: "W4A16"}
# What fits the weights of a recipe where no method is asked for.
FIT = "awq+signround"


def scheme_like(formats: str, activations: Activations | None) -> str:
    """The default of --scheme for what is compiled: 4 bits, with the activations that are asked for, or those of the formats."""
    if activations is None:
        activations = Activations.int8 if formats == "all" or "A8" in formats else Activations.float
    return NEAR_4_BITS[activations]


def parse_size(text: str) -> int:
    """'93.5MB' → 93500000."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text.strip())
    if found is None or found[2].upper() not in UNITS:
        raise UserError(f"--max-size {text}: expected a size such as 93.5MB or 1.2GB")
    return int(float(found[1]) * UNITS[found[2].upper()])


def parse_numbers(option: str, text: str | None, kind: type) -> list:
    try:
        return [kind(part) for part in text.split(",")] if text else []
    except ValueError:
        raise UserError(f"{option} {text}: expected numbers with commas between them") from None


@dataclass(frozen=True)
class Budgets:
    """What is asked for; one kind has values."""

    avg_bits: list[float]
    max_bytes: list[int]
    lambdas: list[float]

    @property
    def count(self) -> int:
        return len(self.avg_bits) + len(self.max_bytes) + len(self.lambdas)

    def arguments(self) -> list[str]:
        named = (("avg-bits", self.avg_bits), ("max-bytes", self.max_bytes), ("lambda", self.lambdas))
        return [f"{name}={','.join(map(str, values))}" for name, values in named if values]


def read_budgets(avg_bits: str | None, max_size: str | None, penalty: str | None, is_front: bool) -> Budgets:
    if sum(option is not None for option in (avg_bits, max_size, penalty)) > 1:
        raise UserError("give one of --avg-bits, --max-size and --lambda")
    budgets = Budgets(
        parse_numbers("--avg-bits", avg_bits, float), [parse_size(part) for part in max_size.split(",")] if max_size else [], parse_numbers("--lambda", penalty, float)
    )  # fmt: skip
    if is_front:
        return budgets if budgets.count else Budgets(list(FRONT), [], [])
    if budgets.count != 1:
        raise UserError("a search needs one budget: --avg-bits B, --max-size 93.5MB or --lambda L; several of them go with --front OUT")
    return budgets


def read_limits(max_decode_ms: float | None, max_prefill_ms: float | None) -> list[str]:
    """As options of the pass."""
    given = {name: limit for name, limit in (("max-decode-ms", max_decode_ms), ("max-prefill-ms", max_prefill_ms)) if limit is not None}
    for name, limit in given.items():
        if not (limit > 0 and math.isfinite(limit)):
            raise UserError(f"--{name} {limit:g}: expected milliseconds above 0")
    return [f"{name}={limit!r}" for name, limit in given.items()]


def remove_work(folder: Path) -> None:
    """Files of others stay."""
    for file in (*folder.glob("*.safetensors"), *folder.glob("recipe-*.json")):
        file.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


@dataclass(frozen=True)
class Search:
    """One search: everything that the compiler is told."""

    model: Path
    options: CompileOptions
    request: list[str]  # options of equant-search-bitwidths, but for files
    statistics: Path | None  # entropy's
    ranks: Ranks = ALONE

    def help(self, work: Path) -> None:
        """The part of a rank that writes nothing, and gets from rank 0 what it lacks."""
        run_compiler([str(model_of_rank(self.model)), *self.options.arguments(), f"--work={work}", f"--search={' '.join(self.request)}"], ranks=self.ranks)

    def run(self, work: Path, report: Path) -> dict:
        arguments = [*self.request, f"report={quoted(report)}"]
        with contextlib.ExitStack() as stack:
            command = [str(self.model), *self.options.arguments(), f"--work={work}"]
            if self.statistics is not None:
                arguments.append(f"statistics={quoted(self.statistics)}")
            if self.options.calibration is not None:
                command.append(f"--tokens={stack.enter_context(tokens_of(self.model, self.options.calibration, expert_tokens=self.options.expert_tokens))}")
            follow = stack.enter_context(compiler_progress())
            run_compiler([*command, f"--search={' '.join(arguments)}"], follow, self.ranks)
        return json.loads(report.read_text())


def recipe_text(point: dict) -> bytes:
    """As people edit it."""
    return yaml.safe_dump(point["recipe"], sort_keys=False, allow_unicode=True).encode()


def describe_point(point: dict) -> tuple[str, ...]:
    verified = "" if point["verified"] is None else f"{point['verified']:.4f}"
    budget = point["budget"]
    asked = {"avg_bits": f"{budget['value']:g} bits", "max_bytes": console.human_bytes(budget["value"]), "lambda": f"λ = {budget['value']:g}"}[budget["kind"]]
    return asked, f"{point['avg_bits']:.3f}", console.human_bytes(point["weights_bytes"]), f"{point['predicted']:.4f}", verified, str(point["evaluations"])


def print_report(report: dict) -> None:
    names = [form["name"] for form in report["formats"]]
    for point in report["points"]:
        kinds: dict[str, dict[str, list[str]]] = {}
        for group, chosen in zip(report["groups"], point["formats"]):
            kinds.setdefault(group["kind"], {}).setdefault(names[chosen], []).append("" if group["layer"] is None else str(group["layer"]))
        table = console.table(f"{point['avg_bits']:.3f} bits a weight")
        for heading in ("sites", "format", "layers"):
            table.add_column(heading, overflow="fold")
        for kind, formats in kinds.items():
            for name in sorted(formats):
                table.add_row(kind, name, " ".join(formats[name]))
        console.out.print(table)
    measure = MEASURES[report["objective"]]
    table = console.table("Budgets")
    timed = {key: heading for key, heading in TIMES.items() if key in report["points"][0]}
    for heading in ("budget", "bits a weight", "weights", f"predicted {measure}", f"verified {measure}", "evaluations", *timed.values()):
        table.add_column(heading, justify="right")
    for point in report["points"]:
        table.add_row(*describe_point(point), *(f"{point[key]:.3f}" for key in timed))
    console.out.print(table)
    if "rank_correlation" in report:
        console.out.print(f"rank correlation of predicted and measured losses, {len(report['checks'])} pairs run to the end: {report['rank_correlation']:.3f}")
    if report.get("forwards"):
        console.out.print(f"this run took {report['forwards']:.1f} forward passes over the samples")
    for point in report["points"]:
        if (certified := point.get("local_optimum")) is not None:
            console.out.print("no change of one group, nor exchange between two, is better" if certified else "ended by --evaluations: changes that were not tried may be better")


def peers_with_speeds(peers: list[Peer], files: list[Path], fitted: dict, threads: int) -> list[Peer]:
    if not llama_cpp_speed.is_installed():
        console.note("llama-cpp-python is not installed: the page shows what other tools' files lose at which size, and not how fast they are")
        return peers
    return with_speeds(peers, files, fitted["prefill"], fitted["decode"], threads, ROUNDS)


def print_fits(report: dict) -> None:
    table = console.table("Artifacts, fitted as their recipes say")
    for heading in ("artifact", "weights", f"predicted {MEASURES[report['objective']]}", "verified", "fitted", "prefill, tokens/s", "decode, tokens/s"):
        table.add_column(heading, justify="right")
    for point in report["points"]:
        fitted = point["fitted"]
        verified = "" if point["verified"] is None else f"{point['verified']:.4f}"
        speeds = (f"{fitted['prefill_tokens_per_s']:.0f}", f"{fitted['decode_tokens_per_s']:.1f}")
        table.add_row(fitted["artifact"], console.human_bytes(fitted["weights_bytes"]), f"{point['predicted']:.4f}", verified, f"{fitted['loss']:.4f}", *speeds)
    console.out.print(table)


def closing_line(model: Path, recipe: Path, text: CalibrationText | None, export: str | None, expert_tokens: int | None) -> str:
    """How to compile or export what was found. What the recipe needs of text is the compiler's to say."""
    plans = plans_of(model, CompileOptions(recipe=recipe, calibration=text))
    command = ["easyquant", "export" if export else "compile", str(model), "--recipe", str(recipe)]
    command += ["--format", export, "-o", "OUT"] if export else []
    verb = command[1]
    if not plans.text_passes:
        return f"{verb} with `{shlex.join(command)}`"
    command += text.arguments() if text else ["--calib", "FILE"]
    command += [f"--expert-tokens={expert_tokens}"] if expert_tokens else []
    reason = "" if plans.methods else "; the text weighs the ranges of its weights"
    return f"{verb} with `{shlex.join(command)}`{reason}"


def print_dry_run(plans: Plans, options: CompileOptions, samples: int, length: int, formats: str, group_sizes: str, hessians: LossMemory | None) -> None:
    """`hessians`: those of the loss, where they are gathered in the place of losses of blocks."""
    layers = plans.model["num_layers"]
    table = console.pairs()
    table.add_row("sites", str(len(plans.sites)))
    table.add_row("formats", f"{formats} in groups of {group_sizes}")
    if hessians is None:
        table.add_row("losses of blocks", f"about {ENDS_PER_LAYER * layers:.0f} forward passes")
    else:
        table.add_row("Hessians of the loss", f"about {LOSS_FORWARDS:.0f} forward passes, and {console.human_bytes(hessians.needed)} of memory")
    table.add_row("a format everywhere", "about 2 forward passes, and rounding the model")
    table.add_row("a forward pass", f"about {forward_seconds(plans, samples * length):.1f} s on this machine")
    console.out.print(table)


@console.command
@takes_option("expert-tokens")
def search_command(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="A Hugging Face folder (safetensors, config.json) or a GGUF file.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="RECIPE", help="The recipe file to write (YAML).")] = None,
    front: Annotated[Path | None, typer.Option(metavar="OUT", help="A folder for the recipes of several budgets, from one set of measurements.")] = None,
    avg_bits: Annotated[str | None, typer.Option(metavar="B", help="Budget: bits a weight of the layers' linears, scales and zero points counted.")] = None,
    max_size: Annotated[str | None, typer.Option(metavar="SIZE", help="Budget: the weights file, as 93.5MB.")] = None,
    max_decode_ms: Annotated[float | None, typer.Option("--max-decode-ms", metavar="MS", help="With a budget: milliseconds that the linears may take for a token on this machine's CPU.")] = None,
    max_prefill_ms: Annotated[float | None, typer.Option("--max-prefill-ms", metavar="MS", help="The same for 512 tokens of a prompt.")] = None,
    penalty: Annotated[str | None, typer.Option("--lambda", metavar="L", help="Instead of a budget: nats of loss that one more bit a weight must save, such as 0.01; less makes larger models.")] = None,
    formats: Annotated[str, typer.Option(metavar="LIST", help="Schemes to choose from, with commas between them, or all; or a format of export, such as gguf, for all that it holds.")] = "all",
    group_sizes: Annotated[str, typer.Option(metavar="LIST", help="Group sizes to choose from; 0: a whole row.")] = "32,64,128",
    activations: Annotated[Activations | None, typer.Option(help="The activations of --formats all: int8 with a scale a token, which prefill fast, or float. (default: int8)", show_default=False)] = None,
    activation_basis: Annotated[Basis | None, typer.Option("--activation-basis", help="One basis for all sites. (default: searched where activations are int8, else plain)", show_default=False)] = None,
    activation_group_sizes: Annotated[str | None, typer.Option("--activation-group-sizes", metavar="LIST", help="Columns of a token that share a scale, to choose from: 32, 64, 128; 0: a whole token. (default: 0, or 0,32 with a limit of time)", show_default=False)] = None,
    strategy: Annotated[Strategy, typer.Option(help="How to choose: grid is optimal if losses add up, greedy and learned run whole models, entropy runs nothing.")] = Strategy.grid,
    objective: Annotated[Objective, typer.Option(help="What is lost: KL divergence from the float model, or loss of the next token.")] = Objective.kl,
    sensitivity: Annotated[Sensitivity, typer.Option(help="Where losses of layers come from: blocks that are run, or the Hessians of the model's loss, with float activations alone.")] = Sensitivity.blocks,
    scheme: Annotated[str | None, typer.Option(metavar="SCHEME", help="The scheme at which errors are turned into losses: one near the sizes wanted. (default: W4A8, with float activations W4A16; that of a format of export)", show_default=False)] = None,
    method: Annotated[str | None, typer.Option(metavar="METHOD", help="What transforms and rounds weights, in the search and when the recipe is compiled, as for compile.")] = None,
    fit: Annotated[str | None, typer.Option(metavar="METHOD", help=f"What fits weights only when the recipe is compiled; none: nothing. (default: {FIT}, with --method none)", show_default=False)] = None,
    weight_observer: Annotated[str | None, typer.Option(metavar="RULE", help="The ranges of weights, with the defaults of compile.")] = None,
    head: Annotated[str | None, typer.Option(metavar="SCHEME", help="The scheme of the output head and a tied embedding, which are then not searched.")] = None,
    head_group_size: Annotated[int | None, typer.Option(min=0, metavar="N", help="Columns of the head that share a scale, as for compile.")] = None,
    target: Annotated[str, typer.Option(metavar="TARGETS", help="What must have kernels; sizes are those of the first.")] = "cpu",
    per_site: Annotated[bool, typer.Option("--per-site", help="A format for each site, which then may not fuse with its neighbours.")] = False,
    evaluations: Annotated[int, typer.Option(min=1, metavar="N", help="Whole models that greedy and learned may run for each budget.")] = 64,
    calib: Annotated[Path | None, typer.Option("--calib", metavar="FILE", help="The text to measure and calibrate on, UTF-8.")] = None,
    search_samples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows of the text that losses are measured on.")] = 4,
    nsamples: Annotated[int, typer.Option(min=1, metavar="N", help="Windows that methods are calibrated on.")] = 64,
    seqlen: Annotated[int, typer.Option(min=2, metavar="N", help="Tokens of a window.")] = 1024,
    seed: Annotated[int, typer.Option(min=0, metavar="S", help="Chooses the windows.")] = 0,
    calib_bos: Annotated[bool, typer.Option("--calib-bos", help="Begin every window with the beginning-of-text token.")] = False,
    statistics: Annotated[Path | None, typer.Option(metavar="FILE", help="Histograms for entropy, of `easyquant calibrate --statistic histogram`; for --sensitivity loss those of fisher, of the same windows.")] = None,
    artifacts: Annotated[bool, typer.Option("--artifacts", help="With --front: also compile each recipe, with what fits it, into a folder beside it, and measure what it loses and how fast it is.")] = False,
    report: Annotated[Path | None, typer.Option(metavar="DIR", help="A folder for a page with figures, and search.json.")] = None,
    peers: Annotated[list[Path], typer.Option("--peer", metavar="FILE.gguf", help="With --report: files of other tools, of the same model, whose sizes and losses are shown beside. Repeatable.")] = [],
    work: Annotated[Path | None, typer.Option(metavar="DIR", help="Keep what is measured here. (default: OUTPUT.work, removed at the end)")] = None,
    threads: ThreadsOption = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what a search would take, and stop.")] = False,
    comm: CommOption = Comm.auto,
    comm_timeout: CommTimeoutOption = None,
    expert_tokens: int | None = None,
) -> None:
    """Find for each part of a model the format that is worth its bytes.

    A search that was stopped goes on where it was: give the same command again.

    Example: [bold]easyquant search SmolLM2-135M --avg-bits 4 --calib novels.txt -o recipe.yaml[/bold]
    """
    check_table()
    budgets = read_budgets(avg_bits, max_size, penalty, front is not None)
    limits = read_limits(max_decode_ms, max_prefill_ms)
    if (output is None) == (front is None) and not dry_run:
        raise UserError("give -o RECIPE, or --front OUT for several budgets")
    if calib is None and statistics is None and not dry_run:
        raise UserError("a search needs text to measure on: give --calib FILE" + (", or --statistics FILE" if strategy == Strategy.entropy else ""))
    by_loss = sensitivity == Sensitivity.loss
    if statistics is not None and strategy != Strategy.entropy and not by_loss:
        raise UserError("--statistics: goes with --strategy entropy or --sensitivity loss")
    if by_loss and calib is None and not dry_run:
        raise UserError("--sensitivity loss: give --calib FILE, which choices are verified on")
    if artifacts and (front is None or calib is None):
        raise UserError("--artifacts: give --front OUT, where artifacts go, and --calib FILE, which weights are fitted on")
    sizes = parse_numbers("--group-sizes", group_sizes, int)
    if scheme is not None and activations is not None:
        raise UserError("give one of --scheme and --activations, which stands for a scheme")
    export = formats if formats in EXPORTS else None
    if scheme is None and not (export and activations is None):  # else that of the format
        scheme = scheme_like(formats, activations)
    activation_sizes = parse_numbers("--activation-group-sizes", activation_group_sizes or ("0,32" if limits else "0"), int)
    fits = (FIT if method is None and strategy != Strategy.entropy else "none") if fit is None else fit
    # Entropy runs next to nothing: rank 0 does it alone.
    ranks = Ranks(Comm.none if strategy == Strategy.entropy else comm, comm_timeout)
    is_helper = Ranks(comm).rank > 0
    if is_helper and (dry_run or strategy == Strategy.entropy):
        return
    if not is_helper:
        check_writable(output)
        model = find_model(model)
    options = CompileOptions(scheme=scheme, method=method, weight_observer=weight_observer, target=None if export else target, threads=threads or None)
    options.head, options.head_group_size, options.export = head, head_group_size, export
    transforms = TRANSFORMS & set((method or "").split("+"))
    # Losses are measured on windows that were asked for; what transforms weights reads more.
    options.expert_tokens = expert_tokens if transforms else None
    if calib is not None:
        options.calibration = CalibrationText(calib, max(nsamples, search_samples) if transforms else search_samples, seqlen, seed, calib_bos)
    # Average bits are of the layers alone, and entropy has no losses of the head.
    search_head = head is None and not budgets.avg_bits and strategy != Strategy.entropy
    request = [
        f"formats={formats}", f"group-sizes={','.join(map(str, sizes))}", f"target={target}", f"strategy={strategy.value}", f"objective={objective.value}", f"sensitivity={sensitivity.value}",
        f"activation-group-sizes={','.join(map(str, activation_sizes))}", f"search-samples={search_samples}", f"evaluations={evaluations}",
        f"per-site={str(per_site).lower()}", f"search-head={str(search_head).lower()}", *budgets.arguments(), *limits,
    ]  # fmt: skip
    if activation_basis is not None:
        request.append(f"activation-bases={activation_basis.value}")
    if fits != "none":
        request.append(f"fit={fits.replace('+', ',')}")
    place = output or front or Path("search")
    folder = work or place.with_name(place.name + ".work")
    if is_helper:
        Search(model, options, request, None, ranks).help(folder)
        if work is None:
            remove_work(ranks.own_folder(folder))
        return
    plans = plans_of(model, options)
    known_peers = check_peers(peers, model, plans)
    gathers = by_loss and statistics is None
    hessians = loss_memory_of_text(plans, CalibrationText(calib, search_samples, seqlen), ranks=1) if gathers else None
    if dry_run:
        return print_dry_run(plans, options, search_samples, seqlen, formats, group_sizes, hessians)
    if hessians is not None:
        hessians.check()
    console.note_new_folder(place.parent)
    folder.mkdir(parents=True, exist_ok=True)
    if strategy == Strategy.entropy and statistics is None:
        statistics = folder / "statistics.safetensors"
        calibrate(model, options.calibration, statistics, ["histogram"], [], folder / "calibration", threads)
    with scratch_folder() as scratch:
        found = Search(model, options, request, statistics, ranks).run(folder, scratch / "search.json")
    print_report(found)
    if report is not None:
        measured = list(known_peers.values())
        if known_peers and options.calibration is not None and found["points"][0]["verified"] is not None:
            measured = measure_peers(known_peers, model, options.calibration, search_samples, objective.value, threads)
        found["peers"] = as_json(measured)
    # What compile reads: the windows that ranges were weighed by, or those that are to fit weights.
    text = options.calibration if calib is None or fits == "none" else CalibrationText(calib, nsamples, seqlen, seed, calib_bos)
    if front is not None:
        front.mkdir(parents=True, exist_ok=True)
        recipes = [front / f"recipe-{point['budget']['value']:.12g}.yaml" for point in found["points"]]
        for recipe, point in zip(recipes, found["points"]):
            write_atomically(recipe, recipe_text(point))
        if artifacts:
            fits = Fit(model, text, options.calibration, search_samples, objective.value, threads, expert_tokens)
            for point, fitted in zip(found["points"], measure_fits(fits, recipes, folder)):
                point["fitted"] = fitted
            print_fits(found)
            if known_peers and report is not None:
                found["peers"] = as_json(peers_with_speeds(measured, list(known_peers), found["points"][0]["fitted"], threads))
        write_json(front / "search.json", found)
    if output is not None:
        write_atomically(output, recipe_text(found["points"][0]))
        console.out.print(f"{output}: {closing_line(model, output, text, export, expert_tokens)}", markup=False, soft_wrap=True)
    if report is not None:
        from easyquant.reports import search_report

        report.mkdir(parents=True, exist_ok=True)
        write_json(report / "search.json", found)
        search_report.write(report / "index.html", found, model.name, calib.name if calib else None)
        console.note(f"the page is {report / 'index.html'}")
    if work is None:
        remove_work(folder)
