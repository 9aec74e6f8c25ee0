# Part of EasyQuant, under the Apache License v2.0 with LLVM Exceptions.
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""`easyquant serve`: models behind OpenAI's API."""

import os
import signal
from pathlib import Path
from typing import Annotated

import typer

from easyquant.commands import models as commands_models
from easyquant.formats import hub
from easyquant.runtime.artifact import load_model_on_ranks
from easyquant.runtime.device import Device, DeviceOption, Placement, SimtChipOption, ThreadsOption
from easyquant.runtime.engine import KEPT_STATES, STEP_MS
from easyquant.runtime.ranks import Comm, Ranks
from easyquant.support.errors import UserError
from easyquant.terminal import console
from easyquant.terminal.usage import Command

KEYS_VARIABLE = "EASYQUANT_API_KEYS"


def read_keys(given: list[str], file: Path | None) -> list[str]:
    """The command line's, those of a file with one a line, and those of the environment, joined by commas."""
    keys = [*given, *os.environ.get(KEYS_VARIABLE, "").split(",")]
    if file is not None:
        keys += file.read_text(encoding="utf-8").splitlines()
    keys = [key.strip() for key in keys if key.strip() and not key.strip().startswith("#")]
    if any(not key.isascii() or not key.isprintable() or " " in key for key in keys):
        raise UserError("--api-key: a key has other characters than printable ones of ASCII; make one with `openssl rand -hex 24`")
    if file is not None and not keys:
        raise UserError(f"{file}: holds no key; expected one a line")
    return list(dict.fromkeys(keys))


def named(paths: list[Path], names: list[str]) -> list[tuple[Path, str]]:
    """Models and what clients call them."""
    if names and len(names) != len(paths):
        raise UserError(f"--served-name: found {len(names)} names for {len(paths)} models; give one for each, in their order")
    names = names or [hub.model_name(path) for path in paths]
    for name in names:
        if names.count(name) > 1:
            raise UserError(f"{name}: two models have this name; give each one with --served-name")
    return list(zip(paths, names, strict=True))


class ServeCommand(Command):
    groups = commands_models.groups({
        "Where it listens": ("--host", "--port", "--cors-origin", "--access-log", "--grace"),
        "Who may call": ("--api-key", "--api-key-file", "--insecure", "--share-cache"),
        "Models": ("--served-name", "--context", "--sequences", "--cache-tokens", "--kept-states", "--speculate", "--draft-tokens", "--threads", "--step-ms", "--device", "--simt-chip"),
        "Limits": ("--max-body", "--max-prompt-tokens", "--max-tokens", "--max-waiting", "--timeout"),
    })  # fmt: skip


