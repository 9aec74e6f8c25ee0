# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The demo's page: one HTML file that holds its style, its figures and its figures' numbers."""

from pathlib import Path

from easyquant import pages, plots
from easyquant.files import write_atomically
from easyquant.results import Answer, Result, WeightExample


def summarize(results: list[Result]) -> list[str]:
    """What the numbers say, in sentences: every quantized artifact against the float one, which comes first."""
    base = results[0]
    sentences = []
    for result in results[1:]:
        smaller = base.speed["weights_bytes"] / result.speed["weights_bytes"]
        prefill = result.speed["prefill_tokens_per_s"] / base.speed["prefill_tokens_per_s"]
        decode = result.speed["decode_tokens_per_s"] / base.speed["decode_tokens_per_s"]
        change = result.figures["perplexity"] / base.figures["perplexity"] - 1
        sentences.append(
            f"{result.label} needs {smaller:.1f} times less memory for weights than {base.label}, reads a prompt {prefill:.1f} times "
            f"and writes {decode:.1f} times as fast, with a perplexity {abs(change):.1%} {'higher' if change >= 0 else 'lower'}."
        )
    return sentences


def _bars(results: list[Result], key: str) -> list[plots.Bar]:
    bars = []
    for result in results:
        value = result.speed[key]
        least, most = result.speed[f"{key}_range"]
        bars.append(plots.Bar(result.label, value, least, most))
    return bars


def _perplexity_bars(results: list[Result]) -> list[plots.Bar]:
    bars = []
    for result in results:
        value, error = result.figures["perplexity"], result.figures["perplexity_stderr"]
        ends = (None, None) if error is None else (value - error, value + error)
        bars.append(plots.Bar(result.label, value, *ends))
    return bars


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


def render(results: list[Result], weights: WeightExample, answer: Answer, model: str, text: str, command: str) -> str:
    """`results`: the float artifact first. Gives a complete HTML document that refers to nothing outside itself."""
    return pages.render(
        "report.html.j2",
        results=results,
        summary=summarize(results),
        weights=weights,
        answer=answer,
        model=model,
        text=text,
        command=command,
        stamp=_stamp(results),
        figures={
            "perplexity": plots.perplexity_bars(_perplexity_bars(results)),
            "size": plots.perplexity_against_bytes([(r.label, r.speed["weights_bytes"], r.figures["perplexity"]) for r in results]),
            "speed": plots.speed_bars(_bars(results, "prefill_tokens_per_s"), _bars(results, "decode_tokens_per_s")),
            "weights": plots.weight_histograms(weights.before, [(label, values) for label, values, _ in weights.after]),
        },
    )


def write(path: Path, html: str) -> None:
    write_atomically(path, html.encode())
