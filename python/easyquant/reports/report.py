# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo's page: one HTML file that holds its style, its figures and its figures' numbers."""

from pathlib import Path

from easyquant.evaluation.results import Answer, Result, WeightExample
from easyquant.reports import pages, plots
from easyquant.support.files import write_atomically


def summarize(results: list[Result]) -> list[str]:
    """What the numbers say, in sentences: every quantized artifact against the float one, which comes first."""
    base = results[0]
    sentences = []
    for result in results[1:]:
        smaller = base.deployed_bytes / result.deployed_bytes
        prefill = result.speed["prefill_tokens_per_s"] / base.speed["prefill_tokens_per_s"]
        decode = result.speed["decode_tokens_per_s"] / base.speed["decode_tokens_per_s"]
        change = result.figures["perplexity"] / base.figures["perplexity"] - 1
        sentences.append(
            f"{result.label} needs {smaller:.1f} times less memory for weights than bf16. It reads a prompt {prefill:.1f} times and writes "
            f"{decode:.1f} times as fast as the float artifact, which computes in f32, and agrees with it on {result.figures['top1_agreement']:.1%} "
            f"of next tokens; its perplexity is {abs(change):.1%} {'higher' if change >= 0 else 'lower'}."
        )
    return sentences


def _bars(results: list[Result], key: str) -> list[plots.Bar]:
    return [plots.Bar(result.label, result.speed[key], *result.speed[f"{key}_range"]) for result in results]


def _perplexity_bars(results: list[Result]) -> list[plots.Bar]:
    bars = []
    for result in results:
        value, error = result.figures["perplexity"], result.figures["perplexity_stderr"]
        ends = (None, None) if error is None else (value - error, value + error)
        bars.append(plots.Bar(result.label, value, *ends))
    return bars


def _figures(results: list[Result], weights: WeightExample | None) -> dict[str, list[str]]:
    sizes = [plots.Bar(result.label, result.deployed_bytes / 1e6) for result in results]
    distances = [plots.Bar(result.label, result.figures.get("kl_mean", 0.0)) for result in results]
    figures = {
        "cost": plots.bar_panels(
            "cost",
            [
                ("Weights, MB (float: bf16)", sizes, 0),
                ("Prefill, tokens/s", _bars(results, "prefill_tokens_per_s"), 0),
                ("Decode, tokens/s", _bars(results, "decode_tokens_per_s"), 1),
            ],
        ),
        "quality": plots.bar_panels(
            "quality",
            [("KL divergence from float, nats (lower is better)", distances, 4), ("Perplexity (lower is better)", _perplexity_bars(results), 2)],
        ),
    }
    if weights is not None:
        figures["weights"] = plots.weight_histograms(weights.before, [(label, values) for label, values, _ in weights.after])
    return figures


def _stamp(results: list[Result]) -> dict[str, object]:
    """The protocol that all artifacts share, without what differs from one to the next."""
    stamp = dict(results[-1].figures["protocol"])
    for key in ("artifact",):
        stamp.pop(key, None)
    speed = results[-1].speed["protocol"]
    stamp["speed"] = (
        f"prefill of {speed['prefill']} tokens, then decode of {speed['decode']}, batch {speed['batch']}, "
        f"{speed['statistic']} of {speed['repeats']} repeats after {speed['warm_up']} to warm up"
    )
    return {key.replace("_", " "): value for key, value in stamp.items() if value is not None}


def render(results: list[Result], weights: WeightExample | None, answers: list[Answer], **texts) -> str:
    """`results`: the float artifact first. Gives a complete HTML document that refers to nothing outside itself.

    `texts`: prompt, model, stored (types of the model's file), calib, calibrated_on, text, output, seconds.
    """
    return pages.render(
        "report.html.j2",
        results=results,
        summary=summarize(results),
        weights=weights,
        answers=answers,
        stamp=_stamp(results),
        figures=_figures(results, weights),
        **texts,
    )


def write(path: Path, html: str) -> None:
    write_atomically(path, html.encode())
