# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant eval --tasks`. What needs lm-eval runs where it is installed (the extra lm-eval)."""

import importlib.util
import json
import shutil

import pytest

from command_line import run_command_line as easyquant

needs_lm_eval = pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="needs lm-eval: pip install '.[lm-eval]'")
needs_http = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("lm_eval", "aiohttp", "tenacity", "transformers")), reason="needs lm-eval's client: pip install 'lm_eval[api]' transformers"
)
TASK = """
task: letters
dataset_path: json
dataset_kwargs: {{data_files: {{test: {file}}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{context}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: answer
target_delimiter: ""
metric_list: [{{metric: acc}}, {{metric: acc_norm}}]
"""


@pytest.fixture
def questions(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "datasets"))
    entries = [{"context": context, "choices": ["abc", "z", "Quick!"], "answer": number % 3} for number, context in enumerate(("one", "two,", "three-" * 12, "four", "x", "(y"))]
    file = tmp_path / "questions.jsonl"
    file.write_text("\n".join(map(json.dumps, entries)) + "\n")
    return file


@needs_lm_eval
def test_figures_are_those_of_choices(letters, questions, tmp_path):
    task = tmp_path / "letters.yaml"
    task.write_text(TASK.format(file=questions))
    done = easyquant("eval", letters("--scheme=W8A8"), "--tasks", task, "--json", tmp_path / "tasks.json")
    assert done.returncode == 0, done.stderr
    own = easyquant("eval", letters("--scheme=W8A8"), "--choices", questions, "--json", tmp_path / "choices.json")
    assert own.returncode == 0, own.stderr
    found = json.loads((tmp_path / "tasks.json").read_text())["results"]["letters"]
    expected = json.loads((tmp_path / "choices.json").read_text())
    assert (found["acc,none"], found["acc_norm,none"]) == (expected["accuracy"], expected["accuracy_normalized"]) and "letters" in done.stdout


@needs_http
def test_figures_over_http_are_those_of_choices(letters, questions, tmp_path):
    """lm-eval's own client of OpenAI's API, which asks for the log-probabilities of prompts."""
    from lm_eval.evaluator import simple_evaluate
    from lm_eval.models.openai_completions import LocalCompletionsAPI
    from lm_eval.tasks import TaskManager
    from serve_client import serving

    folder = letters("--scheme=W8A8")
    (tmp_path / "letters.yaml").write_text(TASK.format(file=questions))
    tokenizer = tmp_path / "tokenizer"
    tokenizer.mkdir()
    shutil.copy(folder / "tokenizer.json", tokenizer)
    (tokenizer / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    own = easyquant("eval", folder, "--choices", questions, "--json", tmp_path / "choices.json")
    assert own.returncode == 0, own.stderr
    with serving({"letters": folder}) as client:
        subject = LocalCompletionsAPI(base_url=f"{client.url}/completions", model="letters", tokenizer=str(tokenizer), tokenizer_backend="huggingface", num_concurrent=3)
        found = simple_evaluate(subject, tasks=["letters"], task_manager=TaskManager(include_path=str(tmp_path)))["results"]["letters"]
    expected = json.loads((tmp_path / "choices.json").read_text())
    assert (found["acc,none"], found["acc_norm,none"]) == (expected["accuracy"], expected["accuracy_normalized"])


@needs_lm_eval
def test_the_model_generates_and_rolls(letters, letters_model):
    import easyquant as package
    from easyquant.evaluation.lm_eval_model import EasyQuant
    from lm_eval.api.instance import Instance
    from lm_eval.api.registry import get_model

    assert get_model("easyquant") is EasyQuant
    folder = letters("--scheme=W8A8")
    subject = EasyQuant.create_from_arg_string(f"pretrained={folder},threads=2", {"batch_size": 2})

    def ask(kind, *arguments):
        return Instance(kind, {}, arguments, 0)

    with package.Model(folder, threads=2) as model:
        text = model.generate("abc", max_tokens=12).text
        asked = [ask("generate_until", "abc", {"until": [text[5:7]], "max_gen_toks": 12}), ask("generate_until", "xyz", {"until": [], "max_gen_toks": 3})]
        assert subject.generate_until(asked) == [model.generate("abc", max_tokens=12, stop=text[5:7]).text, model.generate("xyz", max_tokens=3).text]
        (rolled,) = subject.loglikelihood_rolling([ask("loglikelihood_rolling", "abcdefgh")])
        assert rolled == pytest.approx(model.score([1, *model.encode("abcdefgh")]).total if subject.prefix_token_id == 1 else model.score([2, *model.encode("abcdefgh")]).total)
        with pytest.raises(package.UserError, match="generation_kwargs: found 'beams', expected until"):
            subject.generate_until([ask("generate_until", "abc", {"beams": 3})])
    subject.close()


@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is not None, reason="lm-eval is installed")
def test_without_lm_eval_it_says_what_to_install(letters):
    done = easyquant("eval", letters("--scheme=W8A8"), "--tasks", "hellaswag")
    assert done.returncode == 1 and done.stderr == "error: --tasks: needs lm-eval; install the extra lm-eval (pip install '.[lm-eval]' in a checkout of EasyQuant)\n"


@pytest.mark.parametrize("arguments, message", [
    (("--tasks", "a", "--text", "x"), "--text: does not go with --tasks"),
    (("--tasks", "a", "--bos"), "--bos: does not go with --tasks"),
    (("--text", "x", "--limit", 3), "--limit: goes with --tasks"),
    (("--text", "x", "--apply-chat-template"), "--apply-chat-template: goes with --tasks"),
])  # fmt: skip
def test_options_that_do_not_go_together(letters, arguments, message):
    done = easyquant("eval", letters("--scheme=W8A8"), *arguments)
    assert done.returncode == 1 and done.stderr == f"error: {message}\n"
