"""The reward server of a study, or of a plain rubric list."""

from __future__ import annotations

import gc
import os
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

import uvicorn

from flows.inline_rubrics import InlineRubrics
from flows.reward_service import RewardService
from flows.rollouts import CRITERIA_PER_CALL
from flows.trainers import Options, RubricReward, study_rater
from tasks.contracts.errors import InputError
from tasks.contracts.settings.engine import Engine
from tasks.contracts.settings.judge import Judge
from tasks.contracts.settings.reward import Aggregation, Retention, Reward
from tasks.contracts.settings.study import load_study
from tasks.reward.exact import check_widths
from tasks.serve.app import create_app
from tasks.serve.doors import TOKEN, ServerGate
from tasks.serve.listed import read_listed
from tasks.serve.service import PromptRow
from tasks.store.warehouse import Warehouse

LIST = ".jsonl"
"""How the name of a rubric list ends."""
EMBEDDED = "embedded"
PAPER = Retention(weak_prerequisite=0.6, strong_prerequisite=0.2, activation=0.0)
"""The retention factors of the paper, which a rubric list is rewarded by."""
_LOGPROBS = 20


def serve(
    source: Path,
    warehouse: Path,
    aggregation: Aggregation,
    host: str,
    port: int,
    judge: str | None = None,
    url: str | None = None,
    record: str | None = None,
    judged_twice: float = 0.0,
) -> None:
    """Serve rewards until stopped; what was taken in by then is answered.

    source: a study file, or a rubric list. judge: of a rubric list: 'embedded', or a model, by the name that the server
    at `url` has for it. record: name of a run in the warehouse to write every batch into.
    judged_twice: share of the rollouts that are judged a second time, to see how far the judge agrees with itself.
    InputError where the study or list cannot be served, a judge is missing or named twice, or the address is taken.
    """
    gate = ServerGate(host, port, os.environ.get(TOKEN))
    service = service_of(source, warehouse, aggregation, judge, url, record, judged_twice)
    listening = _listening(host, port)
    bound = ServerGate(host, listening.getsockname()[1], gate.token)
    count = len(service.prompts())
    print(f"serving {aggregation} rewards of {service.name}, {count:,} items, at {bound.url} (Ctrl-C stops it)")
    config = uvicorn.Config(
        create_app(service, bound), log_level="warning", access_log=False, server_header=False, ws="none"
    )
    gc.freeze()  # what is loaded by now stays, and no collection has to look at it
    with listening, service.kept_open(), suppress(KeyboardInterrupt):  # which is how it is stopped
        uvicorn.Server(config).run([listening])


def service_of(
    source: Path,
    warehouse: Path,
    aggregation: Aggregation,
    judge: str | None = None,
    url: str | None = None,
    record: str | None = None,
    judged_twice: float = 0.0,
) -> RewardService:
    """What is served of a study or a rubric list."""
    house = Warehouse.open(warehouse)
    # What a failure of the judge means is for each client to say; the server goes on.
    run = house.run(record) if record else None
    options: Options = {
        "on_failure": "none",
        "replies": house.replies,
        "record": run,
        "judged_twice": judged_twice,
    }
    if source.suffix == LIST:
        return _of_list(source, house, aggregation, list_judge(judge, url), options)
    if judge is not None or url is not None:
        rule = "a study names its judge itself; --judge and --url are for rubric lists"
        raise InputError(rule, file=source, field="--judge" if judge else "--url")
    return _of_study(source, house, aggregation, options)


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


def _of_study(source: Path, house: Warehouse, aggregation: Aggregation, options: Options) -> RewardService:
    reward = RubricReward.of_study(source, house.root, aggregation, **options)
    study = load_study(source)
    assert study.reward is not None  # `of_study` asks for it
    inline = InlineRubrics(study.judge, study.reward, CRITERIA_PER_CALL, house.replies)
    return _service(study.name, reward, inline, study.reward, None)


def _of_list(source: Path, house: Warehouse, aggregation: Aggregation, judge: Judge, options: Options) -> RewardService:
    items = read_listed(source)
    settings = Reward(retention=PAPER)
    inline = InlineRubrics(judge, settings, CRITERIA_PER_CALL, house.replies)
    print(f"graphs of {len(items):,} rubrics by their wording; retention factors of the paper: 0.6, 0.2, 0")
    rows, bundles, graphs = inline.drawn(items)
    asking = partial(study_rater, judge, source.parent)
    reward = RubricReward(rows, bundles, graphs, settings, asking, aggregation, **options)
    prompts = [PromptRow(item_id=item.item_id, prompt=item.prompt) for item in items]
    return _service(source.stem, reward, inline, settings, prompts)


def _service(
    name: str, reward: RubricReward, inline: InlineRubrics, settings: Reward, prompts: list[PromptRow] | None
) -> RewardService:
    if settings.inference == "exact":  # the answers hold GEAR's figures whatever the reward is
        check_widths(item.wired for item in reward.items.values())
    return RewardService(name, reward, inline, prompts)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except (OSError, OverflowError) as error:
        raise InputError(f"the address cannot be bound: {error}", field="port", hint="is it in use?") from error
