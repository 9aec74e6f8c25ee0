# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""lm-eval's model `easyquant`: an artifact, or a model that is compiled on the way, under the tasks of EleutherAI's evaluation harness.

lm-eval 0.4.13 knows models that were imported, so `easyquant eval --tasks` imports this file and calls it; releases that look for
plug-ins find its entry point. The figures of a task of multiple choice are those of `easyquant eval --choices` on the same texts.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from lm_eval import utils
from lm_eval.api.model import TemplateLM
from lm_eval.api.registry import register_model

from easyquant.compiler.cache import artifact_of
from easyquant.compiler.keywords import KEPT, compile_options
from easyquant.evaluation.likelihoods import SEQUENCES, Scorer
from easyquant.runtime.device import Placement
from easyquant.runtime.requests import Request, Settings
from easyquant.support.errors import UserError

# Names of lm-eval's `generation_kwargs`, for those of Settings; `until` and `do_sample` are seen to apart.
_GENERATION = {"max_gen_toks": "max_tokens", "temperature": "temperature", "top_p": "top_p", "top_k": "top_k", "min_p": "min_p", "repetition_penalty": "repetition_penalty"}
MAX_GEN_TOKS = 256  # as lm-eval's other models have it


@register_model("easyquant")
class EasyQuant(TemplateLM):
    """`lm_eval --model easyquant --model_args pretrained=smol-w8a8,threads=2`.

    pretrained: an artifact, or a model, which is compiled once with `options`, those of `easyquant.quantize`.
    batch_size: texts at a time. context: tokens of a text; 0: as many as the model can. device: "auto", "cpu", "cuda" or "simt".
    """

    def __init__(
        self, pretrained: str, threads: int = 0, context: int = 0, device: str | None = None, batch_size: int | str | None = None, max_batch_size: int | None = None, **options
    ):
        super().__init__()
        sequences = int(batch_size) if str(batch_size or "auto") != "auto" else max_batch_size or SEQUENCES
        artifact = artifact_of(Path(pretrained), compile_options(options, KEPT))
        self._scorer = Scorer(artifact, context, threads, Placement(device or "auto"), sequences)
        self._reader = self._scorer.reader

    def close(self) -> None:
        self._scorer.close()

    @property
    def max_length(self) -> int:
        return self._reader.context

    @property
    def eot_token_id(self) -> int:
        if not self._reader.end_tokens:
            raise UserError(f"{self._reader.artifact.path}: the model has no end-of-text token")
        return min(self._reader.end_tokens)

    @property
    def prefix_token_id(self) -> int:
        bos = self._reader.artifact.model.get("bos_token_id")
        return self.eot_token_id if bos is None else int(bos)

    @property
    def tokenizer_name(self) -> str:
        return str(self._reader.artifact.path).replace("/", "__")

    def chat_template(self, chat_template: bool | str = False) -> str | None:
        return self._reader.tokenizer.chat_template if chat_template else None

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        return self._reader.tokenizer.render_chat(chat_history, add_generation_prompt=add_generation_prompt)

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs) -> list[int]:
        return self._reader.tokenizer.encode(string, add_special_tokens=bool(add_special_tokens))

    def _loglikelihood_tokens(self, requests: list[tuple[tuple[str, str], list[int], list[int]]], **kwargs) -> list[tuple[float, bool]]:
        pairs = [self._fit(beginning, continuation) for _, beginning, continuation in requests]
        return [(found.total, found.is_greedy) for found in self._scorer.likelihoods(pairs)]

    def _fit(self, beginning: list[int], continuation: list[int]) -> tuple[list[int], list[int]]:
        """What the context has room for: the end of the beginning, as lm-eval's other models do it."""
        room = self.max_length - len(continuation)
        if room < 1:
            raise UserError(f"a continuation has {len(continuation)} tokens, but the context of {self._reader.artifact.path} is {self.max_length}")
        return beginning[-room:], continuation

    def loglikelihood_rolling(self, requests, disable_tqdm: bool = False) -> list[float]:
        totals = []
        for request in requests:
            windows = utils.get_rolling_token_windows(
                token_list=self.tok_encode(request.args[0]), prefix_token=self.prefix_token_id, max_seq_len=self.max_length - 1, context_len=1
            )
            pairs = [utils.make_disjoint_window(window) for window in windows]
            totals.append(sum(found.total for found in self._scorer.likelihoods([(list(beginning), list(rest)) for beginning, rest in pairs])))
        return totals

    def generate_until(self, requests, disable_tqdm: bool = False) -> list[str]:
        asked = [self._generation(*request.args) for request in requests]
        if not asked:
            return []
        texts = [""] * len(asked)
        for event, place in self._scorer.engine(asked).follow(asked):
            if event.error:
                raise UserError(event.error)
            texts[place] = event.completion.text
        return texts

    def _generation(self, text: str, options: dict) -> Request:
        options = dict(options)
        until = options.pop("until", None) or []
        if not options.pop("do_sample", options.get("temperature", 0) > 0):
            options["temperature"] = 0.0
        for name in options:
            if name not in _GENERATION:
                raise UserError(f"generation_kwargs: found {name!r}, expected until, do_sample, {', '.join(_GENERATION)}")
        given = {_GENERATION[name]: value for name, value in options.items()}
        settings = Settings(**{"max_tokens": MAX_GEN_TOKS} | given, stop=tuple(filter(None, [until] if isinstance(until, str) else until)), seed=0)
        tokens = self.tok_encode(text)[-max(1, self.max_length - settings.max_tokens) :] or [self.prefix_token_id]
        return replace(self._reader.request(tokens, settings), is_text=True)


def run_tasks(model: Path, tasks: Sequence[str], include: Sequence[Path] = (), shots: int | None = None, limit: int | None = None, chat: bool = False, **options) -> dict:
    """lm-eval's results of tasks: their names, or YAML files. `options`: those of EasyQuant."""
    from lm_eval import evaluator
    from lm_eval.tasks import TaskManager

    subject = EasyQuant(str(model), **options)
    try:
        manager = TaskManager(include_path=[str(folder) for folder in include] or None)
        found = evaluator.simple_evaluate(
            model=subject, tasks=list(tasks), num_fewshot=shots, limit=limit, apply_chat_template=chat, task_manager=manager, log_samples=False, bootstrap_iters=1000
        )
    except (KeyError, ValueError, FileNotFoundError, ConnectionError) as error:  # unknown tasks, files that are not there, and data that is only elsewhere
        raise UserError(f"lm-eval: {' '.join(str(error).split())[:500]}") from None
    finally:
        subject.close()
    return {key: found[key] for key in ("results", "groups", "versions", "n-shot", "higher_is_better", "n-samples") if key in found}
