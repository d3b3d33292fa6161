"""The command `serve`: the reward server of a study, or of a plain rubric list."""

from __future__ import annotations

import gc
import resource
import socket
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, cast
from urllib.parse import urlsplit

import typer

from rubricflow.flows.command_line import DEFAULT_WAREHOUSE, WarehouseFolder
from rubricflow.flows.reward_service import InlineRubrics, RewardService
from rubricflow.flows.trainers import RubricReward, study_rater
from rubricflow.tasks.core.contracts import Record
from rubricflow.tasks.core.contracts.errors import InputError
from rubricflow.tasks.core.contracts.settings.engine import Engine
from rubricflow.tasks.core.contracts.settings.judge import Judge
from rubricflow.tasks.core.contracts.settings.reward import Retention, Reward
from rubricflow.tasks.core.contracts.settings.study import load_study
from rubricflow.tasks.core.contracts.tables.reward import Aggregation
from rubricflow.tasks.core.store.warehouse import Warehouse
from rubricflow.tasks.core.web.guard import TOKEN, TOKEN_FILE, TokenGate, kept_token
from rubricflow.tasks.core.web.server import Limits, Server, listening, usual_limits
from rubricflow.tasks.rewards.reward.exact import check_widths
from rubricflow.tasks.rewards.serve.app import create_app
from rubricflow.tasks.rewards.serve.sent import read_listed
from rubricflow.tasks.rewards.serve.waves import PromptRow

LIST = ".jsonl"
"""How the name of a rubric list ends."""
EMBEDDED = "embedded"
CRITERIA_PER_CALL = 4
"""As many as GEAR's reward judge gets at once."""
PAPER = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
"""The retention factors of the paper, which a rubric list is rewarded by."""
_LOGPROBS = 20
_PLACES = 1024
"""Connections of clients at once, at most."""
_REQUEST_S = 30.0
"""Seconds for sending a request."""
_LOOK_S = 3.0