@console.command
@commands_models.takes_models
def serve_command(
    models: Annotated[
        list[Path],
        typer.Argument(metavar="MODEL...", help="Artifacts; or Hugging Face folders, GGUF files or names in the Hub's cache, which are compiled once and kept."),
    ],
    host: Annotated[str, typer.Option(metavar="HOST", help="The address to listen at; 0.0.0.0: all of this computer, which needs --api-key or --insecure.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="0: any that is free.")] = 8000,
    cors_origin: Annotated[
        list[str] | None, typer.Option(metavar="URL", help="Let web pages of this origin call the server, such as https://example.org; *: all. May be given several times.")
    ] = None,
    access_log: Annotated[bool, typer.Option("--access-log", help="Write a line for each request.")] = False,
    grace: Annotated[float, typer.Option(min=0.0, metavar="S", help="Seconds for what runs to finish, once SIGTERM or Ctrl-C has come; a second one ends at once.")] = 30,
    api_key: Annotated[list[str] | None, typer.Option(metavar="KEY", help=f"A key that clients must send; may be given several times. Also from {KEYS_VARIABLE}.")] = None,
    api_key_file: Annotated[Path | None, typer.Option(metavar="FILE", help="Keys, one a line; other users of this computer do not see them, as they see a command line.")] = None,
    insecure: Annotated[bool, typer.Option("--insecure", help="Listen beyond this computer without keys.")] = False,
    share_cache: Annotated[
        bool, typer.Option("--share-cache", help="Keep beginnings of prompts for all keys together. A client could then find out by time what others have asked.")
    ] = False,
    served_name: Annotated[list[str] | None, typer.Option(metavar="NAME", help="What clients call a model, one for each. (default: its folder)")] = None,
    context: Annotated[int, typer.Option(min=0, metavar="N", help="Tokens of a prompt and its answer; 0: as many as the model can.")] = 0,
    sequences: Annotated[int, typer.Option(min=1, metavar="N", help="Answers that are written at a time; more wait.")] = 16,
    cache_tokens: Annotated[
        int, typer.Option(min=0, metavar="N", help="Tokens that the KV cache has room for; 0: what all sequences can use, and half of the free memory holds.")
    ] = 0,
    kept_states: commands_models.KeptStatesOption = KEPT_STATES,
    speculate: commands_models.SpeculateOption = None,
    draft_tokens: commands_models.DraftTokensOption = None,
    threads: ThreadsOption = 0,
    step_ms: Annotated[float, typer.Option(min=0.0, metavar="MS", help="Read prompts in pieces that let a step take so long.")] = STEP_MS,
    device: DeviceOption = Device.auto,
    simt_chip: SimtChipOption = None,
    max_body: Annotated[int, typer.Option(min=1024, metavar="BYTES", help="Of a request.")] = 4 << 20,
    max_prompt_tokens: Annotated[int, typer.Option(min=0, metavar="N", help="0: what the context holds.")] = 0,
    max_tokens: Annotated[int, typer.Option(min=0, metavar="N", help="Of an answer; 0: what the context holds.")] = 0,
    max_waiting: Annotated[int, typer.Option(min=0, metavar="N", help="Answers that may wait; a client that asks for more gets status 429 and is told when to ask again.")] = 64,
    timeout: Annotated[float, typer.Option(min=1.0, metavar="S", help="Seconds that a request may take.")] = 600,
    calib: commands_models.CalibOption = None,
    **given,
) -> None:
    """Serve models over HTTP with OpenAI's API: chats, completions, responses.

    Example: [bold]easyquant serve smol-w8a8[/bold]

    Then: [bold]curl http://127.0.0.1:8000/v1/chat/completions -H 'Content-Type: application/json' -d '{"messages": [{"role": "user", "content": "Hi"}]}'[/bold]
    """
    try:
        from easyquant.server import process
        from easyquant.server.app import make_app
        from easyquant.server.gate import Access, hosts_for, is_loopback
        from easyquant.server.limits import Limits
        from easyquant.server.metrics import Metrics
        from easyquant.server.served import ServeOptions, open_all
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("easyquant"):
            raise
        raise UserError(f"{error.name} is not installed, which the server needs; pip install '.[serve]' in a checkout of EasyQuant") from None
    keys = read_keys(api_key or [], api_key_file)
    if not (keys or insecure or is_loopback(host)):
        raise UserError(f"--host {host}: others can reach the server there; give --api-key KEY or --api-key-file FILE, or --insecure to let everybody in")
    pairs = named(models, served_name or [])
    limits = Limits(max_body, max_prompt_tokens, max_tokens, max_waiting, timeout)
    speculation = commands_models.speculation(speculate, draft_tokens)
    options = ServeOptions(context, sequences, cache_tokens, threads, step_ms, Placement.of(device, simt_chip), limits, speculation, kept_states)
    access = Access(tuple(keys), share_cache, tuple(cors_origin or ()), hosts_for(host, keys))
    metrics = Metrics()
    artifacts = [(commands_models.artifact_of(path, calib, given), name) for path, name in pairs]
    if follows(artifacts, options):
        return
    bound = process.listen(host, port)
    served = open_all(artifacts, options, metrics, console.note)
    try:
        app, service = make_app(served, limits, access, metrics)
        server = process.Server(app, service, limits, grace, access_log, lambda: tell(host, bound.getsockname()[1], served, bool(keys)))
        server.run(sockets=[bound])
    finally:
        for model in served.values():
            model.close()


def follows(artifacts: list, options) -> bool:
    """Does what rank 0 wants until it ends, where this is another one of those that share the artifact."""
    shared = [artifact for artifact, _ in artifacts if artifact.ranks > 1]
    if shared and len(artifacts) > 1:
        raise UserError(f"{shared[0].path}: is shared by {shared[0].ranks} ranks, which serve one model; start another server for the others")
    if not shared or Ranks(Comm.auto).rank == 0:
        return False
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)  # rank 0 may have answers to finish, and ends all when it has
    load_model_on_ranks(shared[0], options.threads, options.place)
    return True


def tell(host: str, port: int, served: dict, has_keys: bool) -> None:
    """What is served, where, and how to call it. Where that cannot be written the server goes on."""
    url = f"http://{'127.0.0.1' if host in ('0.0.0.0', '::') else f'[{host}]' if ':' in host else host}:{port}"
    lines = [f"{name}: context {model.size.context}, {model.size.sequences} at a time, room for {model.size.tokens} tokens" for name, model in served.items()]
    lines.append(f"{url}/v1  (endpoints and fields: {url}/docs, figures: {url}/metrics)")
    key = ' -H "Authorization: Bearer $KEY"' if has_keys else ""
    body = f'{{"model": "{next(iter(served))}", "messages": [{{"role": "user", "content": "Hi"}}]}}'
    lines.append(f"curl {url}/v1/chat/completions{key} -H 'Content-Type: application/json' -d '{body}'")
    with console.may_be_lost():
        console.out.print("\n".join(lines), markup=False, soft_wrap=True)