def serve(
    source: Annotated[Path, typer.Argument(help="The study file (YAML), or a rubric list (JSONL).")],
    aggregation: Annotated[str, typer.Option(help="How a reward is put together: gear, flat, hard_verdict, …")] = (
        "gear"
    ),
    judge: Annotated[
        str | None, typer.Option(help="Of a rubric list: a model by its server's name for it, or 'embedded'.")
    ] = None,
    url: Annotated[str | None, typer.Option(help="The OpenAI-compatible server that has the judge.")] = None,
    record: Annotated[
        str | None, typer.Option(help="Write every batch into this run of the warehouse, for `report`.")
    ] = None,
    judged_twice: Annotated[
        float, typer.Option(min=0, max=1, help="Share of the rollouts that are judged a second time, for the curves.")
    ] = 0.05,
    host: Annotated[str, typer.Option(help="The address to bind; any but this machine's own needs a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535)] = 8321,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="Answer whoever can open a connection on this machine.")
    ] = False,
    warehouse: WarehouseFolder = DEFAULT_WAREHOUSE,
) -> None:
    """Serve rewards until stopped; what was taken in by then is answered.

    InputError where the study or list cannot be served, a judge is missing or named twice, or the address is taken.
    """
    token = None if no_token else kept_token()
    TokenGate(host, port, token)  # which is refused before anything is read
    service = service_of(source, Path(warehouse), aggregation, judge, url, record, judged_twice)
    with listening(host, port) as bound:
        gate = TokenGate(host, bound.getsockname()[1], token)
        trouble = absent(service.judge_urls)
        count = len(service.prompts())
        print(f"serving {aggregation} rewards of {service.name}, {count:,} items, at {gate.url} (Ctrl-C stops it)")
        if said := service.said_of_graphs:
            print(said)
        if token:
            print(f"every request carries the token in ~/{TOKEN_FILE}; elsewhere its clients read {TOKEN}")
        if trouble:
            print(f"{trouble}; until it answers no rollout has a reward", file=sys.stderr)
        sys.stdout.flush()
        gc.freeze()  # what is loaded by now stays, and no collection has to look at it
        try:
            with service.kept_open():
                Server(create_app(service, gate, trouble), bound, serving_limits()).run()
        finally:
            gc.unfreeze()  # or libraries report at exit what was never collected


def serving_limits() -> Limits:
    """Half of the file descriptors are for the judge's connections and the warehouse; a batch takes a while to send."""
    descriptors, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * _PLACES if most == resource.RLIM_INFINITY else min(most, 4 * _PLACES)
    if descriptors != resource.RLIM_INFINITY and descriptors < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))
        descriptors = wanted
    return usual_limits(_PLACES, others=descriptors // 2, request_s=_REQUEST_S)


def absent(urls: Sequence[str]) -> str | None:
    """What is wrong where none of the servers that have the judge takes a connection; None for none, or where one
    does."""
    said = ""
    for url in urls:
        parts = urlsplit(url)
        try:
            port = parts.port or (443 if parts.scheme == "https" else 80)
            socket.create_connection((str(parts.hostname), port), timeout=_LOOK_S).close()
            return None
        except OSError as error:
            said = said or f"the judge at {url} cannot be reached: {error}"
    return said or None


def service_of(
    source: Path,
    warehouse: Path,
    aggregation: str,
    judge: str | None = None,
    url: str | None = None,
    record: str | None = None,
    judged_twice: float = 0.0,
) -> RewardService:
    """What is served of a study or a rubric list; the parameters are the options of `serve`."""
    opened, how = Warehouse.open(warehouse), cast(Aggregation, aggregation)  # `Options` refuses another word
    options: Record = {
        "on_failure": "none",  # what a failure of the judge means is for each client to say; the server goes on
        "replies": opened.replies,
        "record": opened.run(record) if record else None,
        "judged_twice": judged_twice,
    }
    if source.suffix == LIST:
        name = source.stem
        choice = list_judge(judge, url)
        settings = Reward(retention=PAPER)
        items = read_listed(source)
        inline = InlineRubrics(choice, settings, CRITERIA_PER_CALL)
        print("retention factors of the paper: 0.6, 0.2, 0")
        prompts = [PromptRow(item_id=item.item_id, prompt=item.prompt) for item in items]
        asking = partial(study_rater, choice, source.parent)
        reward = RubricReward(*inline.study_graphs(items), settings, asking, how, **options)
        return RewardService(name, reward, inline, prompts, choice.engine.urls if choice.engine else ())
    if judge is not None or url is not None:
        rule = "a study names its judge itself; --judge and --url are for rubric lists"
        raise InputError(rule, file=source, field="--judge" if judge else "--url")
    reward = RubricReward.of_study(source, opened.root, how, **options)
    study = load_study(source)
    assert study.reward is not None  # `of_study` asks for it
    if study.reward.inference == "exact":  # the answers hold GEAR's figures whatever the reward is
        check_widths(item.compiled for item in reward.items.values())
    inline = InlineRubrics(study.judge, study.reward, CRITERIA_PER_CALL)
    return RewardService(study.name, reward, inline, None, study.judge.engine.urls if study.judge.engine else ())


def list_judge(judge: str | None, url: str | None) -> Judge:
    """The judge of a rubric list; InputError where it is not said whole."""
    if judge is None:
        hint = "--judge MODEL --url http://127.0.0.1:8000/v1, or --judge embedded, a sentence encoder"
        raise InputError("a rubric list needs a judge", field="--judge", hint=hint)
    if judge == EMBEDDED:
        if url is not None:
            raise InputError("the embedded judge runs here and needs no server", field="--url")
        return Judge(protocol="pointwise", criteria_per_call=CRITERIA_PER_CALL, backend=EMBEDDED)
    if url is None:
        raise InputError("the judge is a model; name the server that has it", field="--url")
    engine = Engine(model=judge, urls=(url,), logprobs=_LOGPROBS)
    return Judge(protocol="pointwise", criteria_per_call=CRITERIA_PER_CALL, backend="openai", engine=engine)
